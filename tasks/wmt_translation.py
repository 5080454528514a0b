"""Translation by a Transformer: GAD's Tables 5 to 9, 14 to 17 and Figures 7 and 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.common.cache import Cache
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, DecodingSetting, Measure, Scale
from harness.plan.registry import task
from tasks.bases.distilled import DistilledTask
from tasks.bases.parallel import ParallelOptions
from tasks.bases.seq2seq import Items
from tasks.data.parallel import ParallelSource
from tasks.metrics.bleu import bleu, bleu_difference, chrf, signature


@task(
    "wmt-translation", contract="sequence-decoding", provides=("training-pairs",),
    summary="translation of WMT, Multi30k or another parallel text, BLEU and chrF",
)  # fmt: skip
@dataclass(kw_only=True, eq=False)
class WmtTranslation(ParallelOptions, DistilledTask):
    """Parameters: those of `ParallelOptions` and of `DistilledTask`."""

    measures = (
        Metric("bleu", "BLEU", better="higher"),
        Metric("bleu_difference", "BLEU difference", better="higher"),
        Metric("chrf", "chrF", better="higher"),
    )
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"source": "generated", "model": "train:mini-translator", "evaluation": 100, "timed": 8, "limit": 64},
        "small": {"model": "train:small-translator"},
        "paper": {
            "source": "hub", "dataset": "wmt/wmt14:de-en", "languages": "en-de", "test": "test",
            "model": "Helsinki-NLP/opus-mt-en-de",
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        ParallelOptions.__post_init__(self)
        DistilledTask.__post_init__(self)

    def texts(self, context: Context) -> ParallelSource:
        return self.parallel(context)

    @property
    def learned_from(self) -> str:
        return "generated pairs" if self.source == "generated" else self.dataset

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        text = self.texts(context)
        pairs = text.pairs("test")
        label = f"{text.name}, {text.source} to {text.target}" + (
            f", {self.test}" if self.source != "generated" else ""
        )
        return Items([source for source, _ in pairs], [target for _, target in pairs], label)

    def gold_texts(self, items: Items) -> list[list[str]]:
        return [[reference] for reference in items.gold]

    def score(self, items: Items, outputs: Sequence[str]) -> dict[str, Measure]:
        """`bleu` and `chrf` of sacrebleu, from 0 to 100, against the one reference."""
        return {"bleu": bleu(outputs, items.gold, self.target), "chrf": chrf(outputs, items.gold)}

    def compared(
        self, setting: DecodingSetting, ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]
    ) -> dict[str, Measure]:
        """`bleu_difference` to the baseline's outputs (with its paired interval)."""
        outputs, others = ([self.parsed(self.generator.decode(list(ids))) for ids in given] for given in (ours, theirs))
        return {"bleu_difference": bleu_difference(outputs, others, self.chosen.gold, self.target)}

    def prepare(self, context: Context, progress: Any) -> DecodingSetting:
        """Also raises `RequestError`, before a model is trained, if BLEU's tokenizer is not installed."""
        bleu_signature = signature(self.target)
        setting = super().prepare(context, progress)
        setting.facts["bleu"] = bleu_signature
        return setting
