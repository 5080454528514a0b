"""Which rows repeat one another, and the times of a baseline that its column took."""

from dataclasses import replace

import pytest

from harness.groups import by_cell, newest, repeats, with_times_of_baselines
from harness.rows import Row
from tests.harness import rows
from tests.harness.rows import timed_row


def test_an_untimed_baseline_has_the_times_that_its_column_took_of_it():
    ratios = {
        "tokens_per_second": {"of": {"method.tokens": 1}, "per": {"method": 1}},
        "bytes_read": {"of": {"method.bytes_read*items": 1}, "per": {"items": 1}},
    }
    own, elsewhere, failed = (
        rows.new_row(row="LM", method="lm", ratios=ratios, counters={"bytes_read": 5}, **other)
        for other in ({}, {"column": "another"}, {"status": "failed"})
    )
    unlike, alike = answering(timed_row(2.0, spread=0.0), 0.9), answering(timed_row(3.0, spread=0.0), 1.0)
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
    first = replace(timed_row(2.0, objections=["the environment changed"]), disturbed="other processes took 0.3")
    second = timed_row(3.0, first=10)
    both = newest([first, second])
    assert both.speedup == pytest.approx(2.5, rel=0.01)
    low, high = both.interval_of("speedup")
    assert first.interval_of("speedup")[1] < low < 2.5 < high < second.interval_of("speedup")[0]
    assert [process["process"] for process in both.processes] == list(range(20))
    assert both.value("different_items") == 20 * 3 * 5
    assert both.disturbed == "other processes took 0.3"
    assert len(first.processes) == len(second.processes) == 10  # what is pooled stays


def test_objections_of_any_repeat_stay_once_each():
    both = newest([timed_row(objections=reasons, first=10 * n) for n, reasons in enumerate((["a"], [], ["b", "a"]))])
    assert both.objections == ["a", "b"] and both.decision == "no claim"


def test_the_order_of_repeats_does_not_matter_for_speedup_and_interval():
    made = [timed_row(speedup, first=10 * n, spread=0.2) for n, speedup in enumerate((2.0, 3.0, 2.2))]
    forwards, backwards = newest(made), newest(made[::-1])
    assert forwards.numbers["speedup"] == backwards.numbers["speedup"]
    assert forwards.decision == backwards.decision == "faster"


def test_a_single_row_is_itself():
    alone = timed_row()
    assert newest([alone]) is alone
    untimed = rows.new_row(hashes={"key": "k"})
    assert newest([untimed, untimed]) is untimed


def test_a_copy_of_a_row_is_no_repeat():
    kept = timed_row()
    assert newest([Row.of(kept.as_json()), kept]) is kept


def test_rows_of_one_key_and_state_of_the_code_that_ended_well_are_repeats():
    made = [timed_row(key="old"), timed_row(), timed_row(), timed_row()]
    made[1] = replace(made[1], status="failed")
    assert repeats(made) == made[2:]
    made[2] = replace(made[2], code={"revision": "another"})
    assert repeats(made) == made[3:]
    made[3] = replace(made[3], status="failed")
    assert repeats(made) == made[3:]


def test_rows_without_a_key_are_never_repeats():
    made = [timed_row(key=None), timed_row(key=None, first=10)]
    assert repeats(made) == made[1:]
    assert newest(made) is made[1]


def test_the_newest_row_of_a_cell_counts_and_cells_keep_their_order():
    made = [rows.new_row(row=name, seconds=seconds) for name, seconds in (("a", 1.0), ("b", 2.0), ("a", 3.0))]
    assert [(name, one.seconds) for name, one in by_cell(made).items()] == [("a", 3.0), ("b", 2.0)]
    assert by_cell([timed_row(2.0), timed_row(3.0, first=10)])["a"].speedup == pytest.approx(2.5, rel=0.01)
