"""Text simplification on TurkCorpus and ASSET, scored by SARI and BLEU: IAD's Table 4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from harness.artifacts import Cache
from harness.progress import Progress
from harness.registry import task
from harness.settings import Context, DecodingSetting, Measure
from tasks.conll_gec import CLEAN_TEXT, corrector
from tasks.correction import GrammarText
from tasks.editing import EditingTask, Items, Tokens
from tasks.metrics.sari import sari
from tasks.models.encoder_decoder_sizes import SIZES
from tasks.simplification import Corpus, generated, read_corpus, trained_simplifier


@task(
    "text-simplification", contract="sequence-decoding", summary="simplification on TurkCorpus or ASSET, SARI and BLEU"
)
class TextSimplification(EditingTask):
    """Parameters: those of `EditingTask`, and corpus: `turkcorpus` (lower case) or `asset`. A model `train:SIZE` is the
    corrector of that size (trained on `text`) trained further on both corpora's training parts. source: `generated`
    takes sentences and their simplifications from seeded rules instead.
    """

    scale_defaults = {  # noqa: RUF012 - read-only by convention of `Task`
        "mini": {"source": "generated", "model": "train:mini", "evaluation": 150, "timed": 24},
        "small": {"model": "train:small"},
        "paper": {"model": "train:transformer-big"},
    }

    def __init__(
        self,
        *,
        source: Literal["generated", "folder"] = "folder",
        corpus: Corpus = "asset",
        text: str = CLEAN_TEXT,
        model: str = "train:small",
        limit: int = 256,
        evaluation: int | None = None,
        timed: int = 16,
        batch: int = 1,
        edit_ratio: list[float] | None = None,
        examples: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(
            model=model, limit=limit, evaluation=evaluation, timed=timed, batch=batch, edit_ratio=edit_ratio,
            examples=examples, seed=seed,
        )  # fmt: skip
        self.source, self.corpus, self.text = source, corpus, text

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        if self.source == "generated":
            texts = generated(GrammarText().sentences("test", Progress(quiet=True)))
            label = "generated sentences"
        else:
            texts = read_corpus(self.corpus, "test", context.data)
            label = {"turkcorpus": "TurkCorpus", "asset": "ASSET"}[self.corpus]
        return Items([text[0] for text in texts], [text[1:] for text in texts], label)

    def trained(self, size: str, context: Context, cache: Cache, progress: Any) -> Path:
        first = corrector(size, self.source, self.text, self.seed, context, cache, progress)
        if self.source == "generated":
            texts = generated(GrammarText().sentences("train", Progress(quiet=True)))
        else:
            texts = [text for corpus in ("turkcorpus", "asset") for text in read_corpus(corpus, "train", context.data)]
        return trained_simplifier(
            SIZES[size], first, texts, cache, device=context.device, seed=self.seed, progress=progress
        )

    def score(self, items: Items, outputs: Sequence[Tokens]) -> dict[str, Measure]:
        """`sari` with its parts, and `bleu` of tokens in lower case against all references, from 0 to 100."""
        score, _ = bleu(outputs, items.gold)
        return {**sari(items.sources, outputs, items.gold), "bleu": Measure(score)}

    def prepare(self, context: Context, progress: Any) -> DecodingSetting:
        setting = super().prepare(context, progress)
        setting.facts["bleu"] = bleu(self.chosen.sources, self.chosen.gold)[1]
        return setting


def bleu(outputs: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> tuple[float, str]:
    """Corpus BLEU (0-100) by sacrebleu of tokens in lower case against all references, and its signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(lowercase=True, tokenize="none")
    streams = [[" ".join(tokens) for tokens in column] for column in zip(*references, strict=True)]
    found = metric.corpus_score([" ".join(tokens) for tokens in outputs], streams)
    return float(found.score), str(metric.get_signature())
