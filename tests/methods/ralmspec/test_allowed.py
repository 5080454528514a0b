"""Simulated requests against what the paper's formula allows for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from methods.ralmspec.allowed import Served
from methods.ralmspec.experience import Experience
from methods.ralmspec.record import Record
from methods.ralmspec.scheduler import OS3, Decision, Fixed, Strides, best_stride, expected_matches, pipelined

from .simulated import BESIDE, DEAR, LINEAR, serve, simulate


class Never(Strides):
    """Asks for a guess at every step and never speculates."""

    def next(self, left: int = 64) -> Decision:
        return Decision(0)

    def asks(self) -> bool:
        return True


class Once(Strides):
    """One asynchronous round of s steps, and never again."""

    def __init__(self, s: int) -> None:
        self.s = s

    def next(self, left: int = 64) -> Decision:
        return Decision(self.s, aside=True)

    def verified(self, s: int, matched: int, seconds: float, aside: bool) -> None:
        self.s = 0


def share(monkeypatch, strides: Any, gammas: Sequence[float], aside: bool = False, **machine: Any) -> float:
    """Speedup of requests of 64 steps over what is allowed; `strides` makes those of a request from its gamma."""
    rng = np.random.default_rng(3)
    served, theirs, ours = Served(), 0.0, 0.0
    for number, gamma in enumerate(gammas):
        right = rng.random(64) < gamma
        seconds, record = serve(monkeypatch, strides(gamma), right, aside, **machine)
        served.add(record)
        if number:
            ours += seconds
            theirs += simulate(monkeypatch, None, right, **machine)
    allowed = served.allowed(aside)
    assert allowed is not None
    return theirs / ours / allowed


def test_the_best_strides_reach_what_is_allowed_and_poor_ones_do_not(monkeypatch):
    best = {gamma: best_stride(1.01, 18, gamma, slope=1) for gamma in (0.2, 0.97)}
    mixed = [0.97, 0.2] * 15
    assert 0.85 < share(monkeypatch, lambda gamma: Fixed(best[gamma]), mixed, **DEAR) < 1.1
    assert share(monkeypatch, lambda gamma: Fixed(3), [0.97] * 20, **DEAR) < 0.6
    assert share(monkeypatch, lambda gamma: Never(), [0.97] * 20, **DEAR) < 0.5
    assert share(monkeypatch, lambda gamma: Never(), [0.0] * 20, **DEAR) == pytest.approx(1, rel=0.01)


def test_asynchronously_all_steps_may_overlap(monkeypatch):
    assert 0.85 < share(monkeypatch, lambda gamma: Fixed(3, True), [0.95] * 20, True, **BESIDE) < 1.1
    assert share(monkeypatch, lambda gamma: Fixed(1, True), [0.95] * 20, True, **BESIDE) < 0.7
    assert share(monkeypatch, lambda gamma: Fixed(3, False), [0.95] * 20, True, **BESIDE) < 0.85


def test_giving_up_for_the_price_of_the_change_to_the_worker_misses_what_is_allowed(monkeypatch):
    lengths = cycle([2, 3])
    assert share(monkeypatch, lambda gamma: Once(next(lengths)), [0.97] * 20, True, **LINEAR, change=2.5) < 0.7


def test_what_is_known_of_one_kind_of_verification_tells_of_the_other():
    record = Record()
    for s in (1, 4):
        record.took(1.0, 0.0, beside=True)
        record.verified_round(s, s, float(s), aside=True)
    record.retrieved(1.0, 0.5)
    served = Served()
    served.add(record)
    assert (served._rounds(False).b, served._rounds(False).slope) == pytest.approx((0.0, 0.5))


@pytest.mark.parametrize(("known", "asked", "expected"), [(True, 0, 1.0), (True, 1, 1.0), (False, 0, 1.85)])
def test_what_the_first_request_told_of_rounds_counts_where_no_other_tells(known, asked, expected):
    """Batches that are no faster than single searches; without rounds they might be."""
    served = Served()
    for number in range(4):
        record = Record()
        if number == 0 and known:
            for s in (2, 4):
                record.took(1.0, 0.01, beside=False)
                record.verified_round(s, s, float(s), aside=False)
        for _ in range(12):
            record.retrieved(1.0, 1.0)
            record.measured(1.0)
        for _ in range(asked if number else 0):
            record.guessed(0.01, hit=True)
        served.add(record)
    assert served.allowed(False) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("redo", [False, True])
@pytest.mark.parametrize("b", [0.3, 3.0])
def test_the_formula_of_overlapping_rounds_is_what_they_take(monkeypatch, redo, b):
    right = np.random.default_rng(7).random(4000) < 0.8
    machine = BESIDE | {"b0": b, "redo": redo}
    for s in (1, 3, 6):
        taken = simulate(monkeypatch, Fixed(s, True), right, True, **machine)
        expected = len(right) * pipelined(1.01, b, 0.8, s) / expected_matches(0.8, s)
        assert taken == pytest.approx(expected, rel=0.15), s


def test_a_scheduler_that_is_cut_short_misses_what_is_allowed(monkeypatch):
    shares = {}
    for cut in (0.6, 0.95):
        experience = Experience()
        made = lambda _, e=experience, c=cut: OS3(e, asynchronous=False, redo=False, gamma_max=c)  # noqa: E731
        shares[cut] = share(monkeypatch, made, [0.97] * 20, **DEAR)
    assert shares[0.6] < 0.8 < shares[0.95]
