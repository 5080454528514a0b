"""Names are found without importing anything, and a wrong name is answered with the right one."""

import importlib
import subprocess
import sys
import sysconfig

import pytest

from harness.common.errors import RequestError
from harness.contracts import TokenScoring
from harness.plan import recipe, registry
from harness.plan.registry import Registry, analysis, construct, method, refusal


def test_listing_imports_no_implementation():
    code = (
        "import sys; from harness.plan.registry import Registry; r = Registry(); r.entries;"
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
    monkeypatch.setenv("HARNESS_PLUGINS", "no_such_package_anywhere, no_such.package")
    with pytest.warns(UserWarning, match=r"no_such_package_anywhere|no_such\.package"):
        assert "lm" in (found := Registry()).names("method")
    assert "knnlm-wikitext" in recipe.files(found)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package of these modules where Python finds it."""

    def write(name, **modules):
        (tmp_path / name).mkdir()
        for module, text in {"__init__": "", **modules}.items():
            (tmp_path / name / f"{module}.py").write_text(text)
        return name

    monkeypatch.syspath_prepend(str(tmp_path))
    return write


IMPORT = "from harness.plan.registry import method\n"
METHOD = IMPORT + '@method("{}", contract="token-scoring")\nclass M: ...\n'
FAULTS = [
    ({"a": METHOD.format("same"), "b": METHOD.format("same")}, r"two objects are called method 'same': \w+\.a:M and"),
    ({"a": METHOD.format("lm")}, r"two objects are called method 'lm': methods\.\S+ and \w+\.a:M; rename one"),
    ({"a": IMPORT + 'NAME = "x"\n@method(NAME)\nclass M: ...\n'}, r"a\.py:3: @method takes a name and literal"),
    ({"a": IMPORT + "@method(3)\nclass M: ...\n"}, r"a\.py:2: @method takes .*: 3 is not a name"),
    ({"a": METHOD.format("x") + "def broken(:\n"}, r"a\.py:4: invalid syntax"),
    (
        {"a": IMPORT + '@method("x", contract="token-scoring", needs=("reference text",))\nclass M: ...\n'},
        r"a\.py:2: unknown word 'reference text' in `needs` of method x: did you mean 'reference-text'\?",
    ),
    (
        {"a": IMPORT + '@method("x", contract="token-scoring", needs=("causal"))\nclass M: ...\n'},
        r"a\.py:2: .*needs is a tuple: \('causal',\)",
    ),
    (
        {"a": IMPORT + '@method("x", contract="token-scorng")\nclass M: ...\n'},
        r"a\.py:2: unknown contract 'token-scorng' in method x: did you mean 'token-scoring'\?",
    ),
    ({"a": IMPORT + "@method\nclass M: ...\n"}, r"a\.py:2: @method takes .*: its first argument is missing"),
    ({"a": IMPORT + '@method(name="x")\nclass M: ...\n'}, r"a\.py:2: @method takes .*: its first argument is missing"),
]


@pytest.mark.parametrize(
    ("modules", "fault"),
    FAULTS,
    ids=["twice", "taken", "computed", "number", "syntax", "word", "string", "contract", "bare", "keyword"],
)
def test_a_plug_in_with_a_fault_is_left_out_with_a_warning(package, monkeypatch, modules, fault):
    faulty = package("faulty", good=METHOD.format("of-the-faulty"), **modules)
    sound = package("sound", good=METHOD.format("of-the-sound"))
    monkeypatch.setenv("HARNESS_PLUGINS", f"{faulty},{sound}")
    with pytest.warns(UserWarning, match=f"'faulty' ignored: .*{fault}"):
        names = Registry().names("method")
    assert {"lm", "of-the-sound"} <= set(names)
    assert not {"of-the-faulty", "same", "x"} & set(names)


@pytest.mark.parametrize(("modules", "fault"), FAULTS[:5:2], ids=["twice", "computed", "syntax"])
def test_a_fault_of_the_harness_s_own_packages_is_an_error(package, monkeypatch, modules, fault):
    monkeypatch.setattr(registry, "PACKAGES", (package("builtin", **modules),))
    with pytest.raises(RequestError, match=fault):
        Registry().entries  # noqa: B018


@pytest.mark.parametrize("head", ["", "try:\n    import nowhere\nexcept ImportError:\n"], ids=["plain", "in-a-try"])
def test_a_decorator_is_found_under_its_own_name(package, monkeypatch, head):
    text = 'from harness.plan.registry import method\n@method("mine", contract="token-scoring")\nclass M: ...\n'
    text = "".join("    " * bool(head) + line for line in text.splitlines(keepends=True))
    monkeypatch.setenv("HARNESS_PLUGINS", package("named", a=head + text))
    assert Registry().entries["method", "mine"].target == "named.a:M"


def test_a_decorator_under_another_name_counts_once_its_module_is_imported(package, monkeypatch):
    monkeypatch.setattr(registry, "_declared_at_run_time", {})
    text = 'from harness.plan import registry\n@registry.method("other", contract="token-scoring")\nclass M: ...\n'
    monkeypatch.setenv("HARNESS_PLUGINS", package("renamed", a=text))
    assert "other" not in Registry().names("method")
    importlib.import_module("renamed.a")
    assert "other" in Registry().names("method")


def test_a_decorator_of_another_library_is_left_alone(package, monkeypatch):
    text = 'from another import method  # of no registry\n@method("theirs", contract="token-scoring")\nclass M: ...\n'
    monkeypatch.setenv("HARNESS_PLUGINS", package("other", a=text))
    assert "theirs" not in Registry().names("method")


def test_a_plug_in_that_is_no_package_or_not_there_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "alone.py").write_text(METHOD.format("x"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, hint in (("alone", r"'alone' is a single file: put .*alone\.py into a folder"), ("absent", "PYTHONPATH")):
        monkeypatch.setenv("HARNESS_PLUGINS", name)
        with pytest.warns(UserWarning, match=hint):
            Registry().entries  # noqa: B018


@pytest.mark.parametrize("fault", ["undefined_name", "import nowhere_at_all", "def broken(:"])
def test_a_module_that_cannot_be_imported_is_named_with_the_line(package, monkeypatch, fault):
    monkeypatch.setattr(registry, "_declared_at_run_time", {})
    name = package("unsound", a="import unsound.b\n" + METHOD.format("unsound"), b=f"\n{fault}\n")
    monkeypatch.setenv("HARNESS_PLUGINS", name)
    with pytest.raises(RequestError, match=r"method 'unsound' cannot be imported from unsound\.a: .*b\.py:2"):
        Registry().resolve("method", "unsound")


def test_a_name_declared_at_run_time_counts():
    @method("declared-in-a-test", contract="token-scoring")
    class Declared(TokenScoring):
        def score(self, model, streams, phases, shared=None): ...

    assert Registry().resolve("method", "declared-in-a-test") is Declared


def test_what_is_not_as_its_decorator_says_is_refused(monkeypatch):
    monkeypatch.setattr(registry, "_declared_at_run_time", {})

    @method("of-another-contract", contract="softmax-screening")
    class Other(TokenScoring):
        pass

    @method("incomplete", contract="token-scoring")
    class Incomplete(TokenScoring):
        pass

    @analysis("not-callable")
    class NotCallable:
        pass

    with pytest.raises(RequestError, match="declared as softmax-screening but its base class is token-scoring"):
        Registry().resolve("method", "of-another-contract")
    with pytest.raises(RequestError, match=r"Incomplete must define score, as its base class says"):
        Registry().resolve("method", "incomplete")
    with pytest.raises(RequestError, match=r"'not-callable' cannot be called: give .*NotCallable a method `__call__`"):
        Registry().resolve("analysis", "not-callable")


def test_pairs_are_refused_with_the_reason(toys):
    unigram, greedy = toys.entry("method", "toy-unigram"), toys.entry("method", "toy-greedy")
    assert refusal(unigram, toys.entry("task", "toy-text")) is None
    assert "sequence-decoding method" in refusal(greedy, toys.entry("task", "toy-text"))
    sequential = toys.entry("method", "toy-sequential")
    assert refusal(sequential, toys.entry("task", "toy-questions")) is None


def test_construct_reaches_fields_named_after_keywords(toys):
    assert construct(toys.resolve("method", "toy-unigram"), {"lambda": 0.5}).lambda_ == 0.5


def test_a_constructor_that_fails_is_named_with_its_line(monkeypatch):
    monkeypatch.setattr(registry, "_declared_at_run_time", {})

    @analysis("faulty")
    class Faulty:
        k: int = 1

        def __post_init__(self):
            raise ValueError("k is odd")

    with pytest.raises(RequestError, match=r"Faulty cannot be made with {'k': 3}: ValueError: k is odd \(.*\.py:\d+\)"):
        construct(Faulty, {"k": 3})


def test_an_analysis_is_a_function_or_a_class_with_its_parameters(monkeypatch):
    monkeypatch.setattr(registry, "_declared_at_run_time", {})

    def scaled(setting, artifacts, progress, *, lambda_=1):
        return lambda_ * setting

    class Scaled:
        lambda_: int = 1

        def __call__(self, setting, artifacts, progress):
            return self.lambda_ * setting

    class Heir(Scaled):
        pass

    for name, declared in {"scaled": scaled, "scaled-class": Scaled, "scaled-heir": Heir}.items():
        analysis(name)(declared)
        assert construct(Registry().resolve("analysis", name), {"lambda": 3})(7, None, None) == 21


def test_two_recipes_cannot_share_a_name(package, tmp_path, monkeypatch):
    (tmp_path / package("more") / "recipes").mkdir()
    file = tmp_path / "more" / "recipes" / "knnlm-wikitext.yaml"
    file.write_text("name: knnlm-wikitext")
    monkeypatch.setenv("HARNESS_PLUGINS", "more")
    with pytest.raises(
        RequestError, match=r"two recipes are called 'knnlm-wikitext': .*harness/plan/recipes.* and .*more"
    ):
        recipe.files(Registry())


def test_the_line_of_an_error_is_that_of_an_installed_plug_in(package, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_declared_at_run_time", {})
    paths = sysconfig.get_paths() | {"purelib": str(tmp_path)}
    monkeypatch.setattr("sysconfig.get_paths", lambda: paths)
    text = "import json\n" + METHOD.format("installed") + 'json.loads("[")\n'
    monkeypatch.setenv("HARNESS_PLUGINS", package("installed", a=text))
    with pytest.raises(RequestError, match=r"method 'installed' cannot be imported from installed\.a: .*/a\.py:5\)"):
        Registry().resolve("method", "installed")
