"""How much of what asynchronous verification could save it saves (Zhang et al., 2024, section 4, asynchronous
verification): what two threads of a small machine make of the ideal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from harness.common.phases import NoPhases
from harness.common.progress import Progress
from harness.contracts import Artifacts
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.ratios import Ratio
from harness.contracts.tasks import RetrievalSetting
from harness.plan.registry import analysis
from methods.nearest.threads import use_one_thread
from methods.ralmspec.core.record import Record
from methods.ralmspec.passages.methods import IterativeOptions, RalmSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

Call = tuple[Sequence[int], Record]  # output ids and what happened


@analysis("asynchronous-saving", summary="share of the ideal saving that asynchronous verification reaches")
class AsynchronousSaving(IterativeOptions, TimedAnalysis):
    """The same requests at a fixed stride, synchronously on one thread, and asynchronously with one thread for the
    steps and one for the verifications, in turn. The ideal hides, in every round whose steps were all right, the
    shorter of a step and a verification, a and b as the request has them synchronously. It is the paper's, which lets
    one step overlap; here as many do as there is time for, so where b > a the share can exceed 1. `pipelined_s` is what
    could be saved so: the shorter of all the round's steps and its verification.

    An item is a prompt that the task offers for timing. stride, prefetch: as in `ralmspec`. The others: see
    `IterativeOptions`.
    """

    stride: Annotated[int, Field(ge=1)] = 3
    prefetch: Annotated[int, Field(ge=1)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.synchronous, self.asynchronous = (
            RalmSpec(**asdict(self), asynchronous=asynchronous) for asynchronous in (False, True)
        )

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Seconds a request: `synchronous_s`, `asynchronous_s`, `ideal_s` and `pipelined_s` (of saving).
        `asynchronous_share`, `pipelined_share`: what was saved, of the sum of either."""
        saved = {"baseline": 1.0, "method": -1.0}
        return {
            "synchronous_s": Ratio({"baseline": 1}, per={"items": 1}),
            "asynchronous_s": Ratio({"method": 1}, per={"items": 1}),
            "ideal_s": Ratio({"ideal": 1}, per={"items": 1}),
            "pipelined_s": Ratio({"pipelined": 1}, per={"items": 1}),
            "asynchronous_share": Ratio(saved, per={"ideal": 1}, equal=0),
            "pipelined_share": Ratio(saved, per={"pipelined": 1}, equal=0),
        }

    def fit(self, setting: RetrievalSetting, artifacts: Artifacts, progress: Progress) -> None:
        self.synchronous.fit(setting.model, setting.knowledge, setting.validation, artifacts)

    def open(self, setting: RetrievalSetting, artifacts: Artifacts) -> None:
        """Open both sides, with one thread each for the rest of this process."""
        self.setting = setting
        use_one_thread()  # searches opened afterwards have one, too
        for side in (self.synchronous, self.asynchronous):
            side.open(setting.model, artifacts)
        use_one_thread()  # faiss, where opening loaded it

    def items(self) -> tuple[int, int]:
        return len(self.setting.timed), self.setting.sample

    def inputs(self, items: NDArray[np.int64]) -> list[Sequence[int]]:
        return [self.setting.timed[item] for item in items.tolist()]

    def baseline(self, given: Sequence[int]) -> Call:
        return self._served(self.synchronous, given)

    def method(self, given: Sequence[int]) -> Call:
        return self._served(self.asynchronous, given)

    def _served(self, side: RalmSpec, prompt: Sequence[int]) -> Call:
        output = side.generate(self.setting.model, prompt, self.setting.limit, NoPhases())
        return output.ids, side.record

    def answers(self, call: Call) -> list[Sequence[int]]:
        return [call[0]]

    def sums(self, calls: Sequence[Call]) -> dict[str, float]:
        """Seconds that the synchronous requests could save, if one step overlaps and if all of a round may."""
        ideals = [_ideal(record) for _, record in calls]
        return {"ideal": sum(one for one, _ in ideals), "pipelined": sum(every for _, every in ideals)}


def _ideal(record: Record) -> tuple[float, float]:
    """Seconds that a request could save, if one step overlaps and if all of a round may."""
    if not record.clean:
        return 0.0, 0.0
    a = (record.step_s[False] + record.guess_s) / record.steps[False]
    b = record.verification_s / record.rounds
    return record.clean.total() * min(a, b), sum(n * min(s * a, b) for s, n in record.clean.items())
