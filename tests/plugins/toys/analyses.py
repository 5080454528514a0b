"""An analysis that counts, and a timed one of two sides that wait."""

from __future__ import annotations

import time

from harness.contracts.analyses import TimedAnalysis
from harness.contracts.ratios import Ratio
from harness.contracts.tasks import Measure
from harness.plan.registry import analysis


@analysis("toy-counting", summary="counts prompts")
def counting(setting, artifacts, progress):
    return {"prompts": Measure(float(len(setting.evaluation)))}


@analysis("toy-waiting", summary="waits for every item, in two ways")
class Waiting(TimedAnalysis):
    """`wrong`: every other item's answer of the second side is another one. `remembers`: an item known is not waited
    for."""

    first: float = 0.002
    second: float = 0.001
    wrong: bool = False
    remembers: bool = False

    def __post_init__(self):
        self.known: set[int] = set()

    @property
    def ratios(self):
        return {
            "gain": Ratio({"baseline": 1}, per={"method": 1}, equal=1),
            "saved_share": Ratio({"baseline": 1, "method": -1}, per={"ideal": 1}, equal=0),
            "second_ms": Ratio({"method": 1e3}, per={"items": 1}),
        }

    def fit(self, setting, artifacts, progress):
        artifacts.build("waits", {"pool": 200}, lambda folder: (folder / "pool.txt").write_text("200"))
        artifacts.values["built"] = 1

    def open(self, setting, artifacts):
        self.pool = int((artifacts.path("waits") / "pool.txt").read_text())

    def items(self):
        return self.pool, 5

    def inputs(self, items):
        return items.tolist()

    def baseline(self, given):
        time.sleep(self.first)
        return given

    def method(self, given):
        if not (self.remembers and given in self.known):
            time.sleep(self.second)
        self.known.add(given)
        return -given if self.wrong and given % 2 else given

    def answers(self, call):
        return [[call]]

    def sums(self, calls):
        return {"ideal": self.first * len(calls)}
