"""The decision fails closed, and samples are what they say."""

import gc
import time

import numpy as np
import pytest

from harness.decision import ProcessSample, decide
from harness.measure.timing import MOST_TIMES, Side, measure, summed
from harness.measure.usage import Watch


def process(ratio, pairs=4, noise=1.0, base=1e9, count=30, repeat=1.0, number=0):
    """A process whose pairs all show this ratio, whose baseline shows `noise` against itself, and whose method is
    `repeat` times as fast on items it has seen."""
    return ProcessSample(
        [
            {
                "order": "AB", "count": count, "items": [1000 * number + pair * count + i for i in range(count)],
                "baseline_ns": [base], "method_ns": [base / ratio],
            }
            for pair in range(pairs)
        ],
        {"baseline_ns": [base / noise], "method_ns": [base / ratio / repeat]},
    )  # fmt: skip


def cell(ratios, **details):
    return [process(ratio, number=number, **details) for number, ratio in enumerate(ratios)]


def test_six_clear_processes_say_faster():
    summary = decide(cell([2.0 + i / 100 for i in range(6)]))
    assert summary.decision == "faster"
    assert summary.interval == pytest.approx((2.0, 2.05))
    assert summary.speedup == pytest.approx(2.025)
    assert summary.items == summary.timed == 6 * 4 * 30


@pytest.mark.parametrize(("processes", "pairs"), [(1, 100), (5, 10), (6, 3), (9, 3), (50, 2)])
def test_too_few_samples_never_give_a_claim(processes, pairs):
    samples = cell([5.0] * processes, pairs=pairs)
    summary = decide(samples)
    assert summary.decision == "no claim"
    assert "too few" in summary.reason
    assert decide(samples, exploratory=True).decision == "exploratory"


def test_ten_processes_of_three_pairs_are_enough():
    assert decide(cell([2.0] * 10, pairs=3)).decision == "faster"


def test_fewer_than_a_hundred_different_items_are_too_few_where_one_takes_a_millisecond():
    few = cell([2.0] * 6, count=4)
    assert decide(few).decision == "no claim" and "96 different items" in decide(few).reason
    assert decide(cell([2.0] * 6, count=5)).decision == "faster"
    same = [process(2.0, count=30) for _ in range(6)]  # every process times the same ones
    assert decide(same[:6]).items == 120
    same = [process(2.0, count=10) for _ in range(6)]
    assert decide(same).decision == "no claim"
    assert decide(cell([2.0] * 6, count=4, base=1e6)).decision == "faster"  # an item of a quarter of a millisecond


def test_an_interval_that_holds_one_shows_no_difference():
    assert decide(cell([0.9, 0.95, 1.0, 1.02, 1.05, 1.1])).decision == "no difference shown"


def test_a_speedup_inside_the_noise_floor_shows_no_difference():
    noisy = [process(1.05, noise=n, number=i) for i, n in enumerate((1.05, 1.06, 1.08, 1.1, 1.2, 1.3))]
    summary = decide(noisy)
    assert summary.noise_floor == pytest.approx(1.09)
    assert summary.decision == "no difference shown"


def test_the_noise_floor_is_central_and_counts_in_both_directions():
    noisy = [process(1.5, noise=n, number=i) for i, n in enumerate((0.5, 0.8, 0.8, 0.8, 1.0, 1.01))]
    summary = decide(noisy)
    assert summary.noise_floor == pytest.approx(1 / 0.8)
    assert summary.decision == "faster"  # one wild process does not take away a clear difference


def test_slower_needs_the_same_evidence():
    assert decide(cell([0.5] * 6)).decision == "slower"
    assert decide(cell([0.5] * 6, pairs=3)).decision == "no claim"


def test_an_objection_ends_every_claim_even_an_exploratory_one():
    objections = ["exact_match 0.9 is not at least 1", "load average 12 on 2 cores"]
    summary = decide(cell([9.0] * 6), objections=objections)
    assert (summary.decision, summary.reason) == ("no claim", "; ".join(objections))
    assert decide(cell([9.0]), exploratory=True, objections=objections).decision == "no claim"


def test_a_method_that_is_faster_on_items_it_has_seen_gets_no_claim():
    summary = decide(cell([9.0] * 6, repeat=1.2))
    assert summary.decision == "no claim" and "seen" in summary.reason
    assert summary.repeat == pytest.approx(1.2)
    assert decide(cell([9.0] * 6, repeat=1.08)).decision == "faster"


def test_one_slow_process_among_six_prevents_faster():
    assert decide(cell([1.5, 1.5, 1.5, 1.5, 1.5, 0.9])).decision == "no difference shown"


