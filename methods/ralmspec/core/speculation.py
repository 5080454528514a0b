"""Speculative retrieval with batched verification (Zhang et al., 2024, Algorithm 1), for any kind of retrieval.

A process alternates queries and generation. Sequentially, it searches the knowledge base for every query. With
speculation, a step guesses the search result and goes on. The queries of s steps are then searched in one batch. At the
first wrong guess the process returns to that step and repeats it with the true result. The output is the sequential
one.

Asynchronously, a worker thread starts to verify as soon as the s-th query exists. The step of that query and those of
the next round run during the verification. In the paper one step overlaps; if a search takes longer than a step, the
others would wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, TypeVar

from harness.contracts import Phases
from methods.ralmspec.core.record import ALONE, Record
from methods.ralmspec.core.scheduler import Decision, Fixed
from methods.ralmspec.core.worker import Worker

S = TypeVar("S", bound="Step")
T = TypeVar("T")  # the search result of one query


@dataclass(slots=True)
class Step:
    """One step of a process: its query, and what the process needs to return to it.

    guess: the guessed answer. encode_s: seconds of encoding the query, if that counts as retrieval. begin_s: seconds of
    `begin`. took_s: seconds of `begin` and `take`. overlapped: a verification ran during the step.
    """

    query: Any
    guess: Any = field(default=None, init=False)
    encode_s: float = field(default=0.0, init=False)
    begin_s: float = field(default=0.0, init=False)
    took_s: float = field(default=0.0, init=False)
    overlapped: bool = field(default=False, init=False)


class Process(ABC, Generic[S, T]):
    """A generation that needs a retrieval before every step. An answer is what a step needs of a search result: a guess
    is as good as the true one if both are equal."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the output is complete."""

    @property
    @abstractmethod
    def left(self) -> int:
        """Most steps that may still be taken."""

    @abstractmethod
    def begin(self) -> S:
        """The next step with its query, without output."""

    @abstractmethod
    def guess(self, step: S) -> Any:
        """The guessed answer, without output."""

    @abstractmethod
    def answer(self, step: S, truth: T) -> Any:
        """The answer by the true search result, without output."""

    @abstractmethod
    def take(self, step: S, answer: Any) -> None:
        """Take the step with an answer. The state must be as `begin` left it."""

    @abstractmethod
    def search(self, queries: Sequence[Any], single_thread: bool, prefetch: bool = True) -> list[T]:
        """The search result of each query. `prefetch`: include what later guesses may need. `single_thread`: use one
        core, as in a worker thread."""

    @abstractmethod
    def learn(self, truths: Sequence[T]) -> None:
        """Remember search results for later guesses."""

    @abstractmethod
    def rewind(self, step: S) -> None:
        """Return to the state that `begin` of this step left."""


def follow(process: Process[S, T], phases: Phases) -> Record:
    """The sequential baseline: a search before every step."""
    record = Record()
    while not process.finished:
        step = _begun(process, record)
        _retrieve(process, step, phases, record)
    return record


