"""The decision fails closed, and samples are what they say."""

import gc
import threading
import time
from dataclasses import asdict

import numpy as np
import pytest

from harness.decision import ProcessSample, decide
from harness.measure.timing import MOST_TIMES, Side, measure, sample_of, summed
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
    assert summary.speedup == pytest.approx(6 / sum(1 / (2.0 + i / 100) for i in range(6)))
    assert 2.0 < summary.interval[0] < summary.speedup < summary.interval[1] < 2.05
    assert summary.evidence["different_items"] == summary.evidence["timed_items"] == 6 * 4 * 30


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
    assert decide(same[:6]).evidence["different_items"] == 120
    same = [process(2.0, count=10) for _ in range(6)]
    assert decide(same).decision == "no claim"
    assert decide(cell([2.0] * 6, count=4, base=1e6)).decision == "faster"  # an item of a quarter of a millisecond


def test_an_interval_that_holds_one_shows_no_difference():
    assert decide(cell([0.9, 0.95, 1.0, 1.02, 1.05, 1.1])).decision == "no difference shown"


def test_a_speedup_inside_the_noise_floor_shows_no_difference():
    noisy = [process(1.05, noise=n, number=i) for i, n in enumerate((1.05, 1.06, 1.08, 1.1, 1.2, 1.3))]
    summary = decide(noisy)
    assert summary.evidence["noise_floor"] == pytest.approx(1.09)
    assert summary.decision == "no difference shown"


def test_the_noise_floor_is_central_and_counts_in_both_directions():
    noisy = [process(1.5, noise=n, number=i) for i, n in enumerate((0.5, 0.8, 0.8, 0.8, 1.0, 1.01))]
    summary = decide(noisy)
    assert summary.evidence["noise_floor"] == pytest.approx(1 / 0.8)
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
    assert summary.decision == "no claim" and "1.200 times as fast on items that it has seen" in summary.reason
    assert decide(cell([9.0] * 6, repeat=1.08)).decision == "faster"
    by_chance = [process(9.0, repeat=r, number=n) for n, r in enumerate((1.0, 1.05, 1.12, 1.15, 1.2, 1.3))]
    assert decide(by_chance).decision == "faster"  # the interval of 1.135 reaches below 1.10


def changed(**details):
    """Six clear processes with these details."""
    found = cell([2.0] * 6)
    for one in found:
        for name, value in details.items():
            setattr(one, name, value)
    return decide(found)


def test_a_method_that_is_faster_on_the_datas_items_than_on_varied_ones_gets_no_claim():
    summary = changed(varied={"baseline_ns": [1e9], "method_ns": [1e9]})  # 0.5e9 on the data's
    assert summary.decision == "no claim" and "2.000 times as fast on the data's items" in summary.reason
    assert changed(varied={"baseline_ns": [1e9], "method_ns": [0.6e9]}).decision == "faster"


def test_a_baseline_that_is_slower_next_to_the_method_than_alone_gives_no_claim():
    summary = changed(alone={"alone_ns": 1e9, "beside_ns": 2e9})
    assert summary.decision == "no claim" and "2.000 times as long next to the method as alone" in summary.reason
    assert changed(alone={"alone_ns": 1e9, "beside_ns": 1.05e9}).decision == "faster"


def test_threads_that_work_while_the_method_is_not_asked_give_no_claim():
    summary = changed(idle_ns=0.5e9)
    assert (
        summary.decision == "no claim"
        and "threads of the method work 25% of its time while the baseline is asked" in summary.reason
    )
    assert changed(idle_ns=0.1e9).decision == "faster"


def test_a_baseline_whose_time_for_the_same_work_differs_between_passes_gives_no_claim():
    found = [process(2.0, base=base, number=n) for n, base in enumerate((1e9,) * 4 + (1.4e9,) * 4)]
    assert decide(found).decision == "faster"  # other items may be other work
    for one in found:
        one.work = 120.0
    summary = decide(found)
    assert summary.decision == "no claim" and "differs by 1.40 between passes" in summary.reason
    same = [process(2.0, base=base, number=n) for n, base in enumerate((1e9,) * 4 + (1.2e9,) * 4)]
    for one in same:
        one.work = 120.0
    assert decide(same).decision == "faster"


def test_a_speedup_that_is_near_to_one_with_its_whole_interval_is_called_equal():
    assert decide(cell([0.995, 1.0, 1.002, 1.005, 0.998, 1.0])).decision == "equal within 2%"
    assert decide(cell([1.008, 1.01, 1.012, 1.01, 1.009, 1.011])).decision == "equal within 2%"
    assert decide(cell([1.008, 1.01, 1.012, 1.01, 1.009, 1.011]), equal=0.005).decision == "faster"
    assert decide(cell([0.95] * 6), equal=0.1).decision == "equal within 10%"


