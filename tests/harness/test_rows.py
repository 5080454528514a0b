"""What follows from a row's samples, which rows repeat one another, what a row's numbers are, and a row as JSON."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from harness.contracts.metrics import Metric, described
from harness.rows import OWN, SCHEMA, Row, by_cell, metric_among, newest, repeats, with_times_of_baselines
from tests.harness import rows

BASELINE = {"method": "lm", "params": {}}


def row(speedup=2.0, scale="small", key="k", objections=(), **details):
    made = rows.new_row(
        scale=scale, speed_baseline=BASELINE, metrics={"perplexity": 9.0}, hashes={"key": key} if key else {}
    )
    return rows.with_samples(made, speedup, objections, **details)


# ------------------------------------------------------------ what follows from samples


def test_a_row_has_speedup_interval_decision_and_times_of_its_samples():
    made = row(shape=(6, 4), spread=0.05, noise=1.02, repeat=1.05)
    assert made.speedup == pytest.approx(2.0)
    assert made.interval_of("speedup") == pytest.approx((1.923, 2.080), abs=1e-3)
    assert (made.value("perplexity"), made.interval_of("perplexity")) == (9.0, None)
    assert made.decision == "faster" and "noise floor" in made.reason
    assert made.value("different_items") == made.value("timed_items") == 6 * 4 * 5
    assert made.value("noise_floor") == pytest.approx(1.02)
    remembering = row(shape=(6, 4), spread=0.05, noise=1.02, repeat=1.25)
    assert f"{1.25 / 1.02:.3f} times as fast on items that it has seen" in remembering.reason
    assert made.value("outliers") == 0 and made.shape == (6, 4)


def test_seconds_are_of_a_pass_and_of_an_item_and_a_loop_stands_apart():
    made = rows.with_samples(row(), 3.0, shape=(6, 4), items=10, seconds=2.0, hot=9.0, spread=0.0)
    assert made.value("wall_clock_s") == pytest.approx(2) and made.value("latency_s") == pytest.approx(0.2)
    assert made.value("baseline_wall_clock_s") == pytest.approx(6)
    assert made.value("baseline_latency_s") == pytest.approx(0.6) and made.value("latency_std_s") == pytest.approx(0)
    assert made.value("hot_loop_speedup") == pytest.approx(9)
    assert made.interval_of("hot_loop_speedup") == pytest.approx((9, 9))


def test_objections_and_the_scale_decide_as_well():
    assert row(objections=["fidelity"]).decision == "no claim"
    assert row(shape=(1, 2), scale="mini").decision == "exploratory"
    assert row(shape=(1, 2)).decision == "no claim"


def test_a_side_alone_has_times_and_neither_speedup_nor_decision():
    made = row(single=True, shape=(2, 2))
    assert made.speedup is None and made.interval_of("speedup") is None and made.decision is None
    assert made.value("wall_clock_s") == pytest.approx(1) and made.value("baseline_wall_clock_s") is None


def test_an_untimed_row_has_no_decision_and_says_why():
    made = rows.new_row(metrics={"perplexity": 9.0})
    assert (made.summary, made.decision, made.reason, made.shape) == (None, None, "not timed", (0, 0))
    assert made.numbers == {"perplexity": (9.0, None)}


def test_too_few_processes_give_no_interval():
    made = row(shape=(5, 4), hot=3.0)
    assert made.speedup == pytest.approx(2.0) and made.value("hot_loop_speedup") == pytest.approx(3.0)
    assert made.interval_of("speedup") is None and made.interval_of("hot_loop_speedup") is None


def test_the_speedup_of_a_timed_analysis_is_what_its_decision_is_about():
    made = replace(row(), speed_baseline=None)
    assert made.speedup == pytest.approx(2.0) and made.decision == "faster"
    assert replace(made, metrics={"speedup": 9.0}, processes=[]).speedup == 9.0  # untimed, it counts as it likes


def test_a_speedup_over_a_baseline_follows_from_samples_or_is_none():
    stated = {"metrics": {"speedup": 9.0}, "intervals": {"speedup": [8.0, 10.0]}}
    assert replace(row(), **stated).speedup == pytest.approx(2.0)
    assert replace(row(), **stated).interval_of("speedup") == pytest.approx((1.98, 2.02), rel=0.01)
    for alone in (replace(row(), **stated, processes=[]), replace(row(single=True), **stated)):
        assert alone.speedup is None and alone.interval_of("speedup") is None


def test_memory_is_that_of_the_last_process_that_measured_it():
    made = row(shape=(6, 4))
    made.processes[0]["memory_mib"] = {"method": 10.0, "speed_baseline": 20.0}
    assert (made.value("memory_mib"), made.value("baseline_memory_mib")) == (10.0, 20.0)
    made = row(shape=(6, 4))
    made.processes[0]["memory_mib"], made.processes[3]["memory_mib"] = {"method": 10.0}, {"method": 30.0}
    assert (made.value("memory_mib"), made.value("baseline_memory_mib")) == (30.0, None)


def test_numbers_that_are_not_finite_are_none_and_a_counter_stands_in():
    made = rows.new_row(
        metrics={"a": float("nan"), "b": None, "c": 1.0}, counters={"b": 2.0, "c": 3.0, "d": float("inf")},
        intervals={"c": [0.5, None]},
    )  # fmt: skip
    assert made.numbers == {"c": (1.0, None), "b": (2.0, None)}
    assert made.value("a") is None and made.value("d") is None and made.value("absent") is None


@pytest.mark.parametrize(
    ("comparison", "value", "faithful"),
    [("at least", 0.98, True), ("above", 0.98, False), ("at most", 0.98, True), ("below", 0.98, False),
     ("at least", None, False), ("at least", float("nan"), False)],
)  # fmt: skip
def test_answers_are_as_close_as_demanded_or_not(comparison, value, faithful):
    demand = {"metric": "exact_match", "is": comparison, "bound": 0.98}
    assert rows.new_row(metrics={"exact_match": value}, fidelity=demand).is_faithful is faithful
    assert rows.new_row(metrics={"exact_match": value}).is_faithful is None


# ------------------------------------------------------------ repeats


def test_an_untimed_baseline_has_the_times_that_its_column_took_of_it():
    ratios = {
        "tokens_per_second": {"of": {"method.tokens": 1}, "per": {"method": 1}},
        "bytes_read": {"of": {"method.bytes_read*items": 1}, "per": {"items": 1}},
    }
    own, elsewhere, failed = (
        rows.new_row(row="LM", method="lm", ratios=ratios, counters={"bytes_read": 5}, **other)
        for other in ({}, {"column": "another"}, {"status": "failed"})
    )
    unlike, alike = answering(row(2.0, spread=0.0), 0.9), answering(row(3.0, spread=0.0), 1.0)
    found = with_times_of_baselines([own, elsewhere, failed, unlike, alike])
    assert found[1:] == [elsewhere, failed, unlike, alike]
    assert found[0].value("latency_s") == pytest.approx(3 / 5)  # passes of 3 s, with five items each
    assert found[0].value("tokens_per_second") == pytest.approx(90 / 9)
    assert found[0].value("bytes_read") == 7  # of the timed items
    assert (found[0].decision, found[0].speedup) == (None, None)
    objected = replace(alike, objections=["the baseline took 2 times as long"])
    assert with_times_of_baselines([own, unlike, objected])[0].value("latency_s") == pytest.approx(2 / 5)
    (of_unlike, _) = with_times_of_baselines([own, unlike])
    assert of_unlike.value("latency_s") == pytest.approx(2 / 5)
    assert of_unlike.value("tokens_per_second") is None  # other outputs may have other lengths
    (of_counted, _) = with_times_of_baselines([own, answering(unlike, 0.9, **{"speed_baseline.tokens": 60})])
    assert of_counted.value("tokens_per_second") == pytest.approx(60 / 6)


def answering(made: Row, equal: float, **sums: float) -> Row:
    """The row with so many timed answers like its baseline's, and 90 tokens a process."""
    sums = {"method.tokens": 90, "speed_baseline.bytes_read": 7, **sums}
    more = {"fidelity": {"exact_match": equal}, "sums": sums}
    return replace(made, processes=[{**process, **more} for process in made.processes])


