"""Timed analyses: comparisons of times that are not a method against its baseline, timed by the same rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.common.cache import CellArtifacts as Artifacts
    from harness.common.progress import Progress
    from harness.contracts.ratios import Ratio


class TimedAnalysis(ABC):
    """An analysis that times two ways of doing the same, `baseline` and `method`, on the same items.

    `fit` runs once. Every timing process opens its result, draws its own items (`harness.measure.timed`) and times
    pairs like the processes of a cell (`harness.measure.timing`), with the same decision. The row's metrics are
    `ratios`.
    """

    @property
    @abstractmethod
    def ratios(self) -> Mapping[str, Ratio]:
        """Metric -> its ratio of a process's times."""

    @abstractmethod
    def fit(self, setting: Any, artifacts: Artifacts, progress: Progress) -> None:
        """Build what is timed, untimed. `artifacts.values` become the row's counters."""

    @abstractmethod
    def open(self, setting: Any, artifacts: Artifacts) -> None:
        """Open what `fit` built, in a timing process."""

    @abstractmethod
    def items(self) -> tuple[int, int]:
        """(number of items to draw from, number of items of one timed pass). Called after `open`."""

    @abstractmethod
    def inputs(self, items: NDArray[Any]) -> Sequence[Any]:
        """The inputs of both sides for these items, int64 [n], one per item; untimed."""

    @abstractmethod
    def baseline(self, given: Any) -> Any:
        """The timed call of the baseline."""

    @abstractmethod
    def method(self, given: Any) -> Any:
        """The timed call of the method."""

    @abstractmethod
    def answers(self, call: Any) -> list[Sequence[int]]:
        """Id sequences in the result of a timed call of either side. As with outputs of a method and its baseline, 98%
        of them must be equal on both sides, else there is no claim."""

    def sums(self, calls: Sequence[Any]) -> dict[str, float]:
        """Further numbers for `ratios`, from the results of the baseline's calls in all pairs of a process."""
        return {}


def is_timed(analysis: Any) -> bool:
    """Whether an analysis (a class or a function) is timed."""
    return isinstance(analysis, type) and issubclass(analysis, TimedAnalysis)
