"""The phase timer charges every moment to one phase at most, and costs little."""

import time

import pytest

from harness.common.phases import PhaseTimer


def test_a_phase_inside_another_interrupts_it():
    timer = PhaseTimer()
    with timer("outer"):
        time.sleep(0.02)
        with timer("inner"):
            time.sleep(0.05)
        time.sleep(0.02)
    seconds = timer.record(passes=1)["seconds"]
    assert seconds["outer"] == pytest.approx(0.04, abs=0.015)
    assert seconds["inner"] == pytest.approx(0.05, abs=0.015)


def test_seconds_of_a_worker_thread_stay_outside_the_sum():
    timer = PhaseTimer()
    timer.overlapped("verify", 1.5)
    timer.overlapped("verify", 0.5)
    assert timer.record(passes=1) == {"seconds": {}, "overlapped": {"verify": 2.0}}


def test_the_timer_costs_less_than_a_percent_of_millisecond_phases():
    timer, started = PhaseTimer(), time.perf_counter()
    for _ in range(1000):
        with timer("work"):
            pass
    assert (time.perf_counter() - started) / 1000 < 0.01 * 0.001


def test_the_device_is_synchronised_at_every_boundary():
    calls = []
    timer = PhaseTimer(lambda: calls.append(1))
    with timer("a"), timer("b"):
        pass
    assert len(calls) == 4
