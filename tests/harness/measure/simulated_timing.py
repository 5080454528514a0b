"""Timing samples of a machine that can be disturbed, for tests of the whole decision rule."""

from __future__ import annotations

import numpy as np

from harness.decision import ProcessSample

KINDS = ("quiet", "drift", "heavy tails", "neighbour")
ONE_SIDED = ("neighbour of the memory", "neighbour of the memory, by process")  # slow the baseline alone


class Machine:
    """Times of passes: items differ, a process has a layout of its own, and the kind says what disturbs it.

    quiet: 2% noise a pass. drift: the speed walks by 4% from pass to pass. heavy tails: one pass in eight takes 1.1 to
    3 times as long. neighbour: somebody else's work comes and goes and slows what it meets by 40%. neighbour of the
    memory: it slows the side that streams memory, the baseline, by 60%, and leaves the other alone; from pass to pass,
    or in half of the processes from beginning to end.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.rng = np.random.default_rng(seed)
        self.speed, self.busy, self.noise = 1.0, False, 0.02

    def slowdown(self, name: str = "method_ns") -> float:
        rng = self.rng
        noise = float(np.exp(rng.normal(0, self.noise)))
        if self.kind == "drift":
            self.speed *= float(np.exp(rng.normal(0, 0.04)))
        if self.kind == "heavy tails" and rng.random() < 1 / 8:
            noise *= min(3.0, 1 + 0.1 * (1 + rng.pareto(1.5)))
        if self.kind == "neighbour":
            self.busy = bool(rng.random() < (0.6 if self.busy else 0.15))
            noise *= 1.4 if self.busy else 1.0
        if self.kind == "neighbour of the memory":
            self.busy = bool(rng.random() < (0.6 if self.busy else 0.15))
        if self.kind in ONE_SIDED and self.busy and name == "baseline_ns":
            noise *= 1.6
        return noise * self.speed

    def process(self, number: int, pairs: int, ratio: float, layout: float = 0.02) -> ProcessSample:
        """A process in which the method is `ratio` times as fast, but for a layout that favours one side by chance."""
        bias = float(np.exp(self.rng.normal(0, layout)))
        if self.kind == "neighbour of the memory, by process":
            self.busy = bool(self.rng.random() < 0.5)
        taken = []
        for pair in range(pairs):
            work = 1e9 * (1.0 if self.kind in ONE_SIDED else float(np.exp(self.rng.normal(0, 0.3))))
            times = {"baseline_ns": work, "method_ns": work / ratio * bias}
            order = ["baseline_ns", "method_ns"] if (pair + number) % 2 == 0 else ["method_ns", "baseline_ns"]
            times = {name: [times[name] * self.slowdown(name)] for name in order}
            taken.append({"order": "AB", "count": 5, "items": [100 * number + 5 * pair + i for i in range(5)], **times})
        again = {
            "baseline_ns": [work * self.slowdown("baseline_ns")],
            "method_ns": [work / ratio * bias * self.slowdown()],
        }
        return ProcessSample(taken, again, work=float(pairs) if self.kind in ONE_SIDED else None)

    def cell(self, processes: int, pairs: int, ratio: float, layout: float = 0.02) -> list[ProcessSample]:
        return [self.process(number, pairs, ratio, layout) for number in range(processes)]