@dataclass(slots=True)
class Speculation(Generic[S, T]):
    """One request by speculation, with the sequential output. It is verified in the worker where `strides` decides
    so."""

    process: Process[S, T]
    strides: Fixed
    phases: Phases
    worker: Worker
    record: Record = field(default_factory=Record)
    ahead: list[S] = field(default_factory=list)  # steps taken whose verification has not started
    checking: list[S] = field(default_factory=list)  # steps that the worker verifies
    pending: Future[tuple[list[T], float]] | None = None
    since: float = 0.0  # end of the last round
    undisturbed: bool = False  # no speculation since the last search of a single query
    switched: bool = False  # a step has paid for the change of thread count since the last search in this thread

    def run(self) -> Record:
        process, decision = self.process, Decision(0)  # the first step fills the cache (Algorithm 1, line 4)
        while True:
            due = bool(self.ahead) and (process.finished or len(self.ahead) >= decision.s)
            if self.pending is not None:
                if due or process.finished or self.pending.done():
                    self._finish()
                    decision = self._decided()
                else:
                    self._speculate(decision)
            elif due:
                if decision.s and decision.asynchronous and not process.finished:
                    self._start()
                else:
                    self._verify()
                    decision = self._decided()
            elif process.finished:
                return self.record
            elif decision.s == 0:
                self._sequential()
                decision = self._decided()
            else:
                self._speculate(decision)

    def _decided(self) -> Decision:
        return self.strides.next(self.process.left + len(self.ahead))

    def _speculate(self, decision: Decision) -> None:
        """One speculation step. Its query may be the last of a round and start the verification."""
        process, record = self.process, self.record
        self.undisturbed = False
        step = _begun(process, record)
        self.ahead.append(step)
        if self.pending is None and len(self.ahead) >= decision.s and decision.asynchronous:
            self._start()
        step.overlapped = self.pending is not None
        started = perf_counter()
        step.guess = process.guess(step)
        guessed = perf_counter()
        process.take(step, step.guess)
        step.took_s = step.begin_s + perf_counter() - guessed
        switches = step.overlapped and not self.switched
        record.steps += 1
        record.step_s += step.took_s
        record.guess_s += guessed - started
        self.strides.took("guess", guessed - started)
        if not switches:
            self.strides.took("overlapped" if step.overlapped else "step", step.took_s)
        self.switched = self.switched or step.overlapped

    def _start(self) -> None:
        queries = [step.query for step in self.ahead]
        self.pending = self.worker.start(lambda: self.process.search(queries, single_thread=True))
        self.checking, self.ahead = self.ahead, []

    def _finish(self) -> None:
        """Wait for the worker and settle its round. A mismatch discards the steps taken during the verification."""
        assert self.pending is not None
        started = perf_counter()
        with self.phases("retrieve"):
            truths, seconds = self.worker.result(self.pending)
        self.record.waited_s += perf_counter() - started
        self.phases.overlapped("verify", seconds)
        self.pending = None
        if not self._settle(self.checking, truths, seconds, asynchronous=True):
            self.ahead = []

    def _verify(self) -> None:
        """Verify all steps ahead in this thread; also with a worker, if no step is left to overlap."""
        steps, self.ahead = self.ahead, []
        self.switched = False
        started = perf_counter()
        with self.phases("retrieve"):
            truths = self.process.search([step.query for step in steps], single_thread=False)
        seconds = perf_counter() - started
        self.record.waited_s += seconds
        self._settle(steps, truths, seconds, asynchronous=False)

    def _settle(self, steps: list[S], truths: list[T], seconds: float, asynchronous: bool) -> bool:
        """Compare, learn, and correct the first wrong step. True if all were right."""
        process = self.process
        pairs = enumerate(zip(steps, truths, strict=True))
        wrong = next((i for i, (step, truth) in pairs if step.guess != process.answer(step, truth)), None)
        matched = len(steps) if wrong is None else wrong
        self.record.rounds.append((len(steps), matched))
        self.record.verification_s += seconds
        self.strides.verified(len(steps), seconds, asynchronous)
        self.strides.guessed(matched, matched < len(steps))
        process.learn(truths)
        worth = sum(step.took_s for step in steps[:matched] if not step.overlapped)
        if wrong is not None:
            process.rewind(steps[wrong])
            started = perf_counter()
            process.take(steps[wrong], process.answer(steps[wrong], truths[wrong]))
            took = perf_counter() - started
            self.record.redone_s += took
            worth += steps[wrong].begin_s + took
        now = perf_counter()
        overlapped = sum(step.overlapped for step in steps[:matched])
        self.strides.settled(now - self.since, worth, overlapped, matched + (wrong is not None), asynchronous)
        self.since = now
        return wrong is None

    def _sequential(self) -> None:
        """One step without speculation. It searches as the baseline does, since that is the time to compare with. If
        the scheduler asks, it also guesses and tells whether the guess was right. The first step prefetches and is not
        timed: it reads the prompt."""
        process, first = self.process, not self.record.rounds
        self.switched = False
        step = _begun(process, self.record)
        asked = not first and self.strides.asks()
        if asked:
            started = perf_counter()
            step.guess = process.guess(step)
            guess_s = perf_counter() - started
            self.record.guess_s += guess_s
            self.strides.took("guess", guess_s)
        truth, seconds = _retrieve(process, step, self.phases, self.record, prefetch=asked or first)
        if asked:
            right = step.guess == process.answer(step, truth)
            self.strides.guessed(right, not right)
        if asked or self.undisturbed:
            self.strides.took("asked" if asked else "search", seconds)
        if not first:
            self.strides.took("step", step.took_s)
        self.undisturbed = True
        process.learn([truth])
        self.since = perf_counter()


def _begun(process: Process[S, T], record: Record) -> S:
    started = perf_counter()
    step = process.begin()
    step.begin_s = perf_counter() - started
    record.encode_s += step.encode_s
    return step


def _retrieve(
    process: Process[S, T], step: S, phases: Phases, record: Record, prefetch: bool = True
) -> tuple[T, float]:
    """Search and take the step with the result. Returns the result and the seconds of the search."""
    started = perf_counter()
    with phases("retrieve"):
        (truth,) = process.search([step.query], single_thread=False, prefetch=prefetch)
    found = perf_counter()
    process.take(step, process.answer(step, truth))
    step.took_s = step.begin_s + perf_counter() - found
    record.rounds.append(ALONE)
    record.sequential_s += step.took_s
    record.waited_s += found - started
    return truth, found - started
