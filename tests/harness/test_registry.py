"""Names are found without importing anything, and a wrong name is answered with the right one."""

import subprocess
import sys

import pytest

from harness.errors import RequestError
from harness.registry import Registry, construct, method, refusal


def test_listing_imports_no_implementation():
    code = (
        "import sys; from harness.registry import Registry; r = Registry(); r.entries;"
        "heavy = [m for m in ('torch', 'numpy', 'methods.knnlm.scorer') if m in sys.modules];"
        "print(heavy, 'knnlm' in r.names('method'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_an_unknown_name_is_answered_with_the_nearest(toys):
    with pytest.raises(RequestError, match="did you mean 'toy-unigram'"):
        toys.resolve("method", "toy-unigrm")


def test_a_plug_in_is_found_and_resolved(toys):
    entry = toys.entry("method", "toy-unigram")
    assert entry.contract == "token-scoring"
    assert entry.needs == ("reference-text",)
    assert toys.resolve("method", "toy-unigram").__name__ == "Unigram"


def test_a_broken_plug_in_is_a_warning(monkeypatch):
    monkeypatch.setenv("HARNESS_PLUGINS", "no_such_package_anywhere")
    with pytest.warns(UserWarning, match="no_such_package_anywhere"):
        assert "lm" in Registry().names("method")


def test_two_objects_cannot_share_a_name(tmp_path, monkeypatch):
    package = tmp_path / "twice"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name in ("a", "b"):
        (package / f"{name}.py").write_text('@method("same", contract="token-scoring")\nclass M: ...\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HARNESS_PLUGINS", "twice")
    with pytest.raises(RequestError, match=r"two objects are called method 'same': twice\.a:M and twice\.b:M"):
        Registry().entries  # noqa: B018


def test_a_decorator_with_a_computed_argument_is_refused_with_its_place(tmp_path, monkeypatch):
    package = tmp_path / "computed"
    package.mkdir()
    (package / "__init__.py").write_text('NAME = "x"\n@method(NAME, contract="token-scoring")\nclass M: ...\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HARNESS_PLUGINS", "computed")
    with pytest.raises(RequestError, match=r"__init__\.py:2: @method takes a name and literal keywords"):
        Registry().entries  # noqa: B018


def test_a_name_declared_at_run_time_counts():
    @method("declared-in-a-test", contract="token-scoring")
    class Declared:
        pass

    assert Registry().resolve("method", "declared-in-a-test") is Declared


def test_pairs_are_refused_with_the_reason(toys):
    unigram, greedy = toys.entry("method", "toy-unigram"), toys.entry("method", "toy-greedy")
    assert refusal(unigram, toys.entry("task", "toy-text")) is None
    assert "sequence-decoding method" in refusal(greedy, toys.entry("task", "toy-text"))
    sequential = toys.entry("method", "toy-sequential")
    assert refusal(sequential, toys.entry("task", "toy-questions")) is None


def test_construct_reaches_arguments_named_after_keywords(toys):
    assert construct(toys.resolve("method", "toy-unigram"), {"lambda": 0.5}).weight == 0.5
