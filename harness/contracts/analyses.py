"""Timed analyses: what claims on times and is no method against its baseline is timed by the same rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.common.progress import Progress
    from harness.contracts.ratios import Ratio
    from harness.contracts.services import Artifacts


class TimedAnalysis(ABC):
    """An analysis that times two ways of doing the same, `baseline` and `method`, on the same items.

    `fit` runs once. Every timing process then opens what it built, draws items of its own
    (`harness.measure.drawing`) and times pairs as a cell's do (`harness.measure.timing`), with the same decision. The
    row's metrics are `ratios`.
    """

    @property
    @abstractmethod
    def ratios(self) -> Mapping[str, Ratio]:
        """Metric -> what of a process's times it is."""

    @abstractmethod
    def fit(self, setting: Any, artifacts: Artifacts, progress: Progress) -> None:
        """Build what is timed, off the clock; `artifacts.values` become the row's counters."""

    @abstractmethod
    def open(self, setting: Any, artifacts: Artifacts) -> None:
        """Open what `fit` built, in a timing process."""

    @abstractmethod
    def items(self) -> tuple[int, int]:
        """How many items there are to draw from, and how many one pass times. Called after `open`."""

    @abstractmethod
    def inputs(self, items: NDArray[Any]) -> Sequence[Any]:
        """What both sides are given for these items, int64 [n], one input each; off the clock."""

    @abstractmethod
    def baseline(self, given: Any) -> Any:
        """The timed call of the one side."""

    @abstractmethod
    def method(self, given: Any) -> Any:
        """The timed call of the other side."""

    @abstractmethod
    def answers(self, call: Any) -> list[Sequence[int]]:
        """Ids in what a timed call of either side returned. Both sides must agree in them, as a method and its baseline
        in their outputs: 98% of these sequences equal, else there is no claim."""

    def sums(self, calls: Sequence[Any]) -> dict[str, float]:
        """Further numbers for `ratios`, of what the baseline's calls in all pairs of a process returned."""
        return {}


def is_timed(analysis: Any) -> bool:
    """Whether an analysis, a class or a function, is a timed one."""
    return isinstance(analysis, type) and issubclass(analysis, TimedAnalysis)
