"""A phase timer: the seconds of a run by phase. One enter and exit cost about a microsecond."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter_ns
from types import TracebackType
from typing import Any, TypeAlias


class _Phase:
    __slots__ = ("name", "timer")

    def __init__(self, timer: PhaseTimer, name: str) -> None:
        self.timer = timer
        self.name = name

    def __enter__(self) -> None:
        self.timer._switch(self.name, entering=True)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.timer._switch(self.name, entering=False)


class PhaseTimer:
    """Seconds by phase. A phase inside another interrupts it: every nanosecond belongs to at most one phase.

    `synchronise` is called at every boundary, so that work queued on a device counts for the phase that queued it.
    """

    def __init__(self, synchronise: Callable[[], None] | None = None) -> None:
        self._synchronise = synchronise
        self._stack: list[str] = []
        self._since = 0
        self._nanoseconds: dict[str, int] = {}
        self._overlapped: dict[str, float] = {}

    def __call__(self, name: str) -> _Phase:
        return _Phase(self, name)

    def overlapped(self, name: str, seconds: float) -> None:
        """Record seconds spent in a worker thread, outside the sum of phases."""
        self._overlapped[name] = self._overlapped.get(name, 0.0) + seconds

    def _switch(self, name: str, entering: bool) -> None:
        if self._synchronise is not None:
            self._synchronise()
        now = perf_counter_ns()
        if self._stack:
            current = self._stack[-1]
            self._nanoseconds[current] = self._nanoseconds.get(current, 0) + now - self._since
        if entering:
            self._stack.append(name)
        else:
            self._stack.pop()
        self._since = now

    def clear(self) -> None:
        """Forget all records."""
        self._nanoseconds.clear()
        self._overlapped.clear()

    def record(self, passes: int) -> dict[str, Any]:
        """Means over `passes`: {"seconds": by phase, without phases inside it, "overlapped": by phase}."""
        return {
            "seconds": {name: ns / 1e9 / passes for name, ns in sorted(self._nanoseconds.items())},
            "overlapped": {name: seconds / passes for name, seconds in sorted(self._overlapped.items())},
        }


class NoPhases(nullcontext[None]):
    """Phases that record nothing, for passes that are not timed."""

    def __call__(self, name: str) -> NoPhases:
        return self

    def overlapped(self, name: str, seconds: float) -> None:
        return None


Phases: TypeAlias = PhaseTimer | NoPhases
"""Times the parts of a run: `with phases("search"): ...` (seconds add up per name)."""
