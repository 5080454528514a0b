"""Share of the reference text that is left out because it overlaps the evaluation text (Liu et al., 2024, Table 6)."""

from __future__ import annotations

from harness.common import statistics
from harness.common.errors import RequestError, unknown
from harness.common.progress import Progress
from harness.contracts import Artifacts
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Measure, TokenScoringSetting
from harness.plan.registry import analysis


@analysis("decontamination", summary="documents of reference text that are left out for what they share with the test")
class Decontamination:
    """dataset: one of the task's further data sets (`task.more_text`); by default its own reference text."""

    measures = (
        Metric("documents", kind="counter"),
        Metric("left_out", "documents left out", kind="counter"),
        Metric("left_out_percent", "left out", "%"),
    )

    dataset: str = ""

    def __call__(self, setting: TokenScoringSetting, artifacts: Artifacts, progress: Progress) -> dict[str, Measure]:
        """`documents`, those `left_out`, and their share `left_out_percent` with Wilson's interval. Raises
        `RequestError` if the task has no such data set."""
        if not setting.filtered:
            raise RequestError("the task does not compare its reference text with its test; wikitext-perplexity does")
        if self.dataset not in setting.filtered:
            raise unknown("data set", self.dataset, [name for name in setting.filtered if name], "task.more_text")
        documents, left_out = setting.filtered[self.dataset]()
        low, high = statistics.wilson(left_out, documents) if documents else (0.0, 1.0)
        return {
            "documents": Measure.of(documents, None),
            "left_out": Measure.of(left_out, None),
            "left_out_percent": Measure(100 * left_out / max(documents, 1), 100 * low, 100 * high),
        }
