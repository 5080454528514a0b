"""How retrieval generation is driven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.contracts import Decoded, Phases, Shared
from harness.contracts.ratios import Ratio
from harness.measure.drivers.driver import Driver
from harness.measure.drivers.refusals import possible
from harness.measure.drivers.sequence_decoding import DecodingDriver


class RetrievalDriver(DecodingDriver):
    """As for sequence decoding, one prompt at a time. `baseline_retrieval_share`: of the time of the speed baseline's
    calls, what retrieval took with the encoding of queries."""

    material = ("model", "knowledge", "validation")
    fit = Driver.fit
    ratios: ClassVar[Mapping[str, Ratio]] = {
        **DecodingDriver.ratios,
        "baseline_retrieval_share": Ratio(
            {"speed_baseline.retrieve": 1, "speed_baseline.encode": 1}, per={"baseline": 1}
        ),
    }

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[Decoded]:
        generate, model, limit = method.generate, setting.model, setting.limit
        return [possible(method, setting, generate(model, prompt, limit, phases)) for prompt in items]
