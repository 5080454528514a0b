"""OS3 against brute force over the paper's formulas, its estimates, and whole requests by a clock that is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.phases import NoPhases
from methods.ralmspec import speculation
from methods.ralmspec.allowed import Served
from methods.ralmspec.experience import Experience
from methods.ralmspec.record import Record
from methods.ralmspec.scheduler import OS3, Decision, Fixed, Strides, best_stride, expected_matches, latency, pipelined
from methods.ralmspec.speculation import Process, Step, follow, speculate

seconds = st.floats(1e-5, 10)


def os3(**options) -> OS3:
    return OS3(Experience(), **{"asynchronous": False, "redo": True} | options)


@given(a=seconds, b=seconds, gamma=st.floats(0, 1), asynchronous=st.booleans())
def test_the_stride_is_the_best_of_all(a, b, gamma, asynchronous):
    def rate(s):
        matched = sum(gamma**i for i in range(s))
        together = s * a + b
        hidden = (s - 1) * a + max(a, b)
        return matched / (gamma**s * hidden + (1 - gamma**s) * together if asynchronous else together)

    best = best_stride(a, b, gamma, asynchronous)
    assert rate(best) >= max(rate(s) for s in range(1, 65)) * (1 - 1e-12)


def test_expected_matches_and_latency_are_the_papers():
    assert expected_matches(0.5, 3) == pytest.approx(1 + 0.5 + 0.25)
    assert expected_matches(1.0, 4) == 4
    assert latency(1, 10, 0.9, 3, False) == 13
    assert latency(1, 10, 1.0, 3, True) == 12
    assert latency(3, 1, 1.0, 3, True) == 9


def test_the_stride_heeds_what_each_query_of_a_batch_costs():
    assert best_stride(1, 5, 0.9, slope=4) < best_stride(1, 5, 0.9)
    assert best_stride(1, 5, 0.9, True, slope=4) < best_stride(1, 5, 0.9, True)


def test_it_starts_at_one_and_grows_with_success():
    strides = os3(gamma_max=0.9)
    strides.searched(1.0, None)
    assert strides.next() == Decision(1)
    for _ in range(2):
        strides.searched(1.0, None)
    chosen = []
    for _ in range(12):
        s = strides.next().s
        chosen.append(s)
        for _ in range(s):
            strides.stepped(0.05, beside=False)
        strides.verified(s, s, 1.0, aside=False)
        strides.settled(s * 0.05 + 1.0, s * 0.05, s)
    assert chosen[0] == 1 and chosen[-1] == best_stride(0.05, 1.0, 0.9)


def test_gamma_is_matches_over_matches_and_mismatches_of_the_window():
    strides = os3(redo=False, window=2, gamma_max=0.95)
    assert strides.gamma == 0.95
    strides.verified(3, 0, 1.0, False)
    assert strides.gamma == 0.0
    strides.verified(4, 4, 1.0, False)
    strides.verified(5, 2, 1.0, False)
    assert strides.gamma == pytest.approx(6 / 7)
    strides.verified(5, 5, 1.0, False)
    strides.verified(5, 5, 1.0, False)
    assert strides.gamma == 0.95


def test_it_gives_up_where_speculation_cannot_pay_and_tries_again_when_it_can():
    strides = os3(gamma_max=0.9)
    strides.searched(0.001, None)
    strides.stepped(1.0, beside=False)
    assert strides.next().s == 0  # a search costs next to nothing
    assert not strides.asks()
    for _ in range(20):
        strides.searched(50.0, True)
    assert strides.next().s > 3 and strides.asks()
    strides.settled(200.0, 40.0, 0)  # the credit is spent
    assert strides.next().s == 0
    for _ in range(600):
        strides.searched(50.0, True)
    assert strides.next().s > 3  # and refilled


def test_the_faster_of_synchronous_and_asynchronous_rounds_is_taken():
    for beside, aside in ((1.0, False), (0.3, True)):
        strides = os3(asynchronous=True, gamma_max=0.9)
        for _ in range(3):
            strides.searched(0.3, True)
        strides.stepped(0.1, beside=False)
        for s in (1, 2, 4):
            strides.verified(s, s, beside, aside=True)
            strides.verified(s, s, 0.3, aside=False)
        assert strides.next().aside is aside


def test_what_is_left_is_shared_out_evenly():
    strides = os3(gamma_max=0.95)
    for _ in range(3):
        strides.searched(20.0, True)
    strides.stepped(1.0, beside=False)
    strides.experience.credit = 10.0
    for _ in range(20):
        strides.verified(19, 19, 20.0, aside=False)
    best = best_stride(1.0, 20.0, 0.95)
    assert {left: strides.next(left).s for left in (1, 2, best + 2, 2 * best, 2 * best + 2)} == {
        1: 0, 2: 2, best + 2: best + 2, 2 * best: best, 2 * best + 2: best + 1,
    }  # fmt: skip


def test_a_single_search_is_known_from_those_that_sequential_retrieval_would_make():
    known = Experience()
    known.searched(9.0, alike=False)
    assert known.single == 9.0 and known.unsure and known.disturbance == 0
    for seconds in (2.0, 3.0, 4.0):
        known.searched(seconds, alike=True)
        known.searched(9.0, alike=False)
        known.searched(5.0, alike=False, asked=True)
    assert known.single == 3.0 and not known.unsure and known.disturbance == 2.0


def test_a_search_is_measured_again_when_that_costs_next_to_nothing():
    def until(seconds: float) -> int:
        """Steps until there is one without speculation."""
        strides = os3(gamma_max=0.9)
        for _ in range(3):
            strides.searched(seconds, True)
        strides.stepped(1.0, beside=False)
        strides.experience.credit = 10.0
        for steps in range(0, 20000, 4):
            if strides.next().s == 0:
                return steps
            strides.verified(4, 4, seconds, aside=False)
            strides.settled(0.0, 0.0, 4)
        return 20000

    assert 100 < until(2.0) < until(4.0) < until(16.0) < 20000


def test_a_fixed_stride_hears_nothing():
    strides = Fixed(3, asynchronous=True)
    strides.verified(3, 0, 1.0, False)
    strides.stepped(1.0, False)
    assert strides.next() == Decision(3, aside=True)


def test_what_a_verification_costs_for_each_query_is_learnt_and_kept():
    known = Experience()
    known.searched(5.0 + 0.5, alike=True)
    assert known.verification(False) == pytest.approx((5.5, 0.0)) == known.verification(True)
    for s in (2, 6, 4, *[4] * 50):
        known.verified(s, 5.0 + 0.5 * s, aside=False)
    assert known.verification(False) == pytest.approx((5.0, 0.5))
    flat = Experience()
    for s in (2, 6):
        flat.verified(s, 10.0 - s, aside=False)  # noise: a longer batch cannot cost less
    assert flat.verification(False) == pytest.approx((6.0, 0.0))


# ---------------------------------------------------------------- whole requests


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Numbered(Step):
    number: int


class Simulated(Process[Numbered, bool]):
    """Steps of `a` seconds, of which those in `right` would be guessed rightly; a search of s queries takes
    b0 + slope s seconds, `slower` times that in the worker, and `cold` more for one query after a guess or at the
    beginning; a guess takes `guess_s` of a step. A mismatch costs a step where `redo`."""

    def __init__(
        self, clock: Clock, right: np.ndarray, a: float, b0: float, slope: float, slower: float, redo: bool,
        cold: float = 0.0, guess_s: float = 0.01,
    ):  # fmt: skip
        self.clock, self.right, self.a, self.b0, self.slope, self.slower = clock, right, a, b0, slope, slower
        self.redo, self.cold, self.guess_s, self.warm = redo, cold, guess_s, False
        self.done = 0

    @property
    def finished(self) -> bool:
        return self.done == len(self.right)

    @property
    def left(self) -> int:
        return len(self.right) - self.done

    def begin(self) -> Numbered:
        if not self.redo:
            self.clock.now += self.a
        return Numbered(self.done, self.done)

    def guess(self, step: Numbered) -> None:
        self.clock.now += self.guess_s * self.a
        self.warm = False

    def take(self, step: Numbered) -> None:
        self.resolve(step, True)

    def resolve(self, step: Numbered, truth: bool) -> None:
        if self.redo:
            self.clock.now += self.a
        self.done = step.number + 1

    def seconds(self, s: int) -> float:
        return self.b0 + self.slope * s

    def search(self, queries: Sequence[Any], aside: bool, prefetch: bool = True) -> list[bool]:
        if not aside:
            self.clock.now += self.seconds(len(queries)) + self.cold * (len(queries) == 1 and not self.warm)
            self.warm = True
        return [bool(self.right[number]) for number in queries]

    def agrees(self, step: Numbered, truth: bool) -> bool:
        return truth

    def learn(self, truths: Sequence[bool]) -> None: ...

    def rewind(self, step: Numbered) -> None:
        self.done = step.number


class Thread:
    """A worker by the simulated clock, its first flight `cold` times as slow."""

    def __init__(self, process: Simulated, cold: float = 1.0) -> None:
        self.process, self.cold = process, cold
        self.flights = 0

    def launch(self, call: Any) -> Any:
        self.flights += 1
        return Underway(self.process, call(), self.cold if self.flights == 1 else 1.0)


class Underway:
    def __init__(self, process: Simulated, answer: list[bool], cold: float) -> None:
        self.clock, self.answer = process.clock, answer
        self.seconds = cold * process.slower * process.seconds(len(answer))
        self.lands = self.clock.now + self.seconds

    def done(self) -> bool:
        return self.clock.now >= self.lands

    def result(self) -> list[bool]:
        self.clock.now = max(self.clock.now, self.lands)
        return self.answer


def serve(
    monkeypatch, strides: Strides | None, right: np.ndarray, aside: bool = False, **machine: Any
) -> tuple[float, Record]:
    """Seconds of one request, and its record; without `strides`, of the baseline."""
    clock = Clock()
    monkeypatch.setattr(speculation, "perf_counter", clock)
    process = Simulated(clock, right, **machine)
    if strides is None:
        record = follow(process, NoPhases())
        return clock.now, record
    record = speculate(process, strides, NoPhases(), Thread(process) if aside else None)  # type: ignore[arg-type]
    return clock.now, record


def simulate(monkeypatch, strides: Strides | None, right: np.ndarray, aside: bool = False, **machine: Any) -> float:
    """Seconds of one request; without `strides`, of the baseline."""
    return serve(monkeypatch, strides, right, aside, **machine)[0]


MACHINES = [
    {"a": 1.0, "b0": b * (1 - share), "slope": b * share, "slower": slower, "redo": redo}
    for b, share, slower, redo in product((0.01, 0.3, 1.0, 3.0, 19.0), (0.0, 0.3, 0.95), (1.0, 2.0), (True, False))
]
DEAR = {"a": 1.0, "b0": 18.0, "slope": 1.0, "slower": 1.0, "redo": False}
BESIDE = {"a": 1.0, "b0": 3.0, "slope": 0.0, "slower": 1.0, "redo": False}
STRIDES = (1, 2, 3, 4, 6, 8, 16, 32)


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.8, 0.95])
def test_it_never_loses_much_and_wins_most_of_what_a_fixed_stride_can(monkeypatch, gamma, aside):
    """One request of 400 steps that begins knowing nothing, over machines and the luck of speculation."""
    right = np.random.default_rng(1).random(400) < gamma
    for machine in MACHINES:
        if machine["slower"] > 1 and not aside:
            continue
        baseline = simulate(monkeypatch, None, right, **machine)
        scheduler = OS3(Experience(), asynchronous=aside, redo=machine["redo"], gamma_max=0.95)
        ours = simulate(monkeypatch, scheduler, right, aside, **machine)
        assert ours <= 1.02 * baseline, machine
        if gamma == 0:  # nothing can be won
            continue
        fixed = ((Fixed(s, mode), mode) for s, mode in product(STRIDES, [False, True] if aside else [False]))
        best = min(simulate(monkeypatch, strides, right, mode, **machine) for strides, mode in fixed)
        assert best > baseline or ours <= best / 0.85, machine


def test_it_is_not_deceived_by_searches_that_a_guess_has_made_slow(monkeypatch):
    """A batch costs as much a query as searching one by one, so that guessing is in vain."""
    machine = {"a": 1.0, "b0": 0.0, "slope": 1.3, "slower": 1.0, "redo": False, "cold": 0.7, "guess_s": 0.3}
    experience, theirs, ours = Experience(), 0.0, 0.0
    for _ in range(20):
        right = np.ones(64, bool)
        theirs += simulate(monkeypatch, None, right, **machine)
        ours += simulate(monkeypatch, OS3(experience, asynchronous=False, redo=False), right, **machine)
    assert ours <= 1.01 * theirs


def test_a_hiccup_does_not_end_speculation():
    """A verification thirty times as slow as it should be, the first of its stride."""
    strides = os3(gamma_max=0.9)
    for _ in range(3):
        strides.searched(6.0, None)
    strides.stepped(1.0, beside=False)
    strides.verified(3, 3, 180.0, aside=False)
    strides.settled(183.0, 3.0, 3)
    slow = 0
    while (s := strides.next().s) == 0 and slow < 2000:
        strides.searched(6.0, None)
        slow += 1
    assert s >= 2 and slow < 600


@pytest.mark.parametrize("gamma", [0.8, 0.95])
@pytest.mark.parametrize("cold", [2.0, 4.0])
def test_a_slow_first_flight_is_forgiven(monkeypatch, gamma, cold):
    def seconds(cold: float) -> tuple[float, int]:
        clock = Clock()
        monkeypatch.setattr(speculation, "perf_counter", clock)
        experience, rng, flights = Experience(), np.random.default_rng(5), 0
        for number in range(30):
            process = Simulated(clock, rng.random(32) < gamma, **BESIDE)
            thread = Thread(process, cold if number == 0 else 1.0)
            strides = OS3(experience, asynchronous=True, redo=False)
            speculate(process, strides, NoPhases(), thread)  # type: ignore[arg-type]
            flights += thread.flights
        return clock.now, flights

    (smooth, often), (hiccup, flown) = seconds(1.0), seconds(cold)
    assert often > 30 and flown > 0.7 * often
    assert hiccup < 1.05 * smooth


def test_a_worker_that_keeps_losing_is_tried_ever_less_often():
    known, trials = Experience(), []
    known.verified(1, 9.0, True)
    for number in range(200):
        known.verified(4, 1.0, False)
        if not known.batches[True]:
            trials.append(number + 1)
            known.verified(4, 9.0, True)
    assert trials == [8, 24, 56, 120]


# ---------------------------------------------------------------- what the formula allows


class Never(Strides):
    """Asks for a guess at every step and never speculates."""

    def next(self, left: int = 64) -> Decision:
        return Decision(0)

    def asks(self) -> bool:
        return True


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
