"""How sequence decoding is driven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.common import statistics
from harness.common.errors import RequestError
from harness.contracts import Artifacts, Decoded, Phases, Shared
from harness.contracts.ratios import Ratio
from harness.contracts.tasks import Measure
from harness.measure.drivers.acceptance import acceptance
from harness.measure.drivers.driver import Demand, Driver, Essence, batches, by_item, sums, thinned
from harness.measure.drivers.refusals import counted, possible
from harness.plan.registry import label


class DecodingDriver(Driver):
    """Share of outputs that equal the baseline's token for token; sources are decoded in the setting's batches. Of the
    timed calls: tokens a second, and milliseconds of drafting and verifying for each iteration. A method that
    implements `gap` may differ at near ties only."""

    demands = (Demand("wide_differences", "at most", 0), Demand("exact_match", "at least", 0.98))
    material: ClassVar[tuple[str, ...]] = ("model",)
    ratios: ClassVar[Mapping[str, Ratio]] = {
        **Driver.ratios,
        "tokens_per_second": Ratio({"method.tokens": 1}, per={"method": 1}),
        "baseline_tokens_per_second": Ratio({"speed_baseline.tokens": 1}, per={"baseline": 1}),
        "draft_ms": Ratio({"method.draft": 1000}, per={"method.iterations": 1}),
        "verify_ms": Ratio({"method.verify": 1000}, per={"method.iterations": 1}),
    }

    def fit(self, method: Any, setting: Any, artifacts: Artifacts, needs: Sequence[str] = ()) -> None:
        asked = {"reference-text": setting.reference, "training-pairs": setting.training}
        given = {need: make() for need, make in asked.items() if need in needs and make is not None}
        if missing := [need for need in asked if need in needs and need not in given]:
            raise RequestError(f"{label(method)} needs {' and '.join(missing)}, which the task's setting does not hold")
        method.fit(setting.model, given.get("reference-text", ()), given.get("training-pairs", ()), artifacts)

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[Decoded]:
        return [d for batch in batches(items, setting.batch) for d in self._batch(method, setting, batch, phases)]

    def parts(self, setting: Any) -> Sequence[Any]:
        return batches(setting.evaluation, getattr(setting, "batch", 1))

    def _batch(self, method: Any, setting: Any, batch: Any, phases: Phases) -> list[Decoded]:
        answers: list[Decoded] = method.decode(setting.model, batch, setting.limit, phases)
        counted(method, len(answers), len(batch), "sources")
        return [possible(method, setting, answer) for answer in answers]

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        return batches([setting.timed[i] for i in items.tolist()], getattr(setting, "batch", 1))

    def essence(self, answers: Sequence[Decoded]) -> Essence:
        ids = [np.asarray(a.ids, np.int64) for a in answers]
        flat = np.concatenate(ids) if ids else np.empty(0, np.int64)
        return {"ids": flat, "offsets": np.cumsum([0, *map(len, ids)])}

    def joined(self, parts: Sequence[Essence]) -> Essence:
        lengths = np.concatenate([np.diff(part["offsets"]) for part in parts])
        return {"ids": np.concatenate([part["ids"] for part in parts]), "offsets": np.cumsum([0, *lengths])}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        name, same = self.agreement(method, baseline)
        return {name: Measure.of(same.mean(), statistics.share_interval(same))}

    def agreement(self, method: Essence, baseline: Essence) -> tuple[str, NDArray[np.float64]]:
        pairs = zip(_split(method), _split(baseline), strict=True)
        return "exact_match", np.asarray([np.array_equal(ours, theirs) for ours, theirs in pairs], np.float64)

    def differences(
        self, method: Any, setting: Any, items: Sequence[Any], ours: Essence, theirs: Essence
    ) -> dict[str, Measure]:
        """`differing` outputs, the `widest_gap` of theirs, and `wide_differences`: those whose gap is above a near tie
        or not a number. Exact counts, so their intervals are points."""
        gaps = []
        for source, output, expected in zip(items, _split(ours), _split(theirs), strict=True):
            if not np.array_equal(output, expected):
                gap = method.gap(setting.model, source, output.tolist(), expected.tolist(), setting.limit)
                if gap is None:
                    return {}
                gaps.append(gap)
        found = {
            "differing": float(len(gaps)),
            "widest_gap": float(np.max(gaps, initial=0.0)),
            "wide_differences": float(sum(not gap <= method.near_tie(setting.model) for gap in gaps)),
        }
        return {name: Measure(value, value, value) for name, value in found.items()}

    def compared(self, task: Any, setting: Any, ours: Essence, theirs: Essence) -> dict[str, Measure]:
        outputs = ([ids.tolist() for ids in _split(essence)] for essence in (ours, theirs))
        found: dict[str, Measure] = task.compared(setting, *outputs)
        return found

    def counters(self, answers: Sequence[Decoded]) -> dict[str, float]:
        totals = sums([a.trace.counters for a in answers])
        read = by_item(totals, len(answers))
        tokens, iterations = sum(len(a.ids) for a in answers), sum(a.trace.iterations for a in answers)
        if drafted := _drafted(answers):
            totals["drafted"] = sum(drafted)
        totals["tokens"] = tokens
        if iterations:  # an engine of others may not say
            totals["iterations"] = iterations
            totals["iterations_by_item"] = iterations / len(answers)
        return totals | acceptance(answers) | read

    def timing_counters(self, answers: Sequence[Decoded]) -> dict[str, float]:
        return sums([a.trace.timing_counters for a in answers])

    def series(self, answers: Sequence[Decoded]) -> dict[str, list[float]]:
        names = dict.fromkeys(name for a in answers for name in a.trace.series)
        along = {name: thinned([v for a in answers for v in a.trace.series.get(name, ())]) for name in names}
        if drafted := _drafted(answers):
            along["drafted"] = thinned(drafted)
        items = {"tokens": [len(a.ids) for a in answers]}
        if any(a.trace.iterations for a in answers):
            items["iterations"] = [a.trace.iterations for a in answers]
        return {**{name: [float(v) for v in values] for name, values in items.items()}, **along}


def _split(essence: Essence) -> list[NDArray[Any]]:
    return np.split(essence["ids"], essence["offsets"][1:-1])


def _drafted(answers: Sequence[Decoded]) -> list[float]:
    """Tokens drafted in each iteration of each output (0: an ordinary step)."""
    return [float(len(draft)) for a in answers for draft in a.trace.drafts]
