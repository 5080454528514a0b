"""Speculative retrieval with batched verification (Zhang et al., 2024, Algorithm 1), whatever is retrieved.

A process alternates queries and generation. Its sequential form searches the knowledge base for every query. Here a
step guesses what the search would find, goes on, and the queries of s steps are searched in one batch; at the first
wrong guess the process returns to that step and takes it again with the truth. The output is the sequential one.

Asynchronously, a worker thread begins to verify as soon as the s-th query is known, while its step and the first ones
of the next round are taken. The paper lets one step overlap; with a search longer than a step the others would wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, TypeVar

from harness.contracts import Phases, Trace
from methods.ralmspec.scheduler import Strides, expected_matches, latency
from methods.ralmspec.worker import Flight, Worker

S = TypeVar("S", bound="Step")
T = TypeVar("T")  # what a search finds for one query


@dataclass(slots=True)
class Step:
    """One step of a process: its query, and whatever else the process must know to come back to it."""

    query: Any


class Process(ABC, Generic[S, T]):
    """What is served: a generation that needs a retrieval before every step."""

    redo: bool  # whether taking a step again with the truth costs a generation

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the output, as it stands, is complete."""

    @abstractmethod
    def begin(self) -> S:
        """The next step with its query; no output yet."""

    @abstractmethod
    def guess(self, step: S) -> None:
        """Take the step with a speculated retrieval."""

    @abstractmethod
    def resolve(self, step: S, truth: T) -> None:
        """Take the step with the true retrieval; the state is the one that `begin` left."""

    @abstractmethod
    def search(self, queries: Sequence[Any], aside: bool) -> list[T]:
        """The true retrievals. `aside`: called in a worker thread, to use one core."""

    @abstractmethod
    def agrees(self, step: S, truth: T) -> bool:
        """Whether the guess was as good as the truth; a step not taken is asked what it would have guessed."""

    @abstractmethod
    def learn(self, truths: Sequence[T]) -> None:
        """Remember what was found for later guesses."""

    @abstractmethod
    def rewind(self, step: S) -> None:
        """Return to the state in which `begin` left this step."""


@dataclass(slots=True)
class Record:
    """What happened in one request: counts, strides, and seconds on the main thread unless said otherwise."""

    steps: int = 0  # guessed
    verified: int = 0  # guesses whose truth was looked at, up to the first mismatch of a round
    matched: int = 0
    rollbacks: int = 0
    sequential: int = 0  # steps taken without speculation
    queries: int = 0
    strides: list[int] = field(default_factory=list)  # steps of each verification
    step_s: float = 0.0  # of guessed steps
    truth_s: float = 0.0  # of steps taken with the truth
    single_s: float = 0.0  # of single searches
    verification_s: float = 0.0  # of batched searches, wherever they ran
    waited_s: float = 0.0  # for searches of either kind

    def trace(self, asynchronous: bool, by_time: bool) -> Trace:
        """The trace of a request; counts go to `timing_counters` where they depend on timing (`by_time`)."""
        searches = self.sequential + len(self.strides)
        counts = {
            "searches": searches, "queries": self.queries, "speculated": self.steps, "rollbacks": self.rollbacks,
            "verified": self.verified, "matched": self.matched,
        }  # fmt: skip
        seconds = {
            "generation_s": self.step_s + self.truth_s, "retrieval_s": self.waited_s, **self.formula(asynchronous),
        }  # fmt: skip
        return Trace(
            iterations=self.steps + self.sequential + self.rollbacks,
            counters={} if by_time else {name: float(value) for name, value in counts.items()},
            timing_counters=seconds | ({name: float(value) for name, value in counts.items()} if by_time else {}),
            series={"strides": [float(s) for s in self.strides]},
        )

    def formula(self, asynchronous: bool) -> dict[str, float]:
        """Seconds that the paper's formula gives for this request's a, b, gamma and strides, and those of retrieving
        sequentially what these rounds settle: their ratio is the speedup that the formula allows."""
        if not self.strides or not self.steps:
            return {"formula_s": 0.0, "formula_sequential_s": 0.0}
        a, b = self.step_s / self.steps, self.verification_s / len(self.strides)
        gamma = self.matched / self.verified if self.verified else 0.0
        single = self.single_s / self.sequential if self.sequential else b
        settled = sum(expected_matches(gamma, s) for s in self.strides)
        rounds = sum(latency(a, b, gamma, s, asynchronous) for s in self.strides)
        return {
            "formula_s": rounds + self.sequential * (a + single),
            "formula_sequential_s": (settled + self.sequential) * (a + single),
        }


def follow(process: Process[S, T], phases: Phases) -> Record:
    """The sequential baseline: a search before every step."""
    record = Record()
    while not process.finished:
        _retrieve(process, phases, record)
    return record


def speculate(process: Process[S, T], strides: Strides, phases: Phases, worker: Worker | None = None) -> Record:
    """The same output by speculation; with a worker, verification is asynchronous."""
    return _Speculation(process, strides, phases, worker).run()


