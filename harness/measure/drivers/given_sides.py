"""How a timed analysis is driven: it gives both sides of a pair itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from harness.contracts import Decoded, Phases
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.tasks import Measure
from harness.measure.drivers.driver import Essence
from harness.measure.drivers.sequence_decoding import DecodingDriver

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class GivenSides(DecodingDriver):
    """The two calls of a timed analysis. Their answers are sequences of ids, compared as outputs are."""

    varies: ClassVar[bool] = False

    def __init__(self, run: TimedAnalysis) -> None:
        self.run = run

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        return self.run.inputs(items)

    def asker(self, method: Any, setting: Any, phases: Phases) -> Callable[[Any], Any]:
        call: Callable[[Any], Any] = method
        return call

    def gathered(self, method: Any, setting: Any, items: NDArray[np.int64], calls: Sequence[Any]) -> Any:
        return [Decoded(list(ids)) for call in calls for ids in self.run.answers(call)]

    def differences(
        self, method: Any, setting: Any, items: Sequence[Any], ours: Essence, theirs: Essence
    ) -> dict[str, Measure]:
        return {}

    def sums(
        self, methods: Mapping[str, Any], setting: Any, calls: Mapping[str, Sequence[Any]], answers: Mapping[str, Any]
    ) -> dict[str, float]:
        return self.run.sums(calls["speed_baseline"])