def test_without_noise_there_is_no_claim():
    samples = [ProcessSample(one.pairs) for one in cell([3.0] * 6)]
    assert decide(samples).decision == "no claim"


def test_a_process_counts_by_its_sums_whatever_its_pairs_show():
    lopsided = process(2.0)
    lopsided.pairs[0] |= {"baseline_ns": [8e9], "method_ns": [8e9]}
    assert decide([lopsided]).ratios == [pytest.approx(11 / 9.5)]


def test_a_side_alone_has_times_and_no_speedup():
    alone = cell([2.0] * 3, pairs=2)
    for one in alone:
        one.again = None
        for pair in one.pairs:
            pair["baseline_ns"] = None
    summary = decide(alone)
    assert (summary.speedup, summary.interval, summary.decision) == (None, None, None)
    assert summary.method_s == pytest.approx(0.5)
    assert summary.method_item_s == pytest.approx(0.5 / 30)


class Recorded:
    """A side whose calls are written down."""

    def __init__(self, name, calls, **details):
        self.calls, self.name = calls, name
        self.side = Side(self.ask, lambda items: items.tolist(), **details)

    def ask(self, item):
        time.sleep(0.001)
        self.calls.append((self.name, item))
        return -item


def test_pairs_alternate_on_fresh_items_and_the_last_ones_come_again():
    calls = []
    passes = [np.asarray([n, n + 1]) for n in (0, 10, 20, 30)]
    a, b = Recorded("A", calls), Recorded("B", calls)
    measured = measure(a.side, b.side, passes, swap=True)
    assert [pair["order"] for pair in measured.sample.pairs] == ["BA", "AB", "BA"]
    timed = [call for call in calls if call[1] >= 10]
    expected = [("B", 10), ("B", 11), ("A", 10), ("A", 11), ("A", 20), ("A", 21), ("B", 20), ("B", 21),
                ("B", 30), ("B", 31), ("A", 30), ("A", 31)]  # fmt: skip
    assert timed[:12] == expected
    assert sorted(timed[12:]) == [("A", 30), ("A", 31), ("B", 30), ("B", 31)]
    assert measured.method == measured.baseline == [-10, -11, -20, -21, -30, -31]
    assert measured.items.tolist() == [10, 11, 20, 21, 30, 31]
    assert measured.sample.pairs[0]["items"] == [10, 11]
    assert all(len(pair["method_ns"]) == 2 and min(pair["method_ns"]) >= 1e6 for pair in measured.sample.pairs)
    assert ProcessSample.of(measured.sample.as_dict()) == measured.sample


def test_a_method_alone_is_timed_once_per_pass():
    calls = []
    sample = measure(None, Recorded("B", calls).side, [np.asarray([n]) for n in (0, 1, 2)]).sample
    assert [call for call in calls if call[1]] == [("B", 1), ("B", 2)]
    assert sample.again is None and sample.pairs[0]["baseline_ns"] is None


def test_the_step_between_two_calls_is_off_the_clock_and_the_loop_stands_apart():
    steps = []

    def step():
        steps.append(time.sleep(0.02))

    calls = []
    passes = [np.arange(3) + 10 * n for n in range(3)]
    a, b = Recorded("A", calls, between=step), Recorded("B", calls, between=step)
    sample = measure(a.side, b.side, passes).sample
    assert max(max(pair["method_ns"]) for pair in sample.pairs) < 15e6
    assert len(sample.hot) == 2 and all(loop["method_ns"] >= 3e6 for loop in sample.hot)
    assert len(steps) == 2 * 3 + 2 * 2 * 3 + 2 * 3  # warm-up, pairs, again; none in the loop


def test_many_times_of_a_pass_are_kept_as_sums_of_stretches():
    assert summed([1, 2, 3]) == [1, 2, 3]
    kept = summed(list(range(1000)))
    assert len(kept) == MOST_TIMES and sum(kept) == sum(range(1000))


def test_no_garbage_is_collected_inside_and_the_device_is_synchronised_on_both_sides():
    order = []
    side = Side(
        lambda item: order.append(gc.isenabled()), lambda items: items.tolist(), synchronise=lambda: order.append("s")
    )
    side.run(np.arange(2))
    assert order == ["s", False, "s", "s", False, "s"]
    assert gc.isenabled()


def test_the_machine_is_watched_while_a_pass_runs():
    watch = Watch()
    Side(lambda item: time.sleep(0.05), lambda items: items.tolist(), watch=watch).run(np.arange(2))
    time.sleep(0.3)
    assert 0.1 <= watch.as_dict()["seconds"] < 0.25
