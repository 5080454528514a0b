"""Timing of several methods and their baseline on fresh items: passes of all sides in drawn order, no item twice;
then all sides once more on the items of the last pass, and on these items changed a little. `harness.decision` says
what the samples of all processes support."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from time import clock_gettime_ns, perf_counter_ns, pthread_getcpuclockid
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.phases import PhaseTimer
from harness.decision import ProcessSample
from harness.measure.usage import Watch

MOST_TIMES = 64  # times of one side that a row keeps for each pass; more are summed by stretches
WARM_NS = 1e8  # time of calls that a side is warmed up with
Answers = tuple[list[int], list[Any]]  # nanoseconds and answer of each call


def clocked() -> Callable[..., Answers]:
    """What asks one call after the other, with the clock around each. It closes over the clock: made before a method's
    code is loaded, it cannot be changed by one that replaces a name, of `time` or of this module."""
    clock = perf_counter_ns

    def run(
        ask: Callable[[Any], Any], given: Sequence[Any], between: Callable[[], object] | None,
        synchronise: Callable[[], None] | None,
    ) -> Answers:  # fmt: skip
        times, answers = [], []
        for one in given:
            if between is not None:
                between()
            if synchronise is not None:
                synchronise()
            started = clock()
            answer = ask(one)
            if synchronise is not None:
                synchronise()
            times.append(clock() - started)
            answers.append(answer)
        return times, answers

    return run


class Side:
    """One method as it is timed.

    - inputs: item numbers -> what each call gets, prepared off the clock.
    - vary: an input -> one that differs a little.
    - ask: answers one input; the clock runs around it alone. run_calls: asks all, clocked (`clocked`).
    - between: what runs between two calls in use, off the clock. synchronise: waits for the device.
    - timer: the phases that `ask` records; those of the pairs alone are kept, in `phases` (seconds of one pass).
    """

    def __init__(
        self, ask: Callable[[Any], Any], inputs: Callable[[Any], Sequence[Any]], *,
        run_calls: Callable[..., Answers] | None = None, vary: Callable[[Any], Any] | None = None,
        between: Callable[[], object] | None = None, synchronise: Callable[[], None] | None = None,
        watch: Watch | None = None, timer: PhaseTimer | None = None,
    ) -> None:  # fmt: skip
        self.ask, self.inputs, self.vary, self.between, self.synchronise = ask, inputs, vary, between, synchronise
        self.run_calls, self.watch, self.timer = run_calls or clocked(), watch, timer
        self.phases: dict[str, Any] = {}
        self.threads: set[threading.Thread] = set()  # that the method has started
        self.idle_ns = 0  # CPU time of these threads while the baseline was asked

    def run(self, items: Any, varied: bool = False) -> Answers:
        """Nanoseconds and answer of each call of one pass, garbage collection off. varied: on the items changed a
        little."""
        given = self.inputs(items)
        if varied and self.vary is not None:
            given = [self.vary(one) for one in given]
        with _undisturbed(self.watch), self.owning():
            return self.run_calls(self.ask, given, self.between, self.synchronise)

    def loop(self, items: Any) -> int:
        """Nanoseconds of all calls of one pass with nothing between them."""
        given, ask = self.inputs(items), self.ask

        def every(_: Any) -> None:
            for one in given:
                ask(one)

        with _undisturbed():
            return self.run_calls(every, [None], None, self.synchronise)[0][0]

    def warm(self, items: Any) -> None:
        """Call a few times, off the record: the first calls pay for compilation, caches and lazy initialisation."""
        spent = 0
        with self.owning():
            for number, one in enumerate(self.inputs(items)):
                if spent >= WARM_NS and number >= 2:
                    return
                spent += sum(self.run_calls(self.ask, [one], self.between, self.synchronise)[0])

    @contextmanager
    def owning(self) -> Iterator[None]:
        """Threads that are started meanwhile and go on are the method's."""
        before = set(threading.enumerate())
        yield
        self.threads |= set(threading.enumerate()) - before

    def threads_ns(self, others: set[threading.Thread]) -> int:
        """CPU time so far of the method's running threads that are not the others'."""
        running = (one for one in self.threads - others if one.is_alive() and one.ident)
        return sum(clock_gettime_ns(pthread_getcpuclockid(one.ident)) for one in running if one.ident)


