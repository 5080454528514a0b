"""The digest of what code a result depends on: which modules count, and which of their changes."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from harness.common import sources
from harness.common.cache import Cache, CellArtifacts, SharedResults
from harness.common.errors import RequestError
from harness.contracts import OutputLayer
from harness.measure import environment
from harness.measure.identity import FOLLOWING
from harness.plan import expansion, recipe
from harness.plan.registry import Registry
from methods.softmax.spherical_kmeans import SphericalKMeans
from tests.harness import running

ROOT = sources.ROOT
BORROWED = '''"""What others borrow."""

LIMIT = 3  # items


def search(items):
    """The first items."""
    return items[:LIMIT]
'''


def write(folder, **modules):
    """Modules by dotted name below `folder`; a name that ends in `__init__` is its package's."""
    for name, text in modules.items():
        file = folder.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A plug-in package of this test's own, importable by the name `borrower`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, **{"borrower.__init__": "", "borrower.deep.__init__": "", "borrower.deep.lender": BORROWED})
    yield tmp_path / "borrower"
    for name in [name for name in sys.modules if name.partition(".")[0] == "borrower"]:
        del sys.modules[name]


IMPORTS = {
    "import": "import borrower.deep.lender",
    "of a name": "from borrower.deep.lender import search",
    "of a module from its package": "from borrower.deep import lender",
    "of everything": "from borrower.deep.lender import *",
    "relative": "from .deep import lender",
    "relative, of a name": "from .deep.lender import search as found",
    "inside a function": "def run():\n    from borrower.deep import lender\n    return lender",
    "under a condition": "try:\n    import torch_that_is_not_there\nexcept ImportError:\n    from .deep import lender",
    "where no type checker looks": "import typing\nif not typing.TYPE_CHECKING:\n    from .deep import lender",
    "by a literal": "import importlib\nlender = importlib.import_module('borrower.deep.lender')",
    "by a target": "TARGET = 'borrower.deep.lender:search'",
    "through a package": "from borrower import through",
}


@pytest.mark.parametrize("statement", IMPORTS.values(), ids=IMPORTS)
def test_a_changed_line_in_a_borrowed_module_changes_the_digest(plugin, statement):
    write(plugin, method=statement, **{"through.__init__": "from ..deep.lender import search\n"})
    before = sources.digest("borrower.method:Method")
    write(plugin, **{"deep.lender": BORROWED.replace("LIMIT = 3", "LIMIT = 4")})
    assert sources.digest("borrower.method:Method") != before


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("What others borrow.", "What others take."),
        ("The first items.", "Items."),
        ("  # items", ""),
        ("\n\n\ndef", "\n\n\n\n# a comment\ndef"),
        ("return items[:LIMIT]", "return (\n        items[:LIMIT]\n    )"),
    ],
)
def test_docstrings_comments_and_layout_do_not_count(plugin, written, instead):
    write(plugin, method="from borrower.deep.lender import search")
    before = sources.digest("borrower.method")
    assert written in BORROWED
    write(plugin, **{"deep.lender": BORROWED.replace(written, instead)})
    assert sources.digest("borrower.method") == before


def test_packages_on_the_way_count_and_what_is_not_imported_does_not(plugin):
    checked = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from borrower.deep import types\n"
    write(plugin, method=f"{checked}from borrower.deep.lender import search", other="X = 1", **{"deep.types": "Y = 1"})
    before = sources.digest("borrower.method")
    write(plugin, other="X = 2", **{"deep.types": "Y = 2"})
    assert sources.digest("borrower.method") == before
    write(plugin, **{"deep.__init__": "Z = 1"})
    assert sources.digest("borrower.method") != before


def test_modules_that_import_each_other_are_followed_once(plugin):
    write(plugin, method="from . import other", other="import borrower.method\nimport borrower.deep.lender")
    found = sources.closure("borrower.method")
    assert set(found) == {f"borrower{name}" for name in (".method", ".other", ".deep.lender")}
    assert found["borrower.deep.lender"] == plugin / "deep" / "lender.py"