def test_two_repeats_give_one_row_with_all_processes():
    first = replace(row(2.0, objections=["the environment changed"]), disturbed="other processes took 0.3")
    second = row(3.0, first=10)
    both = newest([first, second])
    assert both.speedup == pytest.approx(2.5, rel=0.01)
    low, high = both.interval_of("speedup")
    assert first.interval_of("speedup")[1] < low < 2.5 < high < second.interval_of("speedup")[0]
    assert [process["process"] for process in both.processes] == list(range(20))
    assert both.value("different_items") == 20 * 3 * 5
    assert both.disturbed == "other processes took 0.3"
    assert len(first.processes) == len(second.processes) == 10  # what is pooled stays


def test_objections_of_any_repeat_stay_once_each():
    both = newest([row(objections=reasons, first=10 * n) for n, reasons in enumerate((["a"], [], ["b", "a"]))])
    assert both.objections == ["a", "b"] and both.decision == "no claim"


def test_the_order_of_repeats_does_not_matter_for_speedup_and_interval():
    made = [row(speedup, first=10 * n, spread=0.2) for n, speedup in enumerate((2.0, 3.0, 2.2))]
    forwards, backwards = newest(made), newest(made[::-1])
    assert forwards.numbers["speedup"] == backwards.numbers["speedup"]
    assert forwards.decision == backwards.decision == "faster"


