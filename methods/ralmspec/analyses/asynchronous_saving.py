"""Share of the ideal saving that asynchronous verification reaches with two threads of a small machine (Zhang et al.,
2024, section 4, asynchronous verification)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
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

Call = tuple[Sequence[int], Record]  # output ids and the request's record


@analysis("asynchronous-saving", summary="share of the ideal saving that asynchronous verification reaches")
class AsynchronousSaving(IterativeOptions, TimedAnalysis):
    """The same requests at a fixed stride, alternately synchronous (one thread) and asynchronous (one thread for steps,
    one for verifications).

    The paper's ideal saves min(a, b) in every round without a mismatch: one step overlaps the verification. a and b are
    the synchronous request's means. Here as many steps overlap as fit, so the share can exceed 1 if b > a. The saving
    possible then is min(s a, b) a round, `pipelined_s`.

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
        """Seconds per request: `synchronous_s` and `asynchronous_s`; possible savings `ideal_s` and `pipelined_s`.
        `asynchronous_share`, `pipelined_share`: the actual saving over the sum of `ideal_s` or `pipelined_s`."""
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
        """Open both sides. Searches and generation keep one thread each for the rest of this process."""
        self.setting = setting
        use_one_thread()  # also for searches opened afterwards
        for side in (self.synchronous, self.asynchronous):
            side.open(setting.model, artifacts)
        use_one_thread()  # for faiss, if opening loaded it

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
        """Seconds that the synchronous requests could save if one step overlaps, and if all steps of a round do."""
        ideals = [_ideal(record) for _, record in calls]
        return {"ideal": sum(one for one, _ in ideals), "pipelined": sum(every for _, every in ideals)}


def _ideal(record: Record) -> tuple[float, float]:
    """Seconds that a request could save if one step overlaps, and if all steps of a round do."""
    verified = [(s, matched) for s, matched in record.rounds if s]
    clean = [s for s, matched in verified if matched == s]
    if not clean:
        return 0.0, 0.0
    a = (record.step_s + record.guess_s) / record.steps
    b = record.verification_s / len(verified)
    return len(clean) * min(a, b), sum(min(s * a, b) for s in clean)