def test_a_relative_import_counts_from_the_module_s_package(plugin):
    write(
        plugin, **{"deep.__init__": "from . import near", "deep.near": "from .. import far", "far": "x = 1", "near": ""}
    )
    assert set(sources.closure("borrower.deep")) == {"borrower.deep", "borrower.deep.near", "borrower.far"}


def test_a_plug_in_s_digest_covers_what_it_borrows_of_the_built_in_packages(plugin):
    write(plugin, method="from methods.softmax.kernels import dot\nimport numpy, yaml")
    found = sources.closure("borrower.method")
    assert "methods.softmax.kernels" in found
    assert {name.partition(".")[0] for name in found} <= {"borrower", "methods", "harness"}
    assert not [name for name in sources.closure("methods.softmax.exact") if name.startswith("borrower")]


def test_what_has_no_source_or_cannot_be_parsed_is_one_line(plugin):
    with pytest.raises(RequestError, match=r"no source found for borrower\.absent"):
        sources.digest("borrower.absent:Method")
    typed: dict = {"__name__": "typed_in"}
    exec("def build(folder): pass", typed)
    with pytest.raises(RequestError, match="no source found for typed_in: put the code into a file"):
        sources.built_by(typed["build"])
    write(plugin, method="def broken(:")
    with pytest.raises(RequestError, match=r"method\.py:1: invalid syntax.*; fix it"):
        sources.digest("borrower.method")


# ---------------------------------------------------------------- artifacts


def test_an_artifact_is_built_anew_by_other_code_and_not_by_other_comments(plugin, tmp_path):
    text = "from borrower.deep.lender import search\n\ndef build(folder):\n    (folder / 'found').write_text('1')\n"
    write(plugin, builder=text)
    cache = Cache(tmp_path / "cache")

    def built():
        importlib.invalidate_caches()
        module = importlib.reload(importlib.import_module("borrower.builder"))
        return cache.build("index", {"k": 1}, module.build)

    first = built()
    write(plugin, builder=f"# a remark\n{text}", **{"deep.lender": BORROWED.replace("others", "some")})
    assert built() == first
    write(plugin, **{"deep.lender": BORROWED.replace("[:LIMIT]", "[LIMIT:]")})
    second = built()
    write(plugin, builder=text.replace("'1'", "'2'"))
    third = built()
    assert len({first, second, third}) == 3
    assert [(folder / "found").read_text() for folder in (first, second, third)] == ["1", "1", "2"]
    assert json.loads((third / "key.json").read_text())["code"] == sources.digest("borrower.builder")


def test_shared_results_depend_on_the_code_that_computes_them(plugin, tmp_path):
    text = "import numpy as np\n\ndef compute():\n    return {'ids': np.arange(3)}\n"
    shared = SharedResults(Cache(tmp_path / "cache"))
    for number in (3, 4):
        write(plugin, computing=text.replace("3", str(number)))
        importlib.invalidate_caches()
        module = importlib.reload(importlib.import_module("borrower.computing"))
        assert len(shared.arrays("neighbours", {"k": 1}, module.compute)["ids"]) == number


def test_a_builder_may_be_a_method_a_lambda_or_a_partial_of_any_module(plugin):
    write(plugin, builder="class Index:\n    def build(self, folder): ...\n\nfill = lambda folder: None\n")
    module = importlib.import_module("borrower.builder")
    expected = sources.digest("borrower.builder")
    builders = (module.Index, module.Index().build, module.fill, partial(partial(module.fill), folder=None))
    assert {sources.built_by(builder) for builder in builders} == {expected}


