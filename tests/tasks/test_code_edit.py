"""Edits of functions: what the generator makes of a library in miniature, and how outputs are scored."""

from __future__ import annotations

import ast
import sysconfig
import textwrap

import pytest

from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import Decoded
from tasks.code_edit import CodeEditing
from tasks.data.code_edits import code_edits, tree_of
from tests.tasks.test_wikitext_perplexity import place

__all__ = ["place"]  # a fixture

QUIET = Progress(quiet=True)
LINES = range(3, 20)


def library(folder, **modules):
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def every(folder, text):
    """The edits of a module's functions under twenty seeds, so that all kinds occur."""
    return {edit for seed in range(20) for edit in code_edits(library(folder, module=text), LINES, seed)}


def test_a_parameter_is_renamed_wherever_it_is_read_and_nowhere_else(tmp_path):
    text = """
    class Store:
        def get(self, key):
            # key of an item
            value = self.items[key]
            return value if key else call(key=value.key)
    """
    found = [edit for edit in every(tmp_path, text) if edit.instruction.startswith("Rename")]
    assert len({edit.instruction for edit in found}) > 3
    for edit in found:
        new = edit.instruction.split("`")[3]
        assert edit.after == (
            f"def get(self, {new}):\n    # key of an item\n    value = self.items[{new}]\n"
            f"    return value if {new} else call(key=value.key)"
        )


def test_a_parameter_is_added_after_the_last_and_never_after_stars(tmp_path):
    text = """
    def first(a: int,
              b=[1, (2, 3)]):
        a = 1
        return a

    def second(a, *, b):
        return a, b

    def third(b=(1)):
        second = 2
        return second
    """
    added = {edit.after.partition("\n    a = 1")[0] for edit in every(tmp_path, text) if edit.instruction[0] == "A"}
    assert "def first(a: int,\n          b=[1, (2, 3)], timeout=None):" in added
    assert "def first(a: int,\n          b=[1, (2, 3)], encoding='utf-8'):" in added
    assert not any(edit.instruction[0] == "A" for edit in every(tmp_path, text) if "b)" in edit.before)


def test_a_docstring_of_one_line_is_taken_out_and_asked_for(tmp_path):
    text = '''
    def first():
        """Return one."""
        x = 1
        return x

    def second():
        """Return one.

        Always."""
        return 1

    def third():
        "Only this."
    '''
    [edit] = every(tmp_path, text)
    assert '"""Return one."""' in edit.instruction
    assert edit.before == "def first():\n    x = 1\n    return x"
    assert edit.after == 'def first():\n    """Return one."""\n    x = 1\n    return x'


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    def g(x):\n        return x\n    return g",  # two parameters of this name
        "def f(x):\n    def g():\n        nonlocal x\n        x = 1\n    return g, x",
        "def f(x):\n    y = 1\n    return y",  # never read
        "def f(self):\n    self.x = 1\n    return self",
        "def f(x=x):\n    y = 1\n    return x",  # its default is another variable
        "def f(x: x):\n    y = 1\n    return x",
        "def f(x) -> x:\n    y = 1\n    return x",
    ],
)
def test_a_parameter_that_cannot_be_renamed_by_its_name_alone_is_left(tmp_path, text):
    assert not [edit for edit in every(tmp_path, text) if edit.instruction.startswith("Rename")]


def test_edits_of_the_library_are_functions_that_differ_from_their_originals_once_each(tmp_path):
    """`textwrap` and `string` of the running Python, f-strings besides, and a broken file, which is passed over."""
    sources = {name: (sysconfig.get_paths()["stdlib"] + f"/{name}.py") for name in ("textwrap", "string", "shlex")}
    texts = {name: open(path, encoding="utf-8").read() for name, path in sources.items()}  # noqa: SIM115
    texts |= {"again": texts["shlex"], "broken": "def f(:", "strings": 'def f(x):\n    y = f"{x} {x}"\n    return y'}
    found = code_edits(library(tmp_path, **texts), LINES, 1)
    assert len(found) > 20 and len({edit.before for edit in found}) == len(found)
    assert found == code_edits(tmp_path, LINES, 1) != code_edits(tmp_path, LINES, 2)
    for edit in found:
        assert tree_of(edit.before) not in (None, tree_of(edit.after))
        assert len(ast.parse(edit.after).body) == 1
    assert all(len(edit.before.splitlines()) in range(5, 8) for edit in code_edits(tmp_path, range(6, 8), 1))


def test_outputs_are_right_whose_syntax_tree_is(place, tmp_path, monkeypatch):
    context, model = place
    code = 'def get(key):\n    """Get."""\n    x = 1\n    y = {1: 2}\n    return y[key] + x\n'
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "library")})
    (tmp_path / "library").mkdir()
    task = CodeEditing(model=model, prompt="{source}", limit=8, lines=5)
    with pytest.raises(RequestError, match=r"no function of 5 to 5 lines in .*: raise task\.lines"):
        task.prepare(context, QUIET)
    library(tmp_path / "library", module=code, other=code.replace("key", "name"))
    task = CodeEditing(model=model, prompt="{source}", limit=8, lines=6)
    monkeypatch.setattr(
        "tasks.bases.seq2seq.Seq2SeqTask.encoded", lambda self, items: [[1, 2, 3] for _ in items.sources]
    )  # the model has 32 positions
    setting = task.prepare(context, QUIET)
    assert len(setting.evaluation) == 2 and setting.facts["data"] == "functions of Python's standard library"
    right = task.chosen.gold
    outputs = [right[0].replace('"""Get."""', '"""\n    Get.\n    """') + "\n```\nThat is it.", right[1] + " + 1"]
    monkeypatch.setattr(task.generator, "decode", lambda ids: outputs[ids[0]])
    assert task.metrics(setting, [Decoded([0]), Decoded([1])])["correct"].value == 0.5


def test_nothing_is_trained_for_it(place, tmp_path, monkeypatch):
    library(tmp_path, module="def get(key):\n    a = 1\n    b = 2\n    c = 3\n    return key\n")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(RequestError, match=r"name a causal checkpoint by --set task\.model"):
        CodeEditing(model="train:small").prepare(place[0], QUIET)
