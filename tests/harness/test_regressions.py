"""A planted slowdown and a planted loss are caught; an unchanged tree passes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from harness import regressions
from harness.cli import main
from harness.common.errors import RequestError
from harness.common.sources import ROOT
from harness.contracts.metrics import Metric, described
from harness.measure.store import RowStore
from harness.plan.expansion import single_name
from harness.plan.registry import Registry
from tests.harness.rows import new_row, processes

PAIR = ("iad", "conll-gec")
HASHES = {"key": "k"}  # the rounds of a side repeat one row


@pytest.fixture
def judged(monkeypatch, tmp_path):
    """The comparison of simulated rounds: `judged(speedup=..., exact_match=...)` changes the working tree's rows."""
    rng = np.random.default_rng(0)

    def compare(rounds=9, **changes):
        drawn = {}

        def measure(pair, tree, results):
            """Add a process; both sides draw the same items in the same round."""
            changed = changes if tree == ROOT else {}
            store = RowStore(results / "runs" / single_name(*pair) / "mini" / "rows.jsonl")
            number = drawn[results] = drawn.get(results, -1) + 1
            ratio = changed.get("speedup", 2.0) * rng.lognormal(0, 0.02)
            store.append(new_row(
                scale="mini", row="iad", method="iad", speed_baseline={"method": "greedy", "params": {}}, hashes=HASHES,
                metrics={"exact_match": changed.get("exact_match", 1.0)},
                counters={"iterations": changed.get("iterations", 7)}, params={"method": {}, "task": {}},
                described=described(Metric("exact_match", better="higher"), Metric("iterations", better="lower")),
                processes=processes(ratio, shape=(1, 9), first=number + changed.get("items", 0)),
            ))  # fmt: skip

        monkeypatch.setattr(regressions, "unpack", lambda revision, folder: None)
        monkeypatch.setattr(regressions, "_measure", measure)
        return regressions.run("HEAD", [PAIR], rounds)

    return compare


def test_an_unchanged_tree_passes_and_a_slowdown_is_caught_each_time(judged):
    assert not any((judged().cell_verdict == "worse").any() for _ in range(10))
    assert all((judged(speedup=2.0 / 1.3).cell_verdict == "worse").all() for _ in range(10))


def test_the_rounds_of_a_side_are_compared_as_processes_of_one_row(judged):
    speed = judged(speedup=4.0).set_index("metric").loc["speedup"]
    assert speed.verdict == "better" and speed.change.startswith(("1.9", "2.0")) and "[" in speed.before
    assert judged(speedup=4.0, items=99).set_index("metric").loc["speedup"].verdict == "better"  # of other items


def test_a_lost_answer_and_a_risen_counter_are_named_and_a_gain_is_none_of_them(judged):
    worse = judged(exact_match=0.9, iterations=8)
    assert set(worse[worse.verdict == "worse"].metric) == {"exact_match", "iterations"}
    assert set(judged(iterations=6).verdict) == {"better", "no difference shown"}


def test_a_revisions_files_are_those_that_git_has(tmp_path):
    regressions.unpack("HEAD", tmp_path / "tree")
    given = ["git", "ls-tree", "-r", "-z", "--name-only", "HEAD"]
    listed = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    found = {str(file.relative_to(tmp_path / "tree")) for file in (tmp_path / "tree").rglob("*") if file.is_file()}
    assert found == set(listed) and "harness/cli.py" in found


def test_the_pairs_of_the_file_are_registered_and_unknown_ones_refused():
    found = regressions.pairs([], Registry())
    assert len({Registry().entry("method", method).contract for method, _ in found}) == len(found) == 4
    with pytest.raises(RequestError, match="l2s"):
        regressions.pairs(["l2ss:ptb-next-word"], Registry())


def test_an_interrupt_says_that_nothing_is_kept_and_leaves_nothing(monkeypatch, capsys):
    trees = []

    def interrupted(pair, tree, results):
        trees.append(tree)
        raise KeyboardInterrupt

    monkeypatch.setattr(regressions, "_measure", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["regressions", "--against", "HEAD", "--pair", "exact:lm-output-layer"])
    assert ended.value.code == 130
    assert "keeps nothing" in capsys.readouterr().err
    assert trees[0] != ROOT and not trees[0].exists()


@pytest.mark.parametrize("revision", ["no-such-revision", "--remote=elsewhere", "-l", "HEAD:harness"])
def test_what_is_no_revision_is_refused(tmp_path, revision):
    with pytest.raises(RequestError, match=f"'{revision}' cannot be unpacked: fatal: not a valid object name"):
        regressions.unpack(revision, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_a_folder_that_is_not_the_top_of_a_checkout_has_no_revisions(tmp_path, monkeypatch):
    for folder in (tmp_path, ROOT / "harness"):
        monkeypatch.setattr(regressions, "ROOT", folder)
        with pytest.raises(RequestError, match=f"{folder} is not the top of a git checkout"):
            regressions.unpack("HEAD", tmp_path / "tree")


def test_an_unknown_revision_and_too_few_rounds_are_one_line(capsys):
    for wrong in (["--against", "no-such-revision"], ["--against", "HEAD", "--rounds", "3"]):
        with pytest.raises(SystemExit) as ended:
            main(["regressions", "--pair", "l2s:ptb-next-word", *wrong])
        assert ended.value.code == 2 and len(capsys.readouterr().err.strip().splitlines()) == 1


# what is planted in methods/softmax/screening.py: (text, what replaces it), and what the command says then
A_THIRD_SLOWER = (
    "        # the checks of `checked_query`",
    """        self.calls = getattr(self, "calls", 0) + 1
        if self.calls % 4 == 0:  # the call inside is counted, too: one in three is made twice
            self.topk(context, k)
        # the checks of `checked_query`""",
)
WRONG_CLUSTERS = ("self._packed = pack(layer, self._clusters,", "self._packed = pack(layer, -self._clusters,")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (("", ""), ""),
        (A_THIRD_SLOWER, "speedup"),
        (WRONG_CLUSTERS, "precision_at_"),
    ],
    ids=["unchanged", "slower", "worse"],
)
def test_what_is_planted_in_the_working_tree_is_found_by_the_command(tmp_path, planted, said):
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tree)], check=True)
    module = tree / "methods" / "softmax" / "screening.py"
    text = module.read_text()
    assert planted[0] in text
    module.write_text(text.replace(*planted, 1))
    ended = subprocess.run(
        [sys.executable, "-m", "harness", "regressions", "--against", "HEAD", "--pair", "l2s:ptb-next-word"],
        cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == int(bool(said)), ended.stdout + ended.stderr
    worse = [line for line in ended.stdout.splitlines() if line.endswith("worse")]
    assert any(said in line for line in worse) if said else not worse