def test_what_a_builder_is_handed_to_call_counts(plugin):
    write(
        plugin,
        base="class Base:\n    def fit(self):\n        def build(folder): self.learn()\n        return build\n"
        "    def whole(self, folder): self.learn()\n\n"
        "def through(lines):\n    def build(folder): lines()\n    return build\n",
        heir="from .base import Base, through\nfrom .deep.lender import search\n\n"
        "class Heir(Base):\n    def learn(self): ...\n\n"
        "def handing():\n    def lines(): ...\n    return through(lines)\n",
    )
    base, heir = importlib.import_module("borrower.base"), importlib.import_module("borrower.heir")
    alone = sources.digest("borrower.base")
    assert {sources.built_by(base.Base().fit()), sources.built_by(base.Base().whole)} == {alone}
    handed = [heir.Heir().fit(), heir.Heir().whole, heir.handing()]
    before = [sources.built_by(builder) for builder in handed]
    assert len(set(before)) == 1 and before[0] != alone
    write(plugin, **{"deep.lender": BORROWED.replace("LIMIT = 3", "LIMIT = 4")})
    assert not set(before) & {sources.built_by(builder) for builder in handed}


def test_a_screen_follows_the_code_that_learns_its_clusters(tmp_path):
    rng = np.random.default_rng(0)
    layer = OutputLayer(rng.normal(size=(12, 4)).astype(np.float32), np.zeros(12, np.float32))
    contexts = rng.normal(size=(40, 4)).astype(np.float32)
    artifacts = CellArtifacts(Cache(tmp_path))
    SphericalKMeans(clusters=2, budget=6).fit(layer, contexts, np.zeros(40, np.int64), artifacts)
    found = sources.closure("methods.softmax.spherical_kmeans", leaving=sources.FRAME)
    assert {"methods.softmax.clusters", "methods.softmax.screening"} <= set(found)
    assert "methods.softmax.clusters" not in sources.closure("methods.softmax.screening")
    assert json.loads((artifacts.path("softmax-screen") / "key.json").read_text())["code"] == sources._digest(found)


def test_the_harness_s_frame_is_there_and_does_not_count_for_artifacts(plugin):
    frame = "\n".join(f"import {name}" for name in sorted(sources.FRAME))
    write(plugin, builder=f"{frame}\nimport harness.common.training.loop\n\ndef build(folder): ...\n")
    module = importlib.import_module("borrower.builder")
    assert set(sources.closure("borrower.builder")) >= sources.FRAME
    found = sources.closure("borrower.builder", leaving=sources.FRAME)
    assert set(found) == {"borrower.builder", "harness", "harness.common.training.loop"}
    write(plugin, builder="import harness.common.training.loop\n\ndef build(folder): ...\n")
    assert set(sources.closure("borrower.builder", leaving=sources.FRAME)) == set(found)
    assert sources.built_by(module.build) != sources.digest("borrower.builder")  # a row counts the frame


TRAINED = {
    "tasks.models.lm.training": {
        "harness.common.documents", "harness.common.training.optimizers", "tasks.data.text", "tasks.data.tokens",
        "tasks.models.bpe", "tasks.models.lm.loss",
    },
    "tasks.models.lstm.model": {"tasks.models.folder", "tasks.models.lstm.recurrence"},
    "tasks.models.translator.model": {"tasks.data.sentences", "tasks.models.folder"},
    "tasks.models.seq2seq.training": {
        "harness.common.sequences", "harness.common.training.optimizers", "harness.common.training.pairs",
        "tasks.metrics.spans", "tasks.models.pretrained.checkpoints", "tasks.models.seq2seq.causal",
        "tasks.models.seq2seq.copier",
    },
}  # fmt: skip


@pytest.mark.parametrize("builder", TRAINED)
def test_trained_models_depend_on_their_training_alone(builder):
    """No task, no table of sizes, no reader of data: training a model again takes up to an hour."""
    found = set(sources.closure(builder, leaving=sources.FRAME))
    shared = {"harness", "harness.common.training.loop", "harness.common.training.precision"}
    assert found == shared | {builder} | TRAINED[builder]


# ---------------------------------------------------------------- the project's own packages