def test_a_single_row_is_itself():
    alone = row()
    assert newest([alone]) is alone
    untimed = rows.new_row(hashes={"key": "k"})
    assert newest([untimed, untimed]) is untimed


def test_a_copy_of_a_row_is_no_repeat():
    kept = row()
    assert newest([Row.of(kept.as_json()), kept]) is kept


def test_rows_of_one_key_and_state_of_the_code_that_ended_well_are_repeats():
    made = [row(key="old"), row(), row(), row()]
    made[1] = replace(made[1], status="failed")
    assert repeats(made) == made[2:]
    made[2] = replace(made[2], code={"revision": "another"})
    assert repeats(made) == made[3:]
    made[3] = replace(made[3], status="failed")
    assert repeats(made) == made[3:]


def test_rows_without_a_key_are_never_repeats():
    made = [row(key=None), row(key=None, first=10)]
    assert repeats(made) == made[1:]
    assert newest(made) is made[1]


def test_the_newest_row_of_a_cell_counts_and_cells_keep_their_order():
    made = [rows.new_row(row=name, seconds=seconds) for name, seconds in (("a", 1.0), ("b", 2.0), ("a", 3.0))]
    assert [(name, one.seconds) for name, one in by_cell(made).items()] == [("a", 3.0), ("b", 2.0)]
    assert by_cell([row(2.0), row(3.0, first=10)])["a"].speedup == pytest.approx(2.5, rel=0.01)


# ------------------------------------------------------------ what a number is


def test_a_row_says_what_its_metrics_are_and_an_undeclared_one_is_plain():
    made = rows.new_row(
        metrics={"score": 1.0, "waiting": 2.0, "pages_s": 3.0}, counters={"steps": 4.0, "cells_mb": 5.0},
        described=described(Metric("waiting", unit="ms", kind="time"), Metric("cells_mb", kind="memory")),
    )  # fmt: skip
    assert made.metric("waiting") == Metric("waiting", "waiting", "ms", kind="time")
    assert made.metric("cells_mb").kind == "memory"
    for name, kind in (("score", "quality"), ("pages_s", "quality"), ("steps", "counter"), ("absent", "quality")):
        assert made.metric(name) == Metric(name, name.replace("_", " "), kind=kind)
    other = rows.new_row(row="b", metrics={"waiting": 1.0}, described=described(Metric("waiting", "idle")))
    assert metric_among([other, made], "waiting").label == "idle"
    assert metric_among([rows.new_row(row="c"), made], "waiting").unit == "ms"
    assert metric_among([], "latency_s").label == "time per item"
    assert metric_among([other], "tidy_pages") == Metric("tidy_pages", "tidy pages")


def test_what_the_harness_owns_cannot_be_declared_anew():
    """Otherwise a plug-in's speedup could pass for a quality, of which a claim asks for no decision."""
    made = replace(row(), described=described(Metric("speedup", "gain", kind="quality")))
    assert made.metric("speedup").kind == "speed" and made.metric("speedup").label == "speedup"


def test_no_name_is_owned_twice():
    names = [metric.name for metric in OWN]
    assert len(names) == len(set(names))


# ------------------------------------------------------------ as JSON


def test_a_row_comes_back_from_its_json():
    made = replace(row(hot=2.5), published=("LM", "dev"), examples=({"source": "a"},))
    stored = json.loads(json.dumps(made.as_json()))
    found = Row.of(stored)
    assert stored["schema"] == SCHEMA and found.as_json() == stored
    assert found.numbers == made.numbers and found.decision == made.decision and found.cell == made.cell


def test_nothing_that_follows_is_stored():
    text = json.dumps(row(hot=2.5, objections=["a"]).as_json())
    assert not [name for name in ("speedup", "decision", "reason", "noise_floor", "latency_s") if f'"{name}"' in text]


def test_what_json_cannot_say_is_none_and_numpys_numbers_are_numbers():
    made = rows.new_row(metrics={"a": math.inf, "b": np.float32(0.5)}, intervals={"b": (np.float64(0.25), math.nan)})
    stored = made.as_json()
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert stored["metrics"] == {"a": None, "b": 0.5} and stored["intervals"] == {"b": [0.25, None]}


def test_what_is_no_row_is_refused():
    with pytest.raises(TypeError, match="metric"):
        rows.new_row(metric=1)
    with pytest.raises(TypeError, match="recipe"):
        Row.of({"schema": SCHEMA})
    with pytest.raises(KeyError, match="count"):
        Row.of(row().as_json() | {"processes": [{"pairs": [{"baseline_ns": [1.0], "method_ns": [1.0]}]}]})


def test_what_follows_is_told_to_programs_that_read_no_samples():
    told = rows.with_samples(rows.new_row(speed_baseline=BASELINE), 2.0).following()
    assert told["decision"] == "faster" and told["cell"] == "a"
    value, low, high = told["numbers"]["speedup"]
    assert low < value < high and value == pytest.approx(2.0, rel=0.01)