@contextmanager
def _undisturbed(watch: Watch | None = None) -> Iterator[None]:
    """Garbage collection off and the machine watched."""
    collecting = gc.isenabled()
    gc.disable()
    if watch is not None:
        watch.start()
    try:
        yield
    finally:
        if watch is not None:
            watch.stop()
        if collecting:
            gc.enable()


@dataclass(slots=True)
class Passes:
    """What a side gave in each pass of a process: [pass] -> nanoseconds of its calls, and the answers of all passes in
    order; the times of the last pass repeated, and varied; of each pass, the time of its calls in a loop."""

    times: list[list[int]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # in the order of the sides, by pass
    again: list[int] = field(default_factory=list)
    varied: list[int] = field(default_factory=list)
    hot: list[float] = field(default_factory=list)


def measure(
    sides: Mapping[str, Side], passes: Sequence[NDArray[np.int64]], order: Callable[[int], Sequence[str]], *,
    alone: bool = False, progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Passes]:  # fmt: skip
    """Time all sides in this process, of which the baseline is the first.

    passes: the first warms up. order: number of a pass -> the names of the sides, as they take turns. alone: a single
    side, for which nothing is compared.
    """
    for side in sides.values():
        side.warm(passes[0])
        if side.timer is not None:
            side.timer.clear()
    found = {name: Passes() for name in sides}
    first = next(iter(sides))  # the baseline
    total = len(passes)
    for number, items in enumerate(passes[1:]):
        for place, name in enumerate(order(number)):
            waiting = [side for other, side in sides.items() if name == first != other]
            before = [side.threads_ns(sides[first].threads) for side in waiting]
            times, answers = sides[name].run(items)
            for side, spent in zip(waiting, before, strict=True):
                side.idle_ns += max(0, side.threads_ns(sides[first].threads) - spent)
            found[name].times.append(times)
            found[name].answers += answers
            found[name].places.append(place)
        progress(number + 1, total)
    for side in sides.values():
        if side.timer is not None:
            side.phases = side.timer.record(total - 1)
    if not alone:
        last = passes[-1]
        for name in order(total - 1):
            found[name].again = sides[name].run(last)[0]
        for name in reversed(list(sides)):  # the baseline last, so that no method has its answers
            if sides[name].vary is not None:
                found[name].varied = sides[name].run(last, varied=True)[0]
        for number, items in enumerate(passes[1:]):
            for name in order(number):
                if sides[name].between is not None:
                    found[name].hot.append(float(sides[name].loop(items)))
    progress(total, total)
    return found


def sample_of(
    method: Passes, baseline: Passes | None, counts: Sequence[int], items: Sequence[Sequence[int] | None],
    alone: dict[str, int] | None = None,
) -> ProcessSample:  # fmt: skip
    """A method's and its baseline's times in one process, as a row has them. counts, items: of each pass."""
    pairs = [
        {
            "order": "AB" if baseline is None or baseline.places[n] < method.places[n] else "BA",
            "count": counts[n], "items": items[n],
            "baseline_ns": summed(baseline.times[n]) if baseline else None, "method_ns": summed(method.times[n]),
        } for n in range(len(method.times))
    ]  # fmt: skip
    if baseline is None:
        return ProcessSample(pairs)
    again, varied = (
        {f"{name}_ns": summed(getattr(side, part)) for name, side in (("baseline", baseline), ("method", method))}
        for part in ("again", "varied")
    )
    hot = [{"baseline_ns": b, "method_ns": m} for b, m in zip(baseline.hot, method.hot, strict=True)]
    return ProcessSample(pairs, again, varied if method.varied else None, hot, alone)


def summed(times: Sequence[int], most: int = MOST_TIMES) -> list[int]:
    """The times of one pass as a row keeps them: each, or the sums of at most `most` equal stretches."""
    if len(times) <= most:
        return list(times)
    bounds = np.linspace(0, len(times), most + 1).astype(int).tolist()
    return [sum(times[begin:end]) for begin, end in pairwise(bounds)]