class _Speculation(Generic[S, T]):
    def __init__(self, process: Process[S, T], strides: Strides, phases: Phases, worker: Worker | None) -> None:
        self.process = process
        self.strides = strides
        self.phases = phases
        self.worker = worker
        self.record = Record()
        self.ahead: list[S] = []  # guessed and not yet given to a verification
        self.checking: list[S] = []  # in the worker's hands
        self.flight: Flight[list[T]] | None = None

    def run(self) -> Record:
        process = self.process
        if not process.finished:
            seconds = _retrieve(process, self.phases, self.record)  # fills the cache (Algorithm 1, line 4)
            self.strides.searched(seconds, None)
        stride = self.strides.next()
        while True:
            due = bool(self.ahead) and (process.finished or len(self.ahead) >= stride)
            if self.flight is not None:
                if due or process.finished or self.flight.done():
                    self._land(self.flight)
                    stride = self.strides.next()
                else:
                    self._guess(stride)
            elif due:
                self._verify()
                stride = self.strides.next()
            elif process.finished:
                return self.record
            elif stride == 0:
                self._sequential()
                stride = self.strides.next()
            else:
                self._guess(stride)

    def _guess(self, stride: int) -> None:
        """One speculation step; its query may be the last that a verification waits for."""
        started = perf_counter()
        step = self.process.begin()
        self.ahead.append(step)
        if self.worker is not None and self.flight is None and len(self.ahead) >= stride:
            self._launch(self.worker)
        self.process.guess(step)
        seconds = perf_counter() - started
        self.record.steps += 1
        self.record.step_s += seconds
        self.strides.stepped(seconds)

    def _launch(self, worker: Worker) -> None:
        queries = [step.query for step in self.ahead]
        self.flight = worker.launch(lambda: self.process.search(queries, aside=True))
        self.checking, self.ahead = self.ahead, []

    def _land(self, flight: Flight[list[T]]) -> None:
        """Wait for the worker and act on what it found; a mismatch discards what was guessed meanwhile."""
        started = perf_counter()
        with self.phases("retrieve"):
            truths = flight.result()
        self.record.waited_s += perf_counter() - started
        self.phases.overlapped("verify", flight.seconds)
        self.flight = None
        if not self._settle(self.checking, truths, flight.seconds):
            self.ahead = []

    def _verify(self) -> None:
        """The batched search of all steps ahead; with a worker, too, when there is no step left to hide it behind."""
        steps, self.ahead = self.ahead, []
        started = perf_counter()
        with self.phases("retrieve"):
            truths = self.process.search([step.query for step in steps], aside=False)
        seconds = perf_counter() - started
        self.record.waited_s += seconds
        self._settle(steps, truths, seconds)

    def _settle(self, steps: list[S], truths: list[T], seconds: float) -> bool:
        """Compare, learn, and correct the first wrong step. True when all were right."""
        record, process = self.record, self.process
        wrong = next((i for i, (s, t) in enumerate(zip(steps, truths, strict=True)) if not process.agrees(s, t)), None)
        matched = len(steps) if wrong is None else wrong
        record.strides.append(len(steps))
        record.queries += len(steps)
        record.verification_s += seconds
        record.matched += matched
        record.verified += matched + (wrong is not None)
        self.strides.verified(len(steps), matched, seconds)
        process.learn(truths)
        if wrong is None:
            return True
        record.rollbacks += 1
        process.rewind(steps[wrong])
        started = perf_counter()
        process.resolve(steps[wrong], truths[wrong])
        record.truth_s += perf_counter() - started
        return False

    def _sequential(self) -> None:
        """One step without speculation, which tells all the same whether the guess would have been right."""
        started = perf_counter()
        step = self.process.begin()
        began = perf_counter() - started
        started = perf_counter()
        with self.phases("retrieve"):
            (truth,) = self.process.search([step.query], aside=False)
        seconds = perf_counter() - started
        self.strides.searched(seconds, self.process.agrees(step, truth))
        self.process.learn([truth])
        started = perf_counter()
        self.process.resolve(step, truth)
        took = began + perf_counter() - started
        self.strides.stepped(took)
        _count(self.record, took, seconds)


def _retrieve(process: Process[S, T], phases: Phases, record: Record) -> float:
    """One step of the baseline; returns the seconds of its search."""
    started = perf_counter()
    step = process.begin()
    began = perf_counter() - started
    started = perf_counter()
    with phases("retrieve"):
        (truth,) = process.search([step.query], aside=False)
    seconds = perf_counter() - started
    process.learn([truth])
    started = perf_counter()
    process.resolve(step, truth)
    _count(record, began + perf_counter() - started, seconds)
    return seconds


def _count(record: Record, step_s: float, search_s: float) -> None:
    record.sequential += 1
    record.queries += 1
    record.truth_s += step_s
    record.single_s += search_s
    record.waited_s += search_s
