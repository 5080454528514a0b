"""Text simplification on TurkCorpus and ASSET, scored by SARI and BLEU: IAD's Table 4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.common.cache import Cache
from harness.common.progress import Progress
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, DecodingSetting, Measure
from harness.plan.registry import task
from tasks.bases.editing import MEASURES, EditingTask, Tokens
from tasks.bases.seq2seq import Items
from tasks.data.correction import GrammarText
from tasks.data.simplification import Corpus, generated, read_corpus, training_texts
from tasks.metrics.bleu import bleu_of_tokens, signature_of_tokens
from tasks.metrics.sari import sari
from tasks.models.seq2seq.sizes import Size


@task(
    "text-simplification", contract="sequence-decoding", summary="simplification on TurkCorpus or ASSET, SARI and BLEU"
)
class TextSimplification(EditingTask):
    """Parameters: those of `EditingTask`, and corpus: `turkcorpus` (lower case) or `asset`. source: `generated` makes
    sentences and their simplifications by seeded rules instead. A model `train:SIZE` is the corrector of that size
    (trained on `text`), fine-tuned on the training parts of both corpora.
    """

    measures = (
        Metric("sari", "SARI", better="higher"),
        Metric("sari_keep", "SARI keep", better="higher"),
        Metric("sari_delete", "SARI delete", better="higher"),
        Metric("sari_add", "SARI add", better="higher"),
        Metric("bleu", "BLEU", better="higher"),
        *MEASURES,
    )

    corpus: Corpus = "asset"

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        if self.source == "generated":
            texts = generated(GrammarText().sentences("test", Progress(quiet=True)))
            label = "generated sentences"
        else:
            texts = read_corpus(self.corpus, "test", context.data)
            label = {"turkcorpus": "TurkCorpus", "asset": "ASSET"}[self.corpus]
        return Items([text[0] for text in texts], [text[1:] for text in texts], label)

    def trained(self, size: Size, context: Context, cache: Cache, progress: Any) -> Path:
        from tasks.models.seq2seq.editors import trained_simplifier

        first = super().trained(size, context, cache, progress)
        if self.source == "generated":
            corpora = [generated(GrammarText().sentences("train", Progress(quiet=True)))]
        else:
            corpora = training_texts(context.data)
        return trained_simplifier(size, first, corpora, cache, device=context.device, seed=self.seed, progress=progress)

    def score(self, items: Items, outputs: Sequence[Tokens]) -> dict[str, Measure]:
        """`sari` with its parts, and `bleu` of tokens in lower case against all references, from 0 to 100."""
        return {**sari(items.sources, outputs, items.gold), "bleu": bleu_of_tokens(outputs, items.gold)}

    def facts(self) -> dict[str, Any]:
        found = super().facts()
        further = "rules" if self.source == "generated" else "TurkCorpus and ASSET"
        return {name: f"{value}, then simplifications by {further}" for name, value in found.items()}

    def prepare(self, context: Context, progress: Any) -> DecodingSetting:
        setting = super().prepare(context, progress)
        setting.facts["bleu"] = signature_of_tokens(len(self.chosen.gold[0]))
        return setting
