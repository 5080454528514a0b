"""Grammatical error correction towards fluent English on JFLEG, scored by GLEU over four references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from harness.common.cache import Cache
from harness.common.progress import Progress
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, Measure
from harness.plan.registry import task
from tasks.bases.editing import MEASURES, EditingTask, Tokens
from tasks.bases.seq2seq import Items
from tasks.data.correction import GrammarText, corrupted
from tasks.data.learners import jfleg
from tasks.metrics.gleu import Randint, gleu


@task("jfleg-gec", contract="sequence-decoding", summary="error correction on JFLEG, scored by GLEU")
class JflegGec(EditingTask):
    """Parameters: those of `EditingTask`; split: `test` or `dev` of JFLEG; randint: the Python version whose random
    numbers draw the references of GLEU (see `tasks.metrics.gleu`)."""

    measures = (Metric("gleu", "GLEU", better="higher"), *MEASURES)

    split: Literal["test", "dev"] = "test"
    randint: Randint = "python2"

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        if self.source == "generated":
            pairs = list(corrupted(GrammarText(), "test", self.seed, Progress(quiet=True)))
            return Items(
                [list(item.source) for item, _ in pairs], [[clean] for _, clean in pairs], "generated sentences"
            )
        texts = jfleg(self.split, context.data)
        return Items([text[0] for text in texts], [text[1:] for text in texts], f"JFLEG {self.split}")

    def score(self, items: Items, outputs: Sequence[Tokens]) -> dict[str, Measure]:
        """`gleu`, from 0 to 100."""
        return {"gleu": gleu(items.sources, outputs, items.gold, randint=self.randint)}

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "references_of_gleu": f"drawn as by {self.randint.replace('python', 'Python ')}"}
