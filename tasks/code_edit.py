"""Small edits of Python functions by instruction: a parameter renamed, a parameter added, a docstring added."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.statistics import share_interval
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, Measure, Scale
from harness.plan.registry import task
from tasks.bases.parameters import Positive
from tasks.bases.seq2seq import Items, Seq2SeqTask
from tasks.data.code_edits import CodeEdit, code_edits, tree_of
from tasks.models.seq2seq.sizes import Size

FENCE = "\n```"


@task(
    "code-edit", contract="sequence-decoding", provides=("causal",),
    summary="small edits of functions of Python's standard library, by instruction",
)  # fmt: skip
@dataclass(kw_only=True, eq=False)
class CodeEditing(Seq2SeqTask):
    """Parameters: those of `Seq2SeqTask`, and lines: most lines of a function (at least 5).

    The source is the instruction and the function in a block of Markdown; an output ends where its block does. It is
    right if its syntax tree is that of the function as the generator edits it. Other versions of Python have other
    functions, with another hash.
    """

    measures = (Metric("correct", "correct edits", better="higher"),)
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"model": "gemma-3-270m", "evaluation": 4, "timed": 2, "lines": 6, "limit": 48},
    }

    model: str = "qwen2.5-coder-0.5b-instruct"
    prompt: str = "{source}\n\nThe edited function:\n\n```python\n"
    lines: Positive = 8

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        library = Path(sysconfig.get_paths()["stdlib"])

        def make() -> list[dict[str, str]]:
            return [asdict(edit) for edit in code_edits(library, range(5, self.lines + 1), self.seed)]

        key = {"python": sys.version, "library": str(library), "lines": self.lines, "seed": self.seed}
        edits = [CodeEdit(**edit) for edit in cache.value("code-edits", key, make)]
        if not edits:
            raise RequestError(f"no function of 5 to {self.lines} lines in {library}: raise task.lines")
        sources = [f"{edit.instruction}\n\n```python\n{edit.before}{FENCE}" for edit in edits]
        return Items(sources, [edit.after for edit in edits], "functions of Python's standard library")

    def trained(self, size: Size, context: Context, cache: Cache, progress: Any) -> Path:
        raise RequestError("no model is trained for code-edit: name a causal checkpoint by --set task.model=...")

    def gold_texts(self, items: Items) -> list[list[str]]:
        return [[text + FENCE] for text in items.gold]

    def parsed(self, text: str) -> str:
        """The output up to the end of its block."""
        return text.partition(FENCE)[0]

    def score(self, items: Items, outputs: Sequence[str]) -> dict[str, Measure]:
        """`correct`: the share of outputs with the right syntax tree."""
        right = [tree_of(output) == tree_of(text) for output, text in zip(outputs, items.gold, strict=True)]
        return {"correct": Measure.of(np.mean(right), share_interval(np.array(right, np.float64)))}
