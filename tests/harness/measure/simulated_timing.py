"""Timing samples of a machine that can be disturbed, for tests of the whole decision rule."""

from __future__ import annotations

import numpy as np

from harness.decision import ProcessSample

KINDS = ("quiet", "drift", "heavy tails", "neighbour")


class Machine:
    """Times of passes: items differ, a process has a layout of its own, and the kind says what disturbs it.

    quiet: 2% noise a pass. drift: the speed walks by 4% from pass to pass. heavy tails: one pass in eight takes 1.1 to
    3 times as long. neighbour: somebody else's work comes and goes and slows what it meets by 40%.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.rng = np.random.default_rng(seed)
        self.speed, self.busy = 1.0, False

    def slowdown(self) -> float:
        rng = self.rng
        noise = float(np.exp(rng.normal(0, 0.02)))
        if self.kind == "drift":
            self.speed *= float(np.exp(rng.normal(0, 0.04)))
        if self.kind == "heavy tails" and rng.random() < 1 / 8:
            noise *= min(3.0, 1 + 0.1 * (1 + rng.pareto(1.5)))
        if self.kind == "neighbour":
            self.busy = bool(rng.random() < (0.6 if self.busy else 0.15))
            noise *= 1.4 if self.busy else 1.0
        return noise * self.speed

    def process(self, number: int, pairs: int, ratio: float, layout: float = 0.02) -> ProcessSample:
        """A process in which the method is `ratio` times as fast, but for a layout that favours one side by chance."""
        bias = float(np.exp(self.rng.normal(0, layout)))
        taken = []
        for pair in range(pairs):
            work = 1e9 * float(np.exp(self.rng.normal(0, 0.3)))
            times = {"baseline_ns": work, "method_ns": work / ratio * bias}
            order = ["baseline_ns", "method_ns"] if (pair + number) % 2 == 0 else ["method_ns", "baseline_ns"]
            times = {name: [times[name] * self.slowdown()] for name in order}
            taken.append({"order": "AB", "count": 5, "items": [100 * number + 5 * pair + i for i in range(5)], **times})
        again = {"baseline_ns": [work * self.slowdown()], "method_ns": [work / ratio * bias * self.slowdown()]}
        return ProcessSample(taken, again)

    def cell(self, processes: int, pairs: int, ratio: float) -> list[ProcessSample]:
        return [self.process(number, pairs, ratio) for number in range(processes)]