def test_percentiles_are_given_where_items_were_timed_one_by_one_and_are_many_enough():
    def percentiles(samples):
        return {name: value for name, (value, _) in decide(samples).numbers.items() if "latency_p" in name}

    few = cell([2.0] * 6)  # a time for each pass of thirty items
    assert percentiles(few) == {}
    for n, one in enumerate(few):
        for pair in one.pairs:
            pair |= {"count": 28, "method_ns": [1e6 * (i + n) for i in range(28)], "baseline_ns": [1e9] * 28}
    times = sorted(ns / 1e9 for one in few for pair in one.pairs for ns in pair["method_ns"])
    found = percentiles(few)  # 672 items
    assert set(found) == {"latency_p50_s", "latency_p90_s", "latency_p99_s"}
    assert found["latency_p99_s"] == pytest.approx(np.percentile(times, 99))
    assert set(percentiles(few[:5])) == {"latency_p50_s", "latency_p90_s"}


def test_one_slow_process_among_six_prevents_faster():
    assert decide(cell([1.5, 1.5, 1.5, 1.5, 1.5, 0.7])).decision == "no difference shown"


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
    assert summary.numbers["wall_clock_s"][0] == pytest.approx(0.5)
    assert summary.numbers["latency_s"][0] == pytest.approx(0.5 / 30)


class Recorded:
    """A side whose calls are written down."""

    def __init__(self, name, calls, **details):
        self.calls, self.name = calls, name
        self.side = Side(self.ask, lambda items: items.tolist(), **details)

    def ask(self, item):
        time.sleep(0.001)
        self.calls.append((self.name, item))
        return -item


def turns(names):
    """The sides in this order, and in every other pass in its reverse."""
    return lambda number: names if number % 2 == 0 else names[::-1]


def test_sides_take_turns_on_fresh_items_and_the_last_ones_come_again():
    calls = []
    passes = [np.asarray([n, n + 1]) for n in (0, 10, 20, 30)]
    sides = {name: Recorded(name, calls, vary=lambda item: item + 0.5).side for name in "ABC"}
    found = measure(sides, passes, turns(["B", "A", "C"]))
    timed = [call for call in calls if call[1] >= 10]
    expected = [(name, item) for order, first in (("BAC", 10), ("CAB", 20), ("BAC", 30))
                for name in order for item in (first, first + 1)]  # fmt: skip
    assert timed[:18] == expected
    assert timed[18:24] == [("C", 30), ("C", 31), ("A", 30), ("A", 31), ("B", 30), ("B", 31)]  # again
    assert timed[24:] == [("C", 30.5), ("C", 31.5), ("B", 30.5), ("B", 31.5), ("A", 30.5), ("A", 31.5)]  # varied
    assert found["C"].answers == found["A"].answers == [-10, -11, -20, -21, -30, -31]
    sample = sample_of(found["B"], found["A"], [2, 2, 2], [[10, 11], [20, 21], None], {"alone_ns": 5, "beside_ns": 7})
    assert [pair["order"] for pair in sample.pairs] == ["BA", "AB", "BA"]
    assert [pair["items"] for pair in sample.pairs] == [[10, 11], [20, 21], None]
    assert all(len(pair["method_ns"]) == 2 and min(pair["method_ns"]) >= 1e6 for pair in sample.pairs)
    assert sample.alone == {"alone_ns": 5, "beside_ns": 7} and sample.again["baseline_ns"] == found["A"].again
    assert sample.varied["method_ns"] == found["B"].varied
    assert ProcessSample.of(asdict(sample)) == sample


def test_a_method_alone_is_timed_once_per_pass():
    calls = []
    found = measure({"B": Recorded("B", calls).side}, [np.asarray([n]) for n in (0, 1, 2)], turns(["B"]), alone=True)
    assert [call for call in calls if call[1]] == [("B", 1), ("B", 2)]
    sample = sample_of(found["B"], None, [1, 1], [[1], [2]])
    assert sample.again is None and sample.pairs[0]["baseline_ns"] is None


def test_the_step_between_two_calls_is_off_the_clock_and_the_loop_stands_apart():
    steps = []

    def step():
        steps.append(time.sleep(0.02))

    calls = []
    passes = [np.arange(3) + 10 * n for n in range(3)]
    sides = {name: Recorded(name, calls, between=step).side for name in "AB"}
    found = measure(sides, passes, turns(["A", "B"]))
    assert max(max(times) for times in found["B"].times) < 15e6
    assert len(found["B"].hot) == 2 and min(found["B"].hot) >= 3e6
    assert len(steps) == 2 * 3 + 2 * 2 * 3 + 2 * 3  # warm-up, passes, again; none in the loop


def test_a_clock_replaced_by_name_does_not_change_a_side(monkeypatch):
    side = Recorded("A", []).side
    monkeypatch.setattr("harness.measure.timing.perf_counter_ns", lambda: 0)
    monkeypatch.setattr("harness.measure.timing.clocked", lambda: None)
    assert min(side.run(np.arange(2))[0]) >= 1e6


def test_threads_that_a_method_leaves_are_seen_while_the_baseline_is_asked():
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            pass

    def side(ask):
        return Side(ask, lambda items: items.tolist())

    started = []
    leaving = side(lambda item: started or started.append(threading.Thread(target=spin)) or started[0].start())
    sides = {"baseline": side(lambda item: time.sleep(0.05)), "leaving": leaving, "honest": side(lambda item: item)}
    measure(sides, [np.arange(2) + 2 * n for n in range(3)], turns(list(sides)))
    stop.set()
    assert leaving.idle_ns >= 0.05e9
    assert sides["honest"].idle_ns == sides["baseline"].idle_ns == 0


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
