"""What follows from a row's samples, what a row's numbers are, and a row as JSON."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from harness.contracts.metrics import Metric, described
from harness.rows import OWN, SCHEMA, Row, metric_among
from tests.harness import rows
from tests.harness.rows import timed_row

# ------------------------------------------------------------ what follows from samples


def test_a_row_has_speedup_interval_decision_and_times_of_its_samples():
    made = timed_row(shape=(6, 4), spread=0.05, noise=1.02, repeat=1.05)
    assert made.speedup == pytest.approx(2.0)
    assert made.interval_of("speedup") == pytest.approx((1.923, 2.080), abs=1e-3)
    assert (made.value("perplexity"), made.interval_of("perplexity")) == (9.0, None)
    assert made.decision == "faster" and "noise floor" in made.reason
    assert made.value("different_items") == made.value("timed_items") == 6 * 4 * 5
    assert made.value("noise_floor") == pytest.approx(1.02)
    remembering = timed_row(shape=(6, 4), spread=0.05, noise=1.02, repeat=1.25)
    assert f"{1.25 / 1.02:.3f} times as fast on items that it has seen" in remembering.reason
    assert made.value("outliers") == 0 and made.shape == (6, 4)


def test_seconds_are_of_a_pass_and_of_an_item_and_a_loop_stands_apart():
    made = rows.with_samples(timed_row(), 3.0, shape=(6, 4), items=10, seconds=2.0, hot=9.0, spread=0.0)
    assert made.value("wall_clock_s") == pytest.approx(2) and made.value("latency_s") == pytest.approx(0.2)
    assert made.value("baseline_wall_clock_s") == pytest.approx(6)
    assert made.value("baseline_latency_s") == pytest.approx(0.6) and made.value("latency_std_s") == pytest.approx(0)
    assert made.value("hot_loop_speedup") == pytest.approx(9)
    assert made.interval_of("hot_loop_speedup") == pytest.approx((9, 9))


def test_objections_and_the_scale_decide_as_well():
    assert timed_row(objections=["fidelity"]).decision == "no claim"
    assert timed_row(shape=(1, 2), scale="mini").decision == "exploratory"
    assert timed_row(shape=(1, 2)).decision == "no claim"


def test_a_side_alone_has_times_and_neither_speedup_nor_decision():
    made = timed_row(single=True, shape=(2, 2))
    assert made.speedup is None and made.interval_of("speedup") is None and made.decision is None
    assert made.value("wall_clock_s") == pytest.approx(1) and made.value("baseline_wall_clock_s") is None


def test_an_untimed_row_has_no_decision_and_says_why():
    made = rows.new_row(metrics={"perplexity": 9.0})
    assert (made.summary, made.decision, made.reason, made.shape) == (None, None, "not timed", (0, 0))
    assert made.numbers == {"perplexity": (9.0, None)}


def test_too_few_processes_give_no_interval():
    made = timed_row(shape=(5, 4), hot=3.0)
    assert made.speedup == pytest.approx(2.0) and made.value("hot_loop_speedup") == pytest.approx(3.0)
    assert made.interval_of("speedup") is None and made.interval_of("hot_loop_speedup") is None


def test_the_speedup_of_a_timed_analysis_is_what_its_decision_is_about():
    made = replace(timed_row(), speed_baseline=None)
    assert made.speedup == pytest.approx(2.0) and made.decision == "faster"
    assert replace(made, metrics={"speedup": 9.0}, processes=[]).speedup == 9.0  # untimed, it counts as it likes


def test_a_speedup_over_a_baseline_follows_from_samples_or_is_none():
    stated = {"metrics": {"speedup": 9.0}, "intervals": {"speedup": [8.0, 10.0]}}
    assert replace(timed_row(), **stated).speedup == pytest.approx(2.0)
    assert replace(timed_row(), **stated).interval_of("speedup") == pytest.approx((1.98, 2.02), rel=0.01)
    for alone in (replace(timed_row(), **stated, processes=[]), replace(timed_row(single=True), **stated)):
        assert alone.speedup is None and alone.interval_of("speedup") is None


def test_memory_is_that_of_the_last_process_that_measured_it():
    made = timed_row(shape=(6, 4))
    made.processes[0]["memory_mib"] = {"method": 10.0, "speed_baseline": 20.0}
    assert (made.value("memory_mib"), made.value("baseline_memory_mib")) == (10.0, 20.0)
    made = timed_row(shape=(6, 4))
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
    made = replace(timed_row(), described=described(Metric("speedup", "gain", kind="quality")))
    assert made.metric("speedup").kind == "speed" and made.metric("speedup").label == "speedup"


def test_no_name_is_owned_twice():
    names = [metric.name for metric in OWN]
    assert len(names) == len(set(names))


# ------------------------------------------------------------ as JSON


def test_a_row_comes_back_from_its_json():
    made = replace(timed_row(hot=2.5), published=("LM", "dev"), examples=({"source": "a"},))
    stored = json.loads(json.dumps(made.as_json()))
    found = Row.of(stored)
    assert stored["schema"] == SCHEMA and found.as_json() == stored
    assert found.numbers == made.numbers and found.decision == made.decision and found.cell == made.cell


def test_nothing_that_follows_is_stored():
    text = json.dumps(timed_row(hot=2.5, objections=["a"]).as_json())
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
        Row.of(timed_row().as_json() | {"processes": [{"pairs": [{"baseline_ns": [1.0], "method_ns": [1.0]}]}]})


def test_what_follows_is_told_to_programs_that_read_no_samples():
    told = timed_row(2.0).following()
    assert told["decision"] == "faster" and told["cell"] == "a"
    value, low, high = told["numbers"]["speedup"]
    assert low < value < high and value == pytest.approx(2.0, rel=0.01)
