"""Requests served by a clock that is simulated: a machine whose steps and searches take what a test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.common.phases import NoPhases
from methods.ralmspec.core import speculation
from methods.ralmspec.core.scheduler import Fixed
from methods.ralmspec.core.speculation import Process, Speculation, Step, follow


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Numbered(Step):
    number: int


class Simulated(Process[Numbered, bool]):
    """Steps of `a` seconds, of which those in `right` would be guessed rightly. A search of s queries takes
    b0 + slope s seconds, `slower` times that in the worker, and `cold` more for one query after a guess or at the
    beginning; a guess takes `guess_s` of a step. Steps during a verification in the worker take `crowded` times as
    long, the first one after a search without it `change` more. A mismatch costs a step where `redo`."""

    def __init__(
        self, clock: Clock, right: np.ndarray, a: float, b0: float, slope: float, slower: float, redo: bool,
        cold: float = 0.0, guess_s: float = 0.01, change: float = 0.0, crowded: float = 1.0,
    ):  # fmt: skip
        self.clock, self.right, self.a, self.b0, self.slope, self.slower = clock, right, a, b0, slope, slower
        self.redo, self.cold, self.guess_s, self.warm = redo, cold, guess_s, False
        self.change, self.alone, self.pending = change, True, 0.0
        self.crowded, self.ends = crowded, 0.0
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

    def guess(self, step: Numbered) -> bool:
        self.clock.now += self.guess_s * self.a
        self.warm = False
        return True

    def answer(self, step: Numbered, truth: bool) -> bool:
        return truth

    def take(self, step: Numbered, answer: bool) -> None:
        self.clock.now += self.pending + self.a * (self.crowded - 1) * (self.clock.now < self.ends)
        self.pending = 0.0
        if self.redo:
            self.clock.now += self.a
        self.done = step.number + 1

    def seconds(self, s: int) -> float:
        return self.b0 + self.slope * s

    def search(self, queries: Sequence[Any], single_thread: bool, prefetch: bool = True) -> list[bool]:
        if not single_thread:
            self.clock.now += self.seconds(len(queries)) + self.cold * (len(queries) == 1 and not self.warm)
            self.warm = self.alone = True
        return [bool(self.right[number]) for number in queries]

    def learn(self, truths: Sequence[bool]) -> None: ...

    def rewind(self, step: Numbered) -> None:
        self.done = step.number


class Thread:
    """A worker by the simulated clock, its first verification `cold` times as slow."""

    def __init__(self, process: Simulated, cold: float = 1.0) -> None:
        self.process, self.cold = process, cold
        self.started = 0

    def start(self, call: Any) -> Any:
        self.started += 1
        self.process.pending += self.process.change * self.process.alone
        self.process.alone = False
        return Underway(self.process, call(), self.cold if self.started == 1 else 1.0)

    def result(self, call: Any) -> Any:
        return call.result(), call.seconds


class Underway:
    def __init__(self, process: Simulated, answer: list[bool], cold: float) -> None:
        self.clock, self.answer = process.clock, answer
        self.seconds = cold * process.slower * process.seconds(len(answer))
        self.ends = process.ends = self.clock.now + self.seconds

    def done(self) -> bool:
        return self.clock.now >= self.ends

    def result(self) -> list[bool]:
        self.clock.now = max(self.clock.now, self.ends)
        return self.answer


def simulate(monkeypatch, strides: Fixed | None, right: np.ndarray, **machine: Any) -> float:
    """Seconds of one request; without `strides`, of the baseline."""
    clock = Clock()
    monkeypatch.setattr(speculation, "perf_counter", clock)
    process = Simulated(clock, right, **machine)
    if strides is None:
        follow(process, NoPhases())
    else:
        Speculation(process, strides, NoPhases(), Thread(process)).run()  # type: ignore[arg-type]
    return clock.now


LINEAR = {"a": 1.0, "b0": 0.0, "slope": 1.0, "slower": 1.0, "redo": False}  # batches are no faster than single searches
LONG = {"a": 1.0, "b0": 3.0, "slope": 0.0, "slower": 1.0, "redo": False}
