"""IAD over gold outputs instead of the model's: the cost of edits, independent of the model's quality."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.common import statistics
from harness.common.counts import Counts
from harness.common.errors import CellFailedError, RequestError
from harness.common.progress import Progress
from harness.contracts import Artifacts
from harness.contracts.answers import common_prefix
from harness.contracts.metrics import Metric
from harness.contracts.tasks import DecodingSetting, Measure
from harness.plan.registry import analysis
from methods.aggressive.iad import IadOptions
from methods.decoding.drafting.drafter import Drafter


@analysis("iad-forced", summary="iterations of IAD over gold outputs forced on the model")
class IadForced(IadOptions):
    """Drafts are compared with the gold output instead of the model's choice. No model runs, and the number of
    iterations is exact.

    edits: range of edits, as the task counts them, of the gold outputs used: `2`, `3-4`, `5+`. The others: see
    `IadOptions`.
    """

    measures = (
        Metric("accepted_tokens", better="higher"),
        Metric("edits", "edits a sentence"),
        Metric("outputs", "gold outputs"),
    )

    edits: int | str = "0+"

    def __post_init__(self) -> None:
        self._wanted = Counts.parse(self.edits, "edits")

    def __call__(self, setting: DecodingSetting, artifacts: Artifacts, progress: Progress) -> dict[str, Measure]:
        """`accepted_tokens` (mean acceptance length, pooled), `edits`, and the number of gold `outputs`.

        Raises `RequestError` if the task has no gold outputs, and `CellFailedError` if none has that number of edits.
        """
        if setting.gold is None:
            raise RequestError("iad-forced needs gold outputs, which this task's setting does not hold")
        framed, ends = setting.model.kind == "encoder-decoder", set(setting.model.eos_ids)
        every = list(zip(setting.evaluation, setting.gold(), strict=True))
        pairs = [(source, gold) for source, several in every for gold in several]
        sentences = [number for number, (_, several) in enumerate(every) for _ in several]
        chosen = [number for number, (_, gold) in enumerate(pairs) if gold.edits in self._wanted]
        if not chosen:
            raise CellFailedError(f"edits = {self.edits}: no gold output has that many edits; give another range")
        # by sentence: the gold outputs of one sentence are not independent
        tokens, iterations = np.zeros(len(setting.evaluation)), np.zeros(len(setting.evaluation))
        for number in progress.track(chosen, "forcing gold outputs", unit="outputs"):
            source, gold = pairs[number]
            for block in blocks(self.drafting([source], ends, framed), gold.ids, setting.limit):
                tokens[sentences[number]] += len(block)
                iterations[sentences[number]] += 1
        tokens, iterations = tokens[iterations > 0], iterations[iterations > 0]
        if not len(iterations):
            raise CellFailedError("the gold outputs hold no token; give others, or a higher limit")
        interval = statistics.block_jackknife([tokens, iterations], lambda t, i: t / i, block=1)
        return {
            "accepted_tokens": Measure.of(tokens.sum() / iterations.sum(), interval),
            "edits": Measure.of(np.mean([pairs[n][1].edits for n in chosen]), None),
            "outputs": Measure.of(len(chosen), None),
        }


def blocks(drafter: Drafter, output: Sequence[int], limit: int) -> Iterator[Sequence[int]]:
    """The tokens accepted by each iteration if the model writes the first `limit` tokens of this output, number 0 of
    the drafter's."""
    output, written = output[:limit], 0
    while written < len(output):
        [draft] = drafter.draft([0], [limit - written - 1])
        agreed = common_prefix(draft, output[written:])
        block = output[written : written + agreed + 1]
        yield block
        drafter.accept(0, block, len(draft))
        written += len(block)
