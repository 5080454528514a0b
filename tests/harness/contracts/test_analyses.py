"""Analyses that claim on times obey the rule of cells, through the whole path from recipe to verdict."""

import copy
import json
from dataclasses import asdict, replace
from statistics import median

import pytest

from harness.common import statistics
from harness.measure.drivers import DRIVERS
from harness.plan import expansion, recipe
from harness.show.claims import verdicts
from tests.harness import running
from tests.harness.made import ratio_in as value
from tests.harness.made import stored_of

RECIPE = """
name: toy
title: a toy
paper: none
source: none
task: {{name: toy-questions}}
timing: {{processes: {processes}, pairs: 4}}
scales: {{small: {{}}}}
cells:
  - {{row: waiting, analysis: toy-waiting, params: {params}}}
claims:
  - {{text: gain, source: section 1, of: {{method: toy-waiting}}, is: gain above 1}}
  - {{text: much, source: section 1, of: {{method: toy-waiting}}, is: saved_share at least 0.9}}
  - {{text: some, source: section 1, of: {{method: toy-waiting}}, is: saved_share at least 0.2}}
  - {{text: short, source: section 1, of: {{method: toy-waiting}}, is: second_ms below 50}}
"""


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Whatever else this machine does, its load is not what these tests are about."""
    monkeypatch.setattr("harness.measure.environment.changed", lambda before, after: [])


def parsed(processes, params):
    return recipe.parse(RECIPE.format(processes=processes, params=json.dumps(params)), "toy.yaml")


def outcomes(registry, rows, scale="small", **params):
    """The outcome and the reason of each claim."""
    loaded = parsed(6, params)
    cells = expansion.expand(loaded, scale, registry)
    judged = verdicts(stored_of(loaded, rows, scale=scale, cells=cells)).claims
    return [verdict.outcome for verdict in judged], [verdict.detail for verdict in judged]


def run(registry, folder, processes=6, scale="small", fresh=False, **params):
    """The row of one run."""
    found = expansion.expand(parsed(processes, params), scale, registry)
    return running.run(registry, folder, found, fresh=fresh).rows[0]


def seconds(process, side):
    return sum(sum(pair[f"{side}_ns"]) for pair in process["pairs"]) / 1e9


def totals(row):
    return statistics.ratio_of_totals(
        *([seconds(one, side) for one in row.processes] for side in ("baseline", "method"))
    )


def gain_on_seen_items(process):
    """How much faster the method is when its items come again, beyond what the baseline is."""
    first, again = process["pairs"][-1], process["again"]
    method, baseline = (sum(first[f"{side}_ns"]) / sum(again[f"{side}_ns"]) for side in ("method", "baseline"))
    return method / baseline


def noisy(row):
    """The row with a baseline that is three times as fast when its items come again."""
    processes = copy.deepcopy(row.processes)
    for one in processes:
        one["again"]["baseline_ns"] = [time / 3 for time in one["pairs"][-1]["baseline_ns"]]
    return replace(row, processes=processes)


def test_six_processes_of_four_pairs_support_a_claim(toys, tmp_path):
    row = run(toys, tmp_path)
    assert row.status == "ok", row.error
    assert row.counters == {"built": 1}
    assert row.decision == "faster", row.reason
    assert (row.value("gain"), row.interval_of("gain")) == totals(row)
    saved = [seconds(one, "baseline") - seconds(one, "method") for one in row.processes]
    share = statistics.ratio_of_totals(saved, [one["sums"]["ideal"] for one in row.processes])
    assert (row.value("saved_share"), row.interval_of("saved_share")) == share
    assert row.value("second_ms") == pytest.approx(row.value("latency_s") * 1e3)
    assert row.speedup == pytest.approx(row.value("gain"))  # what the decision is about
    assert row.value("noise_floor") >= 1
    assert median(map(gain_on_seen_items, row.processes)) == pytest.approx(1, abs=0.3)
    assert outcomes(toys, [row])[0] == ["holds", "does not hold", "holds", "holds"]

    drawn = [{item for pair in one["pairs"] for item in pair["items"]} for one in row.processes]
    assert [len(items) for items in drawn] == [20] * 6  # none twice in a process
    assert len(set.union(*drawn)) == row.value("different_items") == 120  # nor in two of them

    near = noisy(row)
    assert near.decision == "no difference shown" and "noise floor" in near.reason
    assert outcomes(toys, [near])[0] == ["no difference shown", "does not hold", "no difference shown", "holds"]
    names = ("gain", "saved_share", "second_ms")
    old = replace(  # measured in one process, with an interval over items
        row, processes=[], metrics={n: row.value(n) for n in names}, intervals={n: row.interval_of(n) for n in names}
    )
    found, reasons = outcomes(toys, [old])
    assert found == ["not settled"] * 4 and all("not timed" in reason for reason in reasons)


@pytest.mark.parametrize(("scale", "decision"), [("mini", "exploratory"), ("small", "no claim")])
def test_one_process_settles_nothing(toys, tmp_path, scale, decision):
    row = run(toys, tmp_path, processes=1, scale=scale)
    assert row.decision == decision and "1 process(es) x 4 pairs are too few" in row.reason
    assert row.value("gain") > 1 and row.interval_of("gain") is None
    found, reasons = outcomes(toys, [row], scale)
    assert found == ["not settled"] * 4 and all(decision in reason for reason in reasons)


@pytest.mark.parametrize(("cheat", "reason"), [("wrong", "timed answers' exact_match"), ("remembers", "remember")])
def test_sides_that_disagree_or_remember_their_items_support_no_claim(toys, tmp_path, cheat, reason):
    row = run(toys, tmp_path, **{cheat: True})
    assert row.decision == "no claim" and reason in row.reason
    assert outcomes(toys, [row], **{cheat: True})[0] == ["not settled"] * 4


def test_a_repeat_times_other_items(toys, tmp_path):
    run(toys, tmp_path, processes=1)
    row = run(toys, tmp_path, processes=1, fresh=True)
    assert len(row.processes) == 2 and row.value("different_items") == 40
    assert row.value("gain") == totals(row)[0]  # of both, printed as one


def test_an_analysis_that_times_nothing_has_no_timing_processes(toys, tmp_path):
    counting = parsed(6, {}).cells[0].model_copy(update={"row": "counting", "analysis": "toy-counting", "params": {}})
    loaded = parsed(6, {}).model_copy(update={"cells": [counting], "claims": []})
    found = expansion.expand(loaded, "small", toys)
    assert [cell.timed for cell in found] == [False]
    row = running.run(toys, tmp_path, found).rows[0]
    assert row.numbers == {"prompts": (12, None)} and not row.processes


def stored(**seconds):
    """A process of two pairs in which the baseline took 3 s, with phases as means of a pass."""
    pairs = [{"count": 2, "baseline_ns": [1e9, 5e8], "method_ns": [1e9]}] * 2
    return {"pairs": pairs, "phases": {"speed_baseline": {"seconds": seconds}}}


def test_the_share_of_retrieval_is_of_the_clock_around_the_baselines_calls():
    ratio = asdict(DRIVERS["retrieval-generation"].ratios["baseline_retrieval_share"])
    assert value(ratio, stored(retrieve=0.6, encode=0.15, generate=0.7)) == pytest.approx(0.5)
    assert value(ratio, stored(retrieve=0.6)) == pytest.approx(0.4)
    assert value(ratio, stored(generate=0.7)) is None
    alone = {"pairs": [{"count": 2, "baseline_ns": None, "method_ns": [1e9]}], "phases": {"method": {"seconds": {}}}}
    assert value(ratio, alone) is None
