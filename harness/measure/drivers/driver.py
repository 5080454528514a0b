"""What every driver does: fit a method, ask it, compare its answers with its baseline's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from harness.contracts import Artifacts, Phases, Shared
from harness.contracts.ratios import Ratio
from harness.contracts.tasks import Measure

LONGEST_SERIES = 1000  # points of a series that goes along tokens or steps; one value per item is never thinned
Essence = dict[str, "NDArray[Any]"]


@dataclass(frozen=True, slots=True)
class Demand:
    """A fidelity that is demanded: `metric` is at most, or at least, `bound`."""

    metric: str
    is_: Literal["at most", "at least"]
    bound: float


class Driver(ABC):
    """One contract's way from a method and a setting to answers and fidelity.

    demands: the fidelity that a claim about speed needs where a recipe states none; the first whose metric is measured
    counts. limits: what the timed answers must satisfy besides. ratios: further metrics of the timed calls.
    consecutive: a timed pass holds neighbours of the pool, because in use they follow each other. varies: whether
    inputs can be changed a little (`vary`). material: of the setting, what fitting gets; the first, the model or layer,
    is what `open` gets.
    """

    material: ClassVar[tuple[str, ...]]
    demands: ClassVar[tuple[Demand, ...]]
    limits: ClassVar[tuple[Demand, ...]] = ()
    ratios: ClassVar[Mapping[str, Ratio]] = {  # a counter is the mean of a side's timed items
        "bytes_read": Ratio({"method.bytes_read*items": 1}, per={"items": 1}),
        "baseline_bytes_read": Ratio({"speed_baseline.bytes_read*items": 1}, per={"items": 1}),
    }
    consecutive: ClassVar[bool] = False
    varies: ClassVar[bool] = True

    def subject(self, setting: Any) -> Any:
        """The model or layer that `open` gets."""
        return getattr(setting, self.material[0])

    def fit(self, method: Any, setting: Any, artifacts: Artifacts, needs: Sequence[str] = ()) -> None:
        """Fit a method on the setting's training material. needs: what the method's decorator names."""
        method.fit(*(getattr(setting, name) for name in self.material), artifacts)

    @abstractmethod
    def answer(self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None) -> Any:
        """Checked answers to items, those of `setting.evaluation` in the quality pass.

        Raises `RequestError` naming the method where an answer cannot be: a wrong count, a number that is not finite, a
        probability above 1, an id outside the vocabulary.
        """

    def parts(self, setting: Any) -> Sequence[Any]:
        """The evaluation items in parts, so that progress shows. `answer` must give for each what it gives for all."""
        return [setting.evaluation]

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        """What each timed call gets, for these numbers of `setting.timed`."""
        return [[setting.timed[i]] for i in items.tolist()]

    def vary(self, given: Any) -> Any:
        """An input of a timed call with one token less in the middle of each of its sequences: as much work, and
        nothing that a method can have seen."""
        return [[*one[: len(one) // 2], *one[len(one) // 2 + 1 :]] if len(one) > 2 else one for one in given]

    def work(self, answers: Any) -> float | None:
        """How many equal pieces of work the timed answers are, so that times of other items can be compared: contexts,
        tokens of a text. None where items differ."""
        return None

    def consistent(self, method: Any, setting: Any) -> None:  # noqa: B027 - most answers show nothing more
        """Refuse a method whose answers contradict each other, as `answer` does. Part of the quality pass."""

    def asker(self, method: Any, setting: Any, phases: Phases) -> Callable[[Any], Any]:
        """The call that is timed, of one input: the work of the quality pass."""
        return lambda items: self.answer(method, setting, items, phases)

    def gathered(self, method: Any, setting: Any, items: NDArray[np.int64], calls: Sequence[Any]) -> Any:
        """The timed calls' answers to these items as `answer` gives them, checked likewise."""
        return [answer for call in calls for answer in call]

    @abstractmethod
    def essence(self, answers: Any) -> Essence:
        """What fidelity needs of the answers."""

    def joined(self, parts: Sequence[Essence]) -> Essence:
        """The essence of the answers of several processes, in order."""
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    @abstractmethod
    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        """How close the method's answers are to the baseline's."""

    def agreement(self, method: Essence, baseline: Essence) -> tuple[str, NDArray[np.float64]] | None:
        """The metric of `fidelity` that is a mean over items, and its value for each item; None where no metric is."""
        return None

    def differences(
        self, method: Any, setting: Any, items: Sequence[Any], ours: Essence, theirs: Essence
    ) -> dict[str, Measure]:
        """What the answers to these items that differ from the baseline's are, where the method can tell: counts."""
        return {}

    def compared(self, task: Any, setting: Any, ours: Essence, theirs: Essence) -> dict[str, Measure]:
        """What the task says of the difference between all answers and the baseline's."""
        return {}

    def counters(self, answers: Any) -> dict[str, float]:
        """Totals of the answers' deterministic counters."""
        return {}

    def sums(
        self, methods: Mapping[str, Any], setting: Any, calls: Mapping[str, Sequence[Any]], answers: Mapping[str, Any]
    ) -> dict[str, float]:
        """What this driver's and the method's ratios go by, as `ROLE.COUNTER`: totals of the timed answers' counters,
        and the fitted methods' own. methods, calls, answers: of each role, what was asked, what the timed calls gave,
        and what that comes to."""
        every = (*self.ratios.values(), *methods["method"].ratios.values())
        wanted = {name for ratio in every for name in ratio.names}
        return {
            f"{role}.{name}": value
            for role, given in answers.items() if any(one.startswith(f"{role}.") for one in wanted)
            for name, value in (self.counters(given) | self.costs(methods[role], setting)).items()
            if f"{role}.{name}" in wanted
        }  # fmt: skip

    def costs(self, method: Any, setting: Any) -> dict[str, float]:
        """The fitted method's own counters, of the call that is timed."""
        return dict(method.counters())

    def timing_counters(self, answers: Any) -> dict[str, float]:
        """Totals of the counters that depend on timing by design; they never gate."""
        return {}

    def series(self, answers: Any) -> dict[str, list[float]]:
        """Figures of each item, or along the items, by name."""
        return {}


def batches(items: Any, size: int) -> list[Any]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def thinned(values: list[float]) -> list[float]:
    """A long series as the means of equal stretches."""
    if len(values) <= LONGEST_SERIES:
        return values
    return [float(part.mean()) for part in np.array_split(np.asarray(values), LONGEST_SERIES)]


def sums(counters: Sequence[dict[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for one in counters:
        for name, value in one.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def by_item(totals: dict[str, float], items: int) -> dict[str, float]:
    """Take `bytes_read` (`methods.bandwidth`) out of totals: its mean over the items, where it is counted."""
    return {"bytes_read": totals.pop("bytes_read") / items} if "bytes_read" in totals else {}
