"""What the pages say is true: their examples run, their commands parse, their paths exist, their lists are whole."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.contracts.methods import NEEDS
from harness.plan import expansion, recipe
from harness.plan.registry import PLUGINS, Registry
from tests.harness import running

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "adding-a-method.md").read_text()
DOCS = ROOT / "docs"
PAGES = {"README.md": (ROOT / "README.md").read_text()} | {
    str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))
}
HEAD = "name: toy\ntitle: a toy\npaper: none\nsource: none\n"


def blocks(language: str, page: str = GUIDE) -> list[str]:
    """The code blocks of a page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


@pytest.fixture
def example(toys, tmp_path, monkeypatch):
    """A registry that sees the guide's Python examples, as a plug-in package without `__init__.py`."""
    (tmp_path / "plugin" / "my_package").mkdir(parents=True)
    (tmp_path / "plugin" / "my_package" / "examples.py").write_text("\n\n".join(blocks("python")))
    monkeypatch.setenv("HARNESS_PLUGINS", "toys,my_package")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'plugin'}:{ROOT / 'tests' / 'plugins'}:{ROOT}")
    monkeypatch.syspath_prepend(str(tmp_path / "plugin"))
    return Registry()


@pytest.mark.parametrize(
    ("task", "cell", "measured", "described"),
    [
        ("toy-layer", "method: frequent-words, params: {words: 50}", {"precision_at_1", "speedup"}, {"rows_bytes"}),
        (
            "skewed-layer",
            "method: frequent-words, params: {words: 500}",
            {"accuracy", "precision_at_1"},
            {"rows_bytes"},
        ),
        ("toy-text", "analysis: seen-tokens, params: {n: 3}", {"seen_share"}, {"seen_share", "ngrams"}),
        ("toy-text", "analysis: longest-streams", {"tokens"}, set()),
    ],
)
def test_the_examples_run(example, tmp_path, task, cell, measured, described):
    text = f"{HEAD}task: {{name: {task}}}\ntiming: {{processes: 1, pairs: 2}}\ncells:\n  - {{row: a, {cell}}}\n"
    cells = expansion.expand(recipe.parse(text, "toy.yaml"), "mini", example)
    (row,) = running.run(example, tmp_path / "run", cells).rows
    assert row.status == "ok", row.error
    assert measured <= row.numbers.keys()
    assert described == row.described.keys()


def test_the_automaton_generates_as_the_page_says(tmp_path, capsys):
    from harness.common.cache import Cache
    from harness.common.progress import Progress
    from tasks.data.text.kinds import open_source
    from tasks.models.lm.sizes import Size
    from tasks.models.lm.training import trained_model

    size = Size(vocabulary=512, layers=1, width=64, window=64, batch=2, steps=8, learning_rate=1e-3)
    cache, home = Cache(tmp_path / "cache"), tmp_path / "data" / "pages"
    home.mkdir(parents=True)
    for split, name in {"train": "measuring.md", "valid": "retrieval.md", "test": "decoding.md"}.items():
        (home / f"{split}.txt").write_text(PAGES[name])
    text = open_source("folder", "pages", (home.parent,), cache)
    folder = trained_model("tiny", size, text, cache, progress=Progress(quiet=True))
    (example,) = blocks("python", PAGES["retrieval.md"])
    page: dict[str, Any] = {}
    exec(example, page)
    documents = [document[:3000] for document in text.documents("train")[:3]]
    prompt = documents[0][:40]
    written = page["with_retomaton"](
        folder, documents, [text.documents("validation")[0][:3000]], tmp_path / "cache", prompt, tokens=12
    )
    assert written.startswith(prompt[:20]) and len(written) > len(prompt)
    assert re.search(r"\d+ searches for \d+ tokens", capsys.readouterr().out)


def test_the_engine_answers_as_the_page_says(tmp_path, capsys):
    (example,) = blocks("python", PAGES["infinigram.md"])
    page: dict[str, Any] = {}
    exec(example, page)
    documents = [[1, 2, 3, 4], [2, 3, 4, 1], [2, 3, 5]]
    assert page["most_likely_next"](documents, 6, tmp_path / "index", [0, 2, 3]) == (4, 2 / 3)
    assert "0 times; the longest match has 2 tokens" in capsys.readouterr().out


def test_the_command_line_of_the_index_answers_as_the_page_says(tmp_path, monkeypatch, capsys):
    from tests.methods.infinigram.test_reading import coder

    monkeypatch.chdir(tmp_path)
    (session,) = blocks("console", PAGES["infinigram.md"])
    steps = [step.split("\n", 1) for step in re.split(r"^\$ ", session, flags=re.M)[1:]]
    files = {command.removeprefix("cat "): shown for command, shown in steps if command.startswith("cat ")}
    for name, content in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    coder("bytes", " ".join(files.values()) * 3).save_pretrained("tokenizer")
    for command, shown in steps[len(files) :]:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command)[1:])
        assert not ended.value.code and capsys.readouterr().out == shown


