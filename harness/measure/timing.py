"""Paired timing on fresh items.

A process draws its own items (`harness.measure.timed`) and times them in pairs of passes (baseline, method),
alternating AB and BA; no item comes twice. Finally it times both sides once more on the items of its last pair. The
baseline's two times on these items are the noise (A/A); the method's two times tell whether it remembers answers.
`harness.decision` says what the samples of all processes support.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.common.phases import PhaseTimer
from harness.decision import ProcessSample
from harness.measure.usage import Watch

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_TIMES = 64  # times of one side that a row keeps for each pass; more are summed by stretches
WARM_NS = 1e8  # time of calls that a side is warmed up with


class Side:
    """One method as it is timed.

    inputs: item numbers -> what each call gets, prepared off the clock. ask: answers one input; the clock runs around
    it alone. between: what runs between two calls in use, off the clock. synchronise: waits for the device. timer: the
    phases that `ask` records; those of the pairs alone are kept, in `phases` (seconds of one pass).
    """

    def __init__(
        self, ask: Callable[[Any], Any], inputs: Callable[[Any], Sequence[Any]], *,
        between: Callable[[], object] | None = None, synchronise: Callable[[], None] | None = None,
        watch: Watch | None = None, timer: PhaseTimer | None = None,
    ) -> None:  # fmt: skip
        self.ask, self.inputs, self.between, self.synchronise = ask, inputs, between, synchronise
        self.watch, self.timer = watch, timer
        self.phases: dict[str, Any] = {}

    def run(self, items: Any) -> tuple[list[int], list[Any]]:
        """Nanoseconds and answer of each call of one pass, garbage collection off."""
        given = self.inputs(items)
        with _undisturbed(self.watch):
            return self._run(given)

    def _run(self, given: Sequence[Any]) -> tuple[list[int], list[Any]]:
        ask, between, synchronise = self.ask, self.between, self.synchronise
        times, answers = [], []
        for one in given:
            if between is not None:
                between()
            if synchronise is not None:
                synchronise()
            started = perf_counter_ns()
            answer = ask(one)
            if synchronise is not None:
                synchronise()
            times.append(perf_counter_ns() - started)
            answers.append(answer)
        return times, answers

    def loop(self, items: Any) -> int:
        """Nanoseconds of all calls of one pass with nothing between them."""
        given, ask = self.inputs(items), self.ask
        with _undisturbed():
            if self.synchronise is not None:
                self.synchronise()
            started = perf_counter_ns()
            for one in given:
                ask(one)
            if self.synchronise is not None:
                self.synchronise()
            return perf_counter_ns() - started

    def warm(self, items: Any) -> None:
        """Call a few times, off the record: the first calls pay for compilation, caches and lazy initialisation."""
        given = self.inputs(items)
        spent = 0
        for number, one in enumerate(given):
            if spent >= WARM_NS and number >= 2:
                return
            spent += sum(self._run([one])[0])


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
class Measured:
    """A process's sample, and each side's answers to the items of all its pairs, in order (`items`)."""

    sample: ProcessSample
    items: NDArray[np.int64]
    baseline: list[Any]
    method: list[Any]
    times: dict[str, NDArray[np.int64]]  # every single call of the pairs, by side


def measure(
    baseline: Side | None, method: Side, passes: Sequence[NDArray[np.int64]], *, swap: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Measured:  # fmt: skip
    """Time both sides in this process. passes: the first warms up, each other one is a pair. `swap` starts with BA
    (every other process does). Without a baseline the method alone is timed, and no speedup follows."""
    sides = {"baseline": baseline, "method": method} if baseline is not None else {"method": method}
    for side in sides.values():
        side.warm(passes[0])
        if side.timer is not None:
            side.timer.clear()
    sample = ProcessSample([])
    answers: dict[str, list[Any]] = {"baseline": [], "method": []}
    times: dict[str, list[int]] = {"baseline": [], "method": []}
    total = len(passes)
    for number, items in enumerate(passes[1:]):
        order = list(sides) if (number % 2 == 0) != swap else list(sides)[::-1]
        pair: dict[str, Any] = {
            "order": "".join("AB"[name == "method"] for name in order), "count": len(items),
            "items": items.tolist() if len(items) <= MOST_TIMES else None, "baseline_ns": None, "method_ns": None,
        }  # fmt: skip
        for name in order:
            taken, given = sides[name].run(items)
            pair[f"{name}_ns"] = summed(taken)
            answers[name] += given
            times[name] += taken
        sample.pairs.append(pair)
        progress(number + 1, total)
    for side in sides.values():
        if side.timer is not None:
            side.phases = side.timer.record(len(sample.pairs))
    if baseline is not None:
        last = passes[-1]
        order = ["baseline", "method"] if not swap else ["method", "baseline"]
        sample.again = {f"{name}_ns": summed(sides[name].run(last)[0]) for name in order}
        if method.between is not None:
            for number, items in enumerate(passes[1:]):
                order = list(sides) if (number % 2 == 0) != swap else list(sides)[::-1]
                sample.hot.append({f"{name}_ns": float(sides[name].loop(items)) for name in order})
    progress(total, total)
    return Measured(
        sample, np.concatenate(passes[1:]), answers["baseline"], answers["method"],
        {name: np.asarray(values, np.int64) for name, values in times.items() if values},
    )  # fmt: skip


def summed(times: Sequence[int], most: int = MOST_TIMES) -> list[int]:
    """The times of one pass as a row keeps them: each, or the sums of at most `most` equal stretches."""
    if len(times) <= most:
        return list(times)
    bounds = np.linspace(0, len(times), most + 1).astype(int).tolist()
    return [sum(times[begin:end]) for begin, end in pairwise(bounds)]
