"""Grammatical error correction on the CoNLL-2013 and CoNLL-2014 test sets: IAD's Tables 1, 2, 3 and 12."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from harness.artifacts import Cache
from harness.errors import unknown
from harness.progress import Progress
from harness.registry import task
from harness.settings import Context, Measure
from tasks.correction import ArticleText, CleanText, GrammarText, spoiled, trained_corrector
from tasks.editing import EditingTask, Items, Tokens
from tasks.metrics import m2
from tasks.models.encoder_decoder_sizes import SIZES
from tasks.sources import open_source
from tasks.sources.files import find_file

TESTS = {
    "conll13": "conll13/official-preprocessed.revised.m2",
    "conll14": "conll14/official-2014.combined.m2",
}
CLEAN_TEXT = "wikipedia-2015/sample.jsonl.gz"


@task("conll-gec", contract="sequence-decoding", summary="error correction on CoNLL-2013/14, scored by MaxMatch (M2)")
class ConllGec(EditingTask):
    """Parameters: those of `EditingTask`, and test: `conll13`, `conll14` or the path of an M2 file. text: the clean
    text that a model is trained on. source: `generated` takes both from a seeded grammar instead, with known errors.
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
        test: str = "conll13",
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
        self.source, self.test, self.text = source, test, text

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        if self.source == "generated":
            gold = [item for item, _ in spoiled(GrammarText(), "test", self.seed, Progress(quiet=True))]
            label = "generated sentences"
        else:
            gold = m2.read(find_file(TESTS.get(self.test, self.test), context.data))
            label = {"conll13": "CoNLL-2013", "conll14": "CoNLL-2014"}.get(self.test, Path(self.test).name)
        return Items([list(item.source) for item in gold], list(gold), label)

    def trained(self, size: str, context: Context, cache: Cache, progress: Any) -> Path:
        return corrector(size, self.source, self.text, self.seed, context, cache, progress)

    def score(self, items: Items, outputs: Sequence[Tokens]) -> dict[str, Measure]:
        """`precision`, `recall`, `f0.5` by MaxMatch, from 0 to 100."""
        return m2.measures(m2.counts(outputs, items.gold, progress=Progress()))


def corrector(
    size: str,
    source: Literal["generated", "folder"],
    text: str,
    seed: int,
    context: Context,
    cache: Cache,
    progress: Any,
) -> Path:
    """Folder of the corrector of a named size. Raises `RequestError` for an unknown size or missing text."""
    if size not in SIZES:
        raise unknown("model size", f"train:{size}", [f"train:{name}" for name in SIZES], "task.model")
    clean: CleanText = GrammarText()
    if source == "folder":
        clean = ArticleText(open_source("folder", text, context.data, cache))
    return trained_corrector(SIZES[size], clean, cache, device=context.device, seed=seed, progress=progress)