def test_the_recipe_of_the_guide_expands_at_every_scale():
    text = "".join(blocks("yaml"))  # the recipe, then the file of its claims
    loaded = recipe.parse(f"{HEAD}task: {{name: qa-latency}}\n{text}", "toy.yaml")
    assert [len(expansion.expand(loaded, scale, Registry())) for scale in ("mini", "small", "paper")] == [5, 5, 9]


def test_the_entry_point_of_the_guide_is_the_one_that_is_read():
    (text,) = blocks("toml")
    assert list(tomllib.loads(text)["project"]["entry-points"]) == [PLUGINS]


def test_the_guide_lists_the_words_of_needs():
    assert re.findall(r"^  \| `([\w-]+)` \|", GUIDE, re.M) == sorted(NEEDS)


def commands() -> list[str]:
    """Arguments of all `./reproduce.sh`, `harness reproduce` and `harness run` on the pages, in lines and in blocks."""
    found = set()
    for text in PAGES.values():
        parts = re.split(r"^```.*\n", text, flags=re.M)  # prose, block, prose, ...
        lines = [line for block in parts[1::2] for line in block.splitlines()]
        inline = [" ".join(code.split()) for prose in parts[::2] for code in re.findall(r"`([^`]+)`", prose)]
        for line in (*lines, *inline):
            called = re.search(r"(?:\./reproduce\.sh|harness reproduce|harness run) ([a-z][^#/]*)", line)
            if called and not called[1].startswith(("test", "path")):
                found.add(called[1].strip())
    return sorted(found)


@pytest.mark.parametrize("arguments", commands())
def test_the_commands_of_the_pages_are_understood(example, capsys, arguments):
    given = shlex.split(arguments)
    if given[0] == "regressions":  # it has no dry run: its options must be those that its help names
        with pytest.raises(SystemExit):
            main(["regressions", "--help"])
        shown = capsys.readouterr().out
        assert all(option in shown for option in given if option.startswith("--"))
        return
    command = "run" if set(given[1:2]) & set(example.names("task")) else "reproduce"
    with pytest.raises(SystemExit) as ended:
        main([command, *given, "--dry-run"])
    assert not ended.value.code, capsys.readouterr().err


TREE = PAGES["structure.md"].split("```")[1].strip().splitlines()


def named_paths() -> list[str]:
    """The paths of the annotated tree."""
    paths: list[str] = []
    above: list[str] = []
    for line in TREE:
        name = line.split()[0].rstrip("/")
        above = [*above[: (len(line) - len(line.lstrip())) // 2], name]
        paths.append("/".join(above))
    return paths


def links() -> list[tuple[str, Path]]:
    """(page, file) of each link to a file of this repository."""
    found = []
    for name, text in PAGES.items():
        folder = ROOT if name == "README.md" else (DOCS / name).parent
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in target and not target.startswith("#"):
                found.append((name, (folder / target.partition("#")[0]).resolve()))
    return found


def test_every_link_leads_to_a_file_and_every_page_is_linked_from_another():
    assert [(page, str(file)) for page, file in links() if not file.exists()] == []
    linked = {
        str(file.relative_to(DOCS)) for page, file in links() if file.is_relative_to(DOCS) and file != DOCS / page
    }
    assert set(PAGES) - linked <= {"README.md"}


def test_every_path_of_the_annotated_tree_exists_and_every_line_says_something():
    assert [path for path in named_paths() if not (ROOT / path).exists()] == []
    assert [line for line in TREE if len(line.split()) < 2] == []


def test_the_annotated_tree_names_every_module_of_the_harness_every_family_and_every_task():
    named = set(named_paths())
    whole = {path for path in named if not any(other.startswith(f"{path}/") for other in named)}  # with what is in it
    modules = [*(ROOT / "harness").rglob("*.py"), *(ROOT / "tasks").glob("*.py"), *(ROOT / "methods").glob("*/")]
    registered = {entry.target.partition(":")[0].replace(".", "/") + ".py" for entry in Registry().entries.values()}
    for path in (module.relative_to(ROOT) for module in modules):
        if "__" in path.name or (path.parts[0] == "tasks" and str(path) not in registered):
            continue
        places = {str(path), *map(str, path.parents), str(path.with_suffix(""))}
        assert str(path) in named or whole & places, f"{path} stands nowhere in docs/structure.md"
