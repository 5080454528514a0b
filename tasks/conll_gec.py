"""Grammatical error correction on the CoNLL-2013 and CoNLL-2014 test sets: IAD's Tables 1, 2, 3 and 12."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.common.cache import Cache
from harness.common.progress import Progress
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, Measure
from harness.plan.registry import task
from tasks.bases.editing import MEASURES, EditingTask, Tokens
from tasks.bases.seq2seq import Items
from tasks.data.correction import GrammarText, corrupted
from tasks.data.files import find_file
from tasks.data.learners import CONLL, applied
from tasks.metrics import m2


@task(
    "conll-gec", contract="sequence-decoding", provides=("causal",),
    summary="error correction on CoNLL-2013/14, scored by MaxMatch (M2)",
)  # fmt: skip
class ConllGec(EditingTask):
    """Parameters: those of `EditingTask`, and test: `conll13`, `conll14` or the path of an M2 file. Methods that need a
    causal model refuse an encoder-decoder."""

    measures = (
        Metric("precision", better="higher"),
        Metric("recall", better="higher"),
        Metric("f0.5", "F0.5", better="higher"),
        *MEASURES,
    )

    test: str = "conll14"

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        if self.source == "generated":
            gold = [item for item, _ in corrupted(GrammarText(), "test", self.seed, Progress(quiet=True))]
            label = "generated sentences"
        else:
            gold = m2.read(find_file(CONLL.get(self.test, self.test), context.data))
            label = {"conll13": "CoNLL-2013", "conll14": "CoNLL-2014"}.get(self.test, Path(self.test).name)
        return Items([list(item.source) for item in gold], list(gold), label)

    def gold_texts(self, items: Items) -> list[list[str]]:
        return [[" ".join(applied(gold.source, edits)) for edits in gold.annotators.values()] for gold in items.gold]

    def score(self, items: Items, outputs: Sequence[Tokens]) -> dict[str, Measure]:
        """`precision`, `recall`, `f0.5` by MaxMatch, from 0 to 100."""
        return m2.measures(m2.counts(outputs, items.gold, progress=Progress()))
