"""The decision fails closed, and samples are what they say."""

import gc
import time

import pytest

from harness.timing import ProcessSample, calibrate, decide, measure, sample


def process(ratio, pairs=4, noise=1.0, base=1e9):
    """A process whose pairs all show this ratio and whose noise pair shows `noise`."""
    return ProcessSample(
        [{"order": "AB", "baseline_ns": base, "method_ns": base / ratio} for _ in range(pairs)],
        [[base * noise, base]],
        {"baseline": 1, "method": 1},
    )


def test_six_clear_processes_say_faster():
    summary = decide([process(2.0 + i / 100) for i in range(6)])
    assert summary.decision == "faster"
    assert summary.interval == pytest.approx((2.0, 2.05))
    assert summary.speedup == pytest.approx(2.025, rel=0.01)


@pytest.mark.parametrize(("processes", "pairs"), [(1, 100), (5, 10), (6, 3), (9, 3), (50, 2)])
def test_too_few_samples_never_give_a_claim(processes, pairs):
    samples = [process(5.0, pairs) for _ in range(processes)]
    summary = decide(samples)
    assert summary.decision == "no claim"
    assert "too few" in summary.reason
    assert decide(samples, exploratory=True).decision == "exploratory"


def test_ten_processes_of_three_pairs_are_enough():
    assert decide([process(2.0, 3) for _ in range(10)]).decision == "faster"


def test_an_interval_that_holds_one_shows_no_difference():
    ratios = [0.9, 0.95, 1.0, 1.02, 1.05, 1.1]
    summary = decide([process(r) for r in ratios])
    assert summary.decision == "no difference shown"


def test_a_speedup_inside_the_noise_floor_shows_no_difference():
    noisy = [process(1.05, noise=n) for n in (0.9, 0.95, 1.0, 1.05, 1.1, 1.2)]
    summary = decide(noisy)
    assert summary.noise_floor == pytest.approx(1.2)
    assert summary.decision == "no difference shown"


def test_the_noise_floor_counts_in_both_directions():
    noisy = [process(1.05, noise=n) for n in (0.8, 0.95, 1.0, 1.0, 1.0, 1.01)]
    assert decide(noisy).noise_floor == pytest.approx(1 / 0.8)


def test_slower_needs_the_same_evidence():
    assert decide([process(0.5) for _ in range(6)]).decision == "slower"
    assert decide([process(0.5, 3) for _ in range(6)]).decision == "no claim"


def test_a_failed_fidelity_check_ends_every_claim():
    summary = decide([process(9.0) for _ in range(6)], fidelity_failure="exact_match 0.9 is not at least 1")
    assert (summary.decision, summary.reason) == ("no claim", "exact_match 0.9 is not at least 1")


def test_a_changed_environment_ends_every_claim():
    summary = decide([process(9.0) for _ in range(6)], environment_changes=["load average 12 on 2 cores"])
    assert summary.decision == "no claim"
    assert "load average" in summary.reason


def test_one_slow_process_among_six_prevents_faster():
    ratios = [1.5, 1.5, 1.5, 1.5, 1.5, 0.9]
    assert decide([process(r) for r in ratios]).decision == "no difference shown"


def test_without_a_noise_pair_there_is_no_claim():
    samples = [ProcessSample(process(3.0).pairs, [], {}) for _ in range(6)]
    assert decide(samples).decision == "no claim"


def test_pairs_alternate_and_swap_starts_with_the_method():
    calls = []

    def side(name):
        def call():
            calls.append(name)
            time.sleep(0.002)

        return call

    result = measure(side("A"), side("B"), pairs=4, noise_pairs=1, minimum_ms=1, swap=True)
    assert [p["order"] for p in result.pairs] == ["BA", "AB", "BA", "AB"]
    assert len(result.noise) == 1
    timed = calls[-10:]
    assert timed == ["B", "A", "A", "B", "B", "A", "A", "B", "A", "A"]


def test_short_calls_are_looped_until_the_sample_is_long_enough():
    loops = calibrate(lambda: time.sleep(0.001), 20e6, None)
    assert 5 <= loops <= 20


def test_a_slow_first_call_does_not_decide_the_loops(monkeypatch):
    now = 0
    durations = iter([300_000_000])

    def call():
        nonlocal now
        now += next(durations, 2_000_000)

    monkeypatch.setattr("harness.timing.perf_counter_ns", lambda: now)
    assert calibrate(call, 50e6, None) == 25


def test_a_sample_is_a_time_per_call_and_collects_no_garbage_inside():
    seen = []
    assert sample(lambda: seen.append(gc.isenabled()) or time.sleep(0.002), 5, None) >= 2e6
    assert seen == [False] * 5
    assert gc.isenabled()


def test_the_device_is_synchronised_on_both_sides():
    order = []
    sample(lambda: order.append("call"), 2, lambda: order.append("sync"))
    assert order == ["sync", "call", "call", "sync"]
