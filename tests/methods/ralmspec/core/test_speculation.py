"""Whole requests by a simulated clock: what OS3 wins and risks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from harness.common.phases import NoPhases
from methods.ralmspec.core import speculation
from methods.ralmspec.core.estimates import Estimates
from methods.ralmspec.core.scheduler import OS3, Fixed, expected_matches, pipelined
from methods.ralmspec.core.speculation import speculate

from .simulated import LINEAR, LONG, Clock, Simulated, Thread, simulate

MACHINES = [
    {"a": 1.0, "b0": b * (1 - share), "slope": b * share, "slower": slower, "redo": redo}
    for b, share, slower, redo in product((0.01, 0.3, 1.0, 3.0, 19.0), (0.0, 0.3, 0.95), (1.0, 2.0), (True, False))
]
STRIDES = (1, 2, 3, 4, 6, 8, 16, 32)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.8, 0.95])
def test_it_never_loses_much_and_wins_most_of_what_a_fixed_stride_can(monkeypatch, gamma, asynchronous):
    """One request of 400 steps that begins knowing nothing, over machines and the luck of speculation."""
    right = np.random.default_rng(1).random(400) < gamma
    for machine in MACHINES:
        if machine["slower"] > 1 and not asynchronous:
            continue
        baseline = simulate(monkeypatch, None, right, **machine)
        scheduler = OS3(Estimates(), asynchronous=asynchronous, redo=machine["redo"], gamma_max=0.95)
        ours = simulate(monkeypatch, scheduler, right, asynchronous, **machine)
        assert ours <= 1.02 * baseline, machine
        if gamma == 0:  # nothing can be won
            continue
        fixed = ((Fixed(s, mode), mode) for s, mode in product(STRIDES, [False, True] if asynchronous else [False]))
        best = min(simulate(monkeypatch, strides, right, mode, **machine) for strides, mode in fixed)
        assert best > baseline or ours <= best / 0.85, machine


def test_it_is_not_deceived_by_searches_that_a_guess_has_made_slow(monkeypatch):
    """A batch costs as much a query as searching one by one, so that guessing is in vain."""
    machine = {"a": 1.0, "b0": 0.0, "slope": 1.3, "slower": 1.0, "redo": False, "cold": 0.7, "guess_s": 0.3}
    estimates, theirs, ours = Estimates(), 0.0, 0.0
    for _ in range(20):
        right = np.ones(64, bool)
        theirs += simulate(monkeypatch, None, right, **machine)
        ours += simulate(monkeypatch, OS3(estimates, asynchronous=False, redo=False), right, **machine)
    assert ours <= 1.01 * theirs


def served(monkeypatch, gammas: Sequence[float], asynchronous: bool, **machine: Any) -> list[float]:
    """Speedup of each of the requests of 64 steps that one service answers in turn."""
    estimates, rng, speedups = Estimates(), np.random.default_rng(5), []
    for gamma in gammas:
        right = rng.random(64) < gamma
        strides = OS3(estimates, asynchronous=asynchronous, redo=False, gamma_max=0.95)
        theirs = simulate(monkeypatch, None, right, **machine)
        speedups.append(theirs / simulate(monkeypatch, strides, right, asynchronous, **machine))
    return speedups


def test_bad_luck_at_first_does_not_end_speculation(monkeypatch):
    machine = {"a": 1.0, "b0": 3.0, "slope": 0.0, "slower": 1.0, "redo": False, "guess_s": 0.3}
    speedups = served(monkeypatch, [0.1] * 4 + [0.97] * 8, False, **machine)
    assert min(speedups) > 0.9 and np.mean(speedups[-4:]) > 1.8


def test_the_change_to_the_worker_is_not_what_every_step_during_a_verification_costs(monkeypatch):
    speedups = served(monkeypatch, [0.97] * 12, True, **LINEAR, change=2.5)
    assert min(speedups) > 0.9 and np.mean(speedups[-6:]) > 1.5


def test_a_worker_that_slows_generation_down_is_not_tried_for_ever(monkeypatch):
    machine = {"a": 1.0, "b0": 0.8, "slope": 0.0, "slower": 1.0, "redo": False}
    alone, crowded = (served(monkeypatch, [0.95] * 20, mode, **machine, crowded=2.0) for mode in (False, True))
    assert np.mean(crowded[10:]) > 0.985 * np.mean(alone[10:])


def test_a_miss_at_once_does_not_end_speculation(monkeypatch):
    """Before any step of a known length."""
    machine = {"a": 1.0, "b0": 0.2, "slope": 0.0, "slower": 1.0, "redo": True}
    right = np.arange(200) != 1
    strides = OS3(Estimates(), asynchronous=True, redo=True, gamma_max=0.95)
    assert simulate(monkeypatch, strides, right, True, **machine) < 0.87 * simulate(monkeypatch, None, right, **machine)


@pytest.mark.parametrize("machine", [LONG, LINEAR])
@pytest.mark.parametrize("gamma", [0.8, 0.95])
@pytest.mark.parametrize("cold", [2.0, 4.0])
def test_a_slow_first_verification_is_forgiven(monkeypatch, gamma, cold, machine):
    def seconds(cold: float) -> tuple[float, int]:
        clock = Clock()
        monkeypatch.setattr(speculation, "perf_counter", clock)
        estimates, rng, verifications = Estimates(), np.random.default_rng(5), 0
        for number in range(30):
            process = Simulated(clock, rng.random(32) < gamma, **machine)
            thread = Thread(process, cold if number == 0 else 1.0)
            strides = OS3(estimates, asynchronous=True, redo=False)
            speculate(process, strides, NoPhases(), thread)  # type: ignore[arg-type]
            verifications += thread.started
        return clock.now, verifications

    (smooth, often), (hiccup, still) = seconds(1.0), seconds(cold)
    assert often > 30 and still > 0.7 * often
    assert hiccup < 1.05 * smooth


@pytest.mark.parametrize("redo", [False, True])
@pytest.mark.parametrize("b", [0.3, 3.0])
def test_the_formula_of_overlapping_rounds_is_what_they_take(monkeypatch, redo, b):
    right = np.random.default_rng(7).random(4000) < 0.8
    machine = LONG | {"b0": b, "redo": redo}
    for s in (1, 3, 6):
        taken = simulate(monkeypatch, Fixed(s, True), right, True, **machine)
        expected = len(right) * pipelined(1.01, b, 0.8, s) / expected_matches(0.8, s)
        assert taken == pytest.approx(expected, rel=0.15), s
