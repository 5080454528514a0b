"""Grammatical error correction towards fluent English on JFLEG, scored by GLEU over four references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from harness.artifacts import Cache
from harness.progress import Progress
from harness.registry import task
from harness.settings import Context, Measure
from tasks.conll_gec import CLEAN_TEXT, corrector
from tasks.correction import GrammarText, spoiled
from tasks.editing import EditingTask, Items, Tokens
from tasks.metrics.gleu import gleu
from tasks.sources.files import aligned_lines


@task("jfleg-gec", contract="sequence-decoding", summary="error correction on JFLEG, scored by GLEU")
class JflegGec(EditingTask):
    """Parameters: those of `EditingTask`, and split: `test` or `dev` of JFLEG. text, source: as for `conll-gec`."""

    scale_defaults = {  # noqa: RUF012 - read-only by convention of `Task`
        "mini": {"source": "generated", "model": "train:mini", "evaluation": 150, "timed": 24},
        "small": {"model": "train:small"},
        "paper": {"model": "train:transformer-big"},
    }

    def __init__(
        self,
        *,
        source: Literal["generated", "folder"] = "folder",
        split: Literal["test", "dev"] = "test",
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
        self.source, self.split, self.text = source, split, text

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        if self.source == "generated":
            pairs = list(spoiled(GrammarText(), "test", self.seed, Progress(quiet=True)))
            return Items(
                [list(item.source) for item, _ in pairs], [[clean] for _, clean in pairs], "generated sentences"
            )
        names = [f"jfleg/{self.split}.{part}" for part in ("src", "ref0", "ref1", "ref2", "ref3")]
        sources, *references = aligned_lines(names, context.data)
        gold = [[line.split() for line in lines] for lines in zip(*references, strict=True)]
        return Items([line.split() for line in sources], gold, f"JFLEG {self.split}")

    def trained(self, size: str, context: Context, cache: Cache, progress: Any) -> Path:
        return corrector(size, self.source, self.text, self.seed, context, cache, progress)

    def score(self, items: Items, outputs: Sequence[Tokens]) -> dict[str, Measure]:
        """`gleu`, from 0 to 100."""
        return {"gleu": gleu(items.sources, outputs, items.gold)}
