"""Whole requests by a simulated clock: what OS3 wins and risks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from methods.ralmspec.core.scheduler import OS3, Fixed, expected_matches, pipelined

from .simulated import LINEAR, LONG, simulate

STRIDES = (1, 2, 3, 4, 6, 8, 16, 32)


def drawn(rng: np.random.Generator) -> tuple[dict[str, Any], float, bool]:
    """A machine, gamma, and whether there is a worker. Searches of 0.02 to 30 steps, batches of any slope, a worker up
    to 2.5 times as slow, guesses that may be costly and slow the next search down."""
    b, slope = np.exp(rng.uniform(np.log(0.02), np.log(30))), rng.uniform(0, 1)
    machine = {
        "a": 1.0, "b0": b * (1 - slope), "slope": b * slope, "slower": rng.uniform(1, 2.5),
        "redo": bool(rng.random() < 0.5), "cold": b * rng.uniform(0, 0.5),
        "guess_s": np.exp(rng.uniform(np.log(0.002), np.log(0.3))), "change": rng.uniform(0, 1.5),
        "crowded": rng.uniform(1, 1.8),
    }  # fmt: skip
    return machine, float(rng.choice([0, 0.3, 0.6, 0.8, 0.9, 0.97, 1.0])), bool(rng.random() < 0.5)


def served(monkeypatch, strides, requests, machine) -> float:
    """Seconds of all requests, which one scheduler serves."""
    return sum(simulate(monkeypatch, strides, right, **machine) for right in requests)


def test_it_never_loses_and_wins_about_what_the_best_fixed_stride_does(monkeypatch):
    """20 requests of 32 steps, which begin knowing nothing. The scheduler's constants were chosen on machines of other
    seeds."""
    shares = []
    for seed in range(30):
        rng = np.random.default_rng(7_000_000 + seed)
        machine, gamma, asynchronous = drawn(rng)
        requests = [rng.random(32) < gamma for _ in range(20)]
        baseline = served(monkeypatch, None, requests, machine)
        strides = OS3(asynchronous=asynchronous, redo=machine["redo"])
        speedup = baseline / served(monkeypatch, strides, requests, machine)
        best = max(
            baseline / served(monkeypatch, Fixed(s, mode), requests, machine)
            for s in STRIDES
            for mode in [False, True][: 1 + asynchronous]
        )
        assert speedup >= 0.98, (seed, machine, gamma)
        shares.append(speedup / max(best, 1.0))
    assert min(shares) > 0.75 and np.quantile(shares, 0.1) > 0.9 and np.median(shares) > 0.98


@pytest.mark.parametrize("machine", [LONG, LINEAR])
def test_bad_luck_at_first_does_not_end_speculation(monkeypatch, machine):
    rng, strides, speedups = np.random.default_rng(5), OS3(asynchronous=True, redo=False), []
    for gamma in [0.1] * 4 + [0.97] * 16:
        right = [rng.random(64) < gamma]
        baseline = served(monkeypatch, None, right, machine)
        speedups.append(baseline / served(monkeypatch, strides, right, machine))
    assert min(speedups) > 0.9 and np.mean(speedups[-4:]) > 1.5


@pytest.mark.parametrize("redo", [False, True])
@pytest.mark.parametrize("b", [0.3, 3.0])
def test_the_formula_of_overlapping_rounds_is_what_they_take(monkeypatch, redo, b):
    right = np.random.default_rng(7).random(4000) < 0.8
    machine = LONG | {"b0": b, "redo": redo}
    for s in (1, 3, 6):
        taken = simulate(monkeypatch, Fixed(s, True), right, **machine)
        expected = len(right) * pipelined(1.01, b, 0.8, s) / expected_matches(0.8, s)
        assert taken == pytest.approx(expected, rel=0.15), s
