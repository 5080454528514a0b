"""Rows of older schemas are read in today's form, with today's estimator, and claim nothing."""

import copy
from pathlib import Path

import pytest

from harness.contracts.rows import SCHEMA, new_row
from harness.measure.store import RowStore, migrate

COMMITTED = sorted((Path(__file__).parents[3] / "results" / "measured").glob("*/*/*.jsonl"))


def test_there_are_committed_rows():
    assert len(COMMITTED) > 10


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: "/".join(file.parts[-3:]))
def test_committed_rows_are_read_and_their_speedups_lie_inside_their_intervals(file):
    rows = RowStore(file).rows()
    assert rows and {row["schema"] for row in rows} == {SCHEMA}
    for row in rows:
        timing = row["timing"]
        if timing is None:
            continue
        assert ("speedup" in row["metrics"]) == (row["speed_baseline"] is not None)
        if row["speed_baseline"] is None:
            compares = any(one.get("equal") is not None for one in timing.get("ratios", {}).values())
            assert (timing["decision"] is not None) == compares  # only a timed analysis that compares two times has one
            continue
        low, high = row["intervals"]["speedup"]
        assert low <= row["metrics"]["speedup"] <= high
        if any("measured before" in reason for reason in timing["objections"]):
            assert timing["decision"] == "no claim" and "measure it again" in timing["reason"]


def old(pairs, noise=((10, 11),), compared=True, **known):
    """A row of schema 2: one time a pass for each side, in nanoseconds."""
    processes = [
        {
            "pairs": [{"order": "AB", "baseline_ns": float(a), "method_ns": float(b)} for a, b in process],
            "noise": [list(map(float, pair)) for pair in noise], "loops": {"baseline": 1, "method": 4}, "items": 7,
            "phases": {"method": {"seconds": {"search": 0.5}}}, "threads": {"torch": 2},
            "memory_mib": {"method": 9.0}, "limit": 2.5,
        }
        for process in pairs
    ]  # fmt: skip
    return new_row(**({
        "schema": 2, "recipe": "r", "row": "a", "scale": "small", "method": "m", "task": "t",
        "metrics": {"speedup": 99.0, "limit": 2.5, "share_of_limit": 40.0, "perplexity": 8.0, "latency_s": 5.0},
        "intervals": {"speedup": [98.0, 100.0], "share_of_limit": [39.0, 41.0], "perplexity": [7.0, 9.0]},
        "timing": {"processes": processes, "decision": "faster", "reason": "above", "noise_floor": 1.0, "outliers": 0,
                   "spread_method": 1.0, "spread_baseline": 1.0, "counters": {"rollbacks": 3.0}},
        "speed_baseline": {"method": "lm", "params": {}} if compared else None,
    } | known))  # fmt: skip


# sums: 60/20, 60/30, 90/30, 60/12, 60/10, 60/60; their median is 3, where that of the ratios of pairs is another
PAIRS = [
    [(20, 10), (40, 10)], [(30, 15), (30, 15)], [(10, 20), (80, 10)],
    [(30, 6), (30, 6)], [(20, 5), (40, 5)], [(50, 20), (10, 40)],
]  # fmt: skip


def test_the_speedup_becomes_the_median_over_processes_of_summed_times():
    new = migrate(old(PAIRS), "f")
    assert new["schema"] == SCHEMA
    assert new["metrics"]["speedup"] == 3.0 and new["intervals"]["speedup"] == [1.0, 6.0]
    assert new["timing"]["noise_floor"] == pytest.approx(1.1)
    assert new["metrics"]["perplexity"] == 8.0 and new["intervals"]["perplexity"] == [7.0, 9.0]
    assert new["metrics"]["latency_s"] == pytest.approx(new["metrics"]["wall_clock_s"] / 7)


@pytest.mark.parametrize("timed", [True, False])
def test_limits_of_the_speedup_are_gone_and_other_numbers_stay(timed):
    row = old(PAIRS, counters={"limit": 6.0, "multiply_adds": 3.0})
    new = migrate(row if timed else {**row, "timing": None}, "f")
    assert not {"limit", "share_of_limit"} & {*new["metrics"], *new["intervals"], *new["counters"]}
    assert new["counters"] == {"multiply_adds": 3.0} and new["metrics"]["perplexity"] == 8.0


def test_a_compared_row_claims_nothing_and_says_why():
    timing = migrate(old(PAIRS), "f")["timing"]
    assert timing["decision"] == "no claim"
    assert "timed the same 7 item(s): measure it again" in timing["reason"]
    assert timing["counters"] == {"rollbacks": 3.0}
    assert timing["items"] == 7 and timing["timed_items"] == 6 * 2 * 7


def test_what_a_process_knew_is_kept_and_what_nothing_checks_is_not():
    process = migrate(old(PAIRS), "f")["timing"]["processes"][0]
    assert process["phases"] == {"method": {"seconds": {"search": 0.5}}}
    assert (process["threads"], process["memory_mib"]) == ({"torch": 2}, {"method": 9.0})
    assert not {"noise", "loops", "limit"} & set(process)


def test_too_few_processes_lose_the_interval_that_was_stated():
    new = migrate(old(PAIRS[:3]), "f")
    assert new["metrics"]["speedup"] == 3.0 and "speedup" not in new["intervals"]


def test_a_baseline_timed_against_itself_has_the_times_of_one_side():
    same = [[(20, 22), (40, 44)]] * 2
    new = migrate(old(same, compared=False, metrics={"perplexity": 8.0}, intervals={}), "f")
    assert new["metrics"]["wall_clock_s"] == pytest.approx(33e-9) and "speedup" not in new["metrics"]
    assert new["timing"]["decision"] is None
    assert new["timing"]["processes"][0]["pairs"][0]["baseline_ns"] is None


def test_items_come_from_the_tasks_parameters_where_processes_do_not_state_them():
    row = old(PAIRS, params={"method": {}, "task": {"timed": 3}})
    for process in row["timing"]["processes"]:
        del process["items"]
    assert migrate(row, "f")["timing"]["items"] == 3


def test_the_old_row_is_not_changed():
    row = old(PAIRS)
    before = copy.deepcopy(row)
    migrate(row, "f")
    assert row == before


def test_a_row_without_samples_is_taken_as_it_is():
    row = new_row(schema=2, recipe="r", row="a", scale="small", method="m", task="t", metrics={"overlap": 0.4})
    assert migrate(row, "f") == {**row, "schema": SCHEMA}