ASK = """
import functools, json, sys
from harness.common import sources
row = functools.partial(sources.digest, "harness.measure.worker", leaving=frozenset(sys.argv[1].split()))
print(json.dumps({
    "row": row("methods.ralmspec.passages.methods:RalmSpec", "tasks.qa_latency:QaLatency"),
    "other row": row("methods.softmax.l2s:L2S", "tasks.ptb_next_word:PtbNextWord"),
    **{name: sources._digest(sources.closure(name, leaving=sources.FRAME)) for name in sys.argv[2:]},
    "imported": sorted({"torch", "numpy", "methods", "tasks"} & set(sys.modules)),
}))
"""
INDEXES, DATASTORES = "methods.ralmspec.passages.opening", "methods.knnlm.builder"
MODEL, CONTEXTS = "tasks.models.lstm.model", "tasks.ptb_next_word"
ALL = {"row", "other row", INDEXES, DATASTORES, MODEL, CONTEXTS}


def asked(tree):
    given = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", ASK, " ".join(FOLLOWING), INDEXES, DATASTORES, MODEL, CONTEXTS]
    return json.loads(subprocess.check_output(command, env=given, cwd=tree, text=True))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project's packages, and its digests."""
    folder = tmp_path_factory.mktemp("tree")
    for package in environment.SOURCES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.yaml"))
    return folder, asked(folder)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("methods/nearest/flat.py", {"row", INDEXES}),  # exact search, which families share
        ("methods/nearest/faiss_index.py", {"row", INDEXES}),  # HNSW construction
        ("methods/nearest/vectors.py", {"row", INDEXES, DATASTORES}),
        ("methods/knnlm/datastore.py", {DATASTORES}),
        ("methods/ralmspec/core/scheduler.py", {"row"}),  # how speculation goes builds no index
        ("methods/softmax/screening.py", {"other row"}),
        ("tasks/jfleg_gec.py", set()),
        ("tasks/data/words.py", {"other row", CONTEXTS}),
        ("tasks/models/lstm/recurrence.py", {"other row", MODEL, CONTEXTS}),
        ("harness/common/training/loop.py", {"row", "other row", MODEL, CONTEXTS}),
        ("harness/measure/drivers/driver.py", {"row", "other row"}),
        ("harness/common/cache.py", {"row", "other row"}),
        ("harness/measure/display.py", set()),
        ("harness/show/tables.py", set()),
        ("harness/decision.py", set()),  # what follows from a row is not in it
        ("harness/plan/recipe.py", set()),
        ("harness/plan/schema.py", set()),
    ],
)
def test_a_change_counts_where_its_module_is_borrowed_and_nowhere_else(tree, file, changes):
    folder, before = tree
    path, text = folder / file, (folder / file).read_text()
    try:
        path.write_text(f"{text}\nCHANGED = True\n")
        after = asked(folder)
        assert {name for name in ALL if after[name] != before[name]} == changes
    finally:
        path.write_text(text)


def test_nothing_is_imported_to_find_out(tree):
    assert tree[1]["imported"] == []


RECIPE = """
name: toy
title: a toy
paper: none
source: none
task: {name: toy-text}
timing: {processes: 2, pairs: 2}
cells:
  - {row: unigram, method: toy-unigram, speed_baseline: toy-uniform}
"""


def test_a_row_s_resume_key_follows_its_plug_in_s_code(cache_home, tmp_path, monkeypatch):
    toys = tmp_path / "toys"
    shutil.copytree(Path(__file__).parents[2] / "plugins" / "toys", toys, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HARNESS_PLUGINS", "toys")
    registry = Registry()
    [cell] = expansion.expand(recipe.parse(RECIPE, "toy.yaml"), "mini", registry)
    runner, env = running.runner(registry, tmp_path / "run"), environment.capture("cpu")

    def key():
        return runner.identity.key(cell, {}, env)

    first = key()
    for name in ("methods", "tasks"):
        text = (toys / f"{name}.py").read_text()
        (toys / f"{name}.py").write_text(f"# a remark\n{text}")
        assert key() == first
        (toys / f"{name}.py").write_text(f"{text}\nCHANGED = True\n")
        assert key() != first
        (toys / f"{name}.py").write_text(text)
