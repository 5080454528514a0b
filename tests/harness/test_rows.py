"""What a row states of its samples follows from them, and nothing else does."""

import copy

import pytest

from harness.contracts.rows import new_row
from harness.measure.evidence import altered, pooled, shape, state
from harness.show.report.selection import repeats
from tests.harness.rows import timing, with_samples

BASELINE = {"method": "lm", "params": {}}


def row(speedup=2.0, scale="small", counters=None, key="k", seconds=1.0, **details):
    made = new_row(
        recipe="r", row="a", scale=scale, method="m", task="t", speed_baseline=BASELINE, seconds=seconds,
        counters=counters or {}, hashes={"key": key} if key else {}, metrics={"perplexity": 9.0},
    )  # fmt: skip
    return with_samples(made, speedup, **details)


def test_a_row_states_speedup_interval_decision_and_times_of_its_samples():
    made = row(shape=(6, 4), spread=0.05, seconds=2.0)
    assert made["metrics"]["speedup"] == pytest.approx(2.0)
    assert made["intervals"]["speedup"] == pytest.approx([1.9, 2.1])
    assert (made["metrics"]["perplexity"], made["intervals"].get("perplexity")) == (9.0, None)
    assert made["timing"]["decision"] == "faster" and "noise floor" in made["timing"]["reason"]
    assert made["timing"]["items"] == made["timing"]["timed_items"] == 6 * 4 * 5
    assert shape(made) == (6, 4) and altered(made) == []


def test_seconds_are_of_a_pass_and_of_an_item_and_a_loop_stands_apart():
    made = with_samples(row(), 3.0, shape=(6, 4), items=10, seconds=2.0, hot=9.0, spread=0.0)
    assert made["metrics"]["wall_clock_s"] == pytest.approx(2) and made["metrics"]["latency_s"] == pytest.approx(0.2)
    assert made["metrics"]["baseline_wall_clock_s"] == pytest.approx(6)
    assert made["metrics"]["hot_loop_speedup"] == pytest.approx(9)
    assert made["intervals"]["hot_loop_speedup"] == pytest.approx([9, 9])


def test_objections_and_the_scale_decide_as_well():
    assert row(objections=["fidelity"])["timing"]["decision"] == "no claim"
    assert row(shape=(1, 2), scale="mini")["timing"]["decision"] == "exploratory"
    assert row(shape=(1, 2))["timing"]["decision"] == "no claim"


def test_a_side_alone_states_times_and_neither_speedup_nor_decision():
    made = row(single=True, shape=(2, 2))
    assert "speedup" not in made["metrics"] and made["intervals"] == {} and made["timing"]["decision"] is None
    assert made["metrics"]["wall_clock_s"] == pytest.approx(1) and altered(made) == []


def test_what_no_longer_follows_is_no_longer_stated():
    made = row(hot=3.0)
    made["timing"] = timing(2.0, shape=(5, 4))  # too few processes for an interval
    assert {"interval of speedup", "hot_loop_speedup"} <= set(altered(made))
    state(made)
    assert made["intervals"] == {} and "hot_loop_speedup" not in made["metrics"]
    assert altered(made) == []


STATED = {
    "metrics": ("speedup", "hot_loop_speedup", "wall_clock_s", "latency_s", "latency_std_s",
                "baseline_wall_clock_s", "baseline_latency_s"),
    "timing": ("noise_floor", "repeat", "items", "timed_items", "outliers", "decision"),  # not the words of `reason`
    "intervals": ("speedup", "hot_loop_speedup"),
}  # fmt: skip


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, names in STATED.items() for name in names])
def test_every_stated_name_is_checked(group, name):
    made = row(hot=3.0)
    assert altered(made) == []
    edited = copy.deepcopy(made)
    value = edited[group][name]
    edited[group][name] = value + "!" if isinstance(value, str) else (
        [value[0], value[1] + 0.01] if isinstance(value, list) else value + 0.01
    )  # fmt: skip
    assert altered(edited) == [f"interval of {name}" if group == "intervals" else name]
    del edited[group][name]
    assert altered(edited) == [f"interval of {name}" if group == "intervals" else name]


@pytest.mark.parametrize("sample", ["baseline_ns", "method_ns", "items"])
def test_an_edited_sample_shows(sample):
    made = row()
    made["timing"]["processes"][0]["pairs"][0][sample] = [1, 1, 1, 1, 1]
    assert altered(made)


def test_a_speedup_and_an_interval_that_no_sample_gives_are_found():
    made = row(single=True)
    made["metrics"]["speedup"] = 5.0
    made["intervals"]["speedup"] = [4.0, 6.0]
    assert altered(made) == ["speedup", "interval of speedup"]


def test_without_samples_only_a_speedup_over_a_baseline_is_refused():
    made = row()
    made["timing"] = None
    assert altered(made) == ["speedup"]
    made["speed_baseline"] = None
    assert altered(made) == []


def test_two_repeats_give_one_row_with_all_processes():
    first, second = row(2.0, seconds=1.0, objections=["the environment changed"]), row(3.0, seconds=1.0, first=10)
    first["timing"]["disturbed"], second["timing"]["disturbed"] = "other processes took 0.3", ""
    both = pooled([first, second])
    assert both["metrics"]["speedup"] == pytest.approx(2.5, rel=0.01)
    assert both["intervals"]["speedup"][0] < 2.05 < 2.95 < both["intervals"]["speedup"][1]
    assert [process["process"] for process in both["timing"]["processes"]] == list(range(20))
    assert both["timing"]["repeats"] == 2 and both["timing"]["items"] == 20 * 3 * 5
    assert both["timing"]["disturbed"] == "other processes took 0.3"
    assert altered(both) == []
    assert len(first["timing"]["processes"]) == len(second["timing"]["processes"]) == 10  # what is pooled stays


def test_objections_of_any_repeat_stay_once_each():
    rows = [row(objections=reasons, first=10 * n) for n, reasons in enumerate((["a"], [], ["b", "a"]))]
    both = pooled(rows)
    assert both["timing"]["objections"] == ["a", "b"] and both["timing"]["decision"] == "no claim"


def test_the_order_of_repeats_does_not_matter_for_speedup_and_interval():
    rows = [row(speedup, first=10 * n, spread=0.2) for n, speedup in enumerate((2.0, 3.0, 2.2))]
    forwards, backwards = pooled(rows), pooled(rows[::-1])
    assert forwards["metrics"]["speedup"] == backwards["metrics"]["speedup"]
    assert forwards["intervals"] == backwards["intervals"]
    assert forwards["timing"]["decision"] == backwards["timing"]["decision"] == "faster"


def test_a_single_row_is_itself():
    alone = row()
    before = copy.deepcopy(alone)
    assert pooled([alone]) is alone and alone == before
    untimed = new_row(recipe="r", row="a", scale="small", method="m", task="t")
    assert pooled([untimed, untimed]) is untimed


def test_a_copy_of_a_row_is_no_repeat():
    kept = row()
    assert pooled([copy.deepcopy(kept), kept]) is kept


def test_rows_of_one_key_that_ended_well_are_repeats():
    rows = [row(key="old"), row(), row(), row()]
    rows[1]["status"] = "failed"
    assert repeats(rows) == rows[2:]
    rows[3]["status"] = "failed"
    assert repeats(rows) == rows[3:]


def test_rows_without_a_key_are_never_repeats():
    rows = [row(key=None), row(key=None, first=10)]
    assert repeats(rows) == rows[1:]
    assert pooled(repeats(rows))["timing"] == rows[1]["timing"]
