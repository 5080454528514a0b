"""Progress reports for people: in a worker a JSON line per update to the runner, which draws the bar; elsewhere
(tests, `harness datastore build`) a short line to standard error, at most once a second."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, TypeVar

T = TypeVar("T")
PIPE = "HARNESS_PROGRESS_FD"


def summary(update: Mapping[str, Any]) -> str:
    """One line for one update: `training: 300/1,000 steps loss 3.21`."""
    total = update["total"]
    share = f"{update['done']:,.0f}/{total:,.0f}" if total else f"{update['done']:,.0f}" if update["done"] else ""
    return " ".join(f"{update['stage']}: {share} {update['unit']} {update['note']}".split()).rstrip(":")


class Progress:
    """Reports the current stage and its progress."""

    def __init__(self, label: str = "", quiet: bool = False) -> None:
        self.label = label
        self.quiet = quiet
        self._last = 0.0
        self._fd = int(os.environ[PIPE]) if os.environ.get(PIPE) else None

    def update(self, stage: str, done: float, total: float | None, unit: str = "", note: str = "") -> None:
        """Report that `done` of `total` units of a stage are finished. Cheap: at most ten reports a second are sent."""
        now = time.monotonic()
        finished = total is not None and done >= total
        if self.quiet or (now - self._last < (0.1 if self._fd is not None else 1.0) and not finished):
            return
        self._last = now
        if self._fd is not None:
            line = json.dumps({"stage": stage, "done": done, "total": total, "unit": unit, "note": note})
            try:
                os.write(self._fd, line.encode() + b"\n")
            except OSError:  # the runner is gone; the work goes on
                self._fd = None
        else:
            update = {"stage": stage, "done": done, "total": total, "unit": unit, "note": note}
            print(f"{self.label}{summary(update)}", file=sys.stderr, flush=True)

    def track(self, items: Iterable[T], stage: str, total: int | None = None, unit: str = "") -> Iterator[T]:
        """Yield items and report each as one unit done."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        for number, item in enumerate(items, 1):
            yield item
            self.update(stage, number, total, unit)
