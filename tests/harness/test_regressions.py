"""A planted slowdown and a planted loss are caught; an unchanged tree passes."""

from __future__ import annotations

import json
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
from harness.contracts.rows import new_row
from harness.plan.registry import Registry

PAIR = regressions.Pair("iad", "conll-gec")


def rounds(rng, times=1.0, count=9, items=(0,), **metrics):
    """Rows of one side of each round: a method whose passes take about `times`, drifting with the machine."""

    def one(cell, seconds):
        passes = [{"items": list(items), "method_ns": [1e9 * seconds * rng.lognormal(0, 0.02)], "baseline_ns": None}]
        return new_row(
            recipe="r", row=cell, scale="mini", metrics={"exact_match": 1.0, **metrics},
            counters={"iterations": metrics.get("iterations", 7)}, timing={"processes": [{"pairs": passes}]},
            described=described(Metric("exact_match", better="higher"), Metric("iterations", better="lower")),
        )  # fmt: skip

    return [[one("greedy", 1.0), one("iad", times)] for _ in range(count)]


def failed(judged, threshold=1.1):
    return bool(judged.slower(threshold) or judged.worse or judged.unknown)


def test_an_unchanged_tree_passes_in_two_hundred_of_two_hundred_and_a_slowdown_is_caught_each_time():
    rng = np.random.default_rng(0)
    assert not any(failed(regressions.judge(PAIR, rounds(rng), rounds(rng))) for _ in range(200))
    slowed = [regressions.judge(PAIR, rounds(rng), rounds(rng, 1.3)) for _ in range(200)]
    assert all(one.slower(1.1) == ["iad"] for one in slowed)


def test_a_lost_answer_and_a_risen_counter_are_named_and_a_gain_is_none_of_them():
    rng = np.random.default_rng(0)
    worse = regressions.judge(PAIR, rounds(rng), rounds(rng, exact_match=0.9, iterations=8))
    assert {change.metric for change in worse.worse} == {"exact_match", "iterations"}
    told = "\n".join(regressions.lines([worse], 1.1))
    assert "WORSE   iad on conll-gec: exact_match 1 before, 0.9 now" in told and "ok " in told
    better = regressions.judge(PAIR, rounds(rng, exact_match=0.9, iterations=8), rounds(rng, 0.5))
    assert not failed(better)
    (plain,) = json.loads(regressions.as_json([worse], 1.1))
    assert plain["worse"]["iterations"] == [7, 8] and plain["slower"] == []


def test_what_cannot_be_compared_is_said_and_is_no_pass():
    rng = np.random.default_rng(0)
    other = regressions.judge(PAIR, rounds(rng), rounds(rng, items=(1,)))
    assert other.unknown == ["greedy: other items were timed", "iad: other items were timed"] and failed(other)
    assert "UNKNOWN iad on conll-gec, iad: other items were timed" in list(regressions.lines([other], 1.1))
    alone = regressions.judge(PAIR, rounds(rng), [one[:1] for one in rounds(rng)])
    assert alone.unknown == ["iad: one side lacks it"] and "greedy" in alone.slowdown


def test_a_revision_is_checked_out_and_removed_whatever_happens(tmp_path):
    with pytest.raises(KeyboardInterrupt), regressions.checkout("HEAD", tmp_path / "tree") as tree:
        assert (tree / "harness" / "cli.py").exists()
        raise KeyboardInterrupt
    assert not (tmp_path / "tree").exists()
    listed = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in listed


def test_the_pairs_of_the_file_are_registered_and_unknown_ones_refused():
    found = regressions.pairs([], Registry())
    assert len({Registry().entry("method", pair.method).contract for pair in found}) == len(found) == 4
    with pytest.raises(RequestError, match="l2s"):
        regressions.pairs(["l2ss:ptb-next-word"], Registry())


def test_an_interrupt_says_that_nothing_is_kept(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    def worktrees():
        return subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    before = worktrees()
    monkeypatch.setattr(regressions, "_measure", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["regressions", "--against", "HEAD", "--pair", "exact:lm-output-layer"])
    assert ended.value.code == 130
    assert "keeps nothing" in capsys.readouterr().err
    assert worktrees() == before


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
        (A_THIRD_SLOWER, "SLOWER  l2s on ptb-next-word, l2s"),
        (WRONG_CLUSTERS, "WORSE   l2s on ptb-next"),
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
    assert said in ended.stdout and ("SLOWER" in ended.stdout or "WORSE" in ended.stdout) == bool(said)
