"""Tasks whose output is an edited source: error correction, simplification.

Sources are tokenised sentences; a model reads and writes them as text with blanks between tokens, so that an output
becomes tokens again by splitting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from harness.contracts import Decoded
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, DecodingSetting, Measure, Scale
from harness.errors import CellFailedError, RequestError
from harness.measure import statistics
from harness.measure.artifacts import Cache
from harness.text.kinds import open_source
from tasks.bases.seq2seq import Items, Seq2SeqTask
from tasks.data.correction import ArticleText, CleanText, GrammarText
from tasks.metrics.edit_ratio import edit_ratios
from tasks.models.seq2seq.sizes import Size

if TYPE_CHECKING:
    from numpy.typing import NDArray

Tokens = list[str]
CLEAN_TEXT = "wikipedia-2015/sample.jsonl.gz"
_LEAST = 10  # sentences; fewer give no interval
EDIT_RATIO = Metric("edit_ratio")


@dataclass(kw_only=True, eq=False)
class EditingTask(Seq2SeqTask):
    """Parameters: those of `Seq2SeqTask`, and source: `folder` takes sentences from data sets, `generated` from a
    seeded grammar, whose corrections are known. text: clean text, a data set, to train a model on. edit_ratio: [low,
    high), only sentences whose greedy output (by `transformers`) differs from the source by that much. The worked
    examples are spread over the edit ratios of the outputs.
    """

    source: Literal["folder", "generated"] = "folder"
    text: str = CLEAN_TEXT
    edit_ratio: list[float] | None = None

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        # 64 ids are more than any generated sentence has; a model of a minute sometimes repeats itself for ever
        "mini": {"source": "generated", "model": "train:mini", "evaluation": 100, "timed": 8, "limit": 64},
        "small": {"model": "train:small"},
        "paper": {"model": "train:transformer-big"},
    }

    def __post_init__(self) -> None:
        bounds = self.edit_ratio
        if bounds is not None and (
            len(bounds) != 2 or any(math.isnan(bound) for bound in bounds) or not bounds[0] < bounds[1]
        ):
            raise RequestError(f"edit_ratio = {bounds}: give a lower bound and a larger upper bound, such as [0, 0.1]")

    def source_text(self, source: Tokens) -> str:
        return " ".join(source)

    def parsed(self, text: str) -> Tokens:
        return text.split()

    def trained(self, size: Size, context: Context, cache: Cache, progress: Any) -> Path:
        """Folder of the corrector of a size, trained now unless the cache has it.

        Raises `RequestError` for missing text.
        """
        from tasks.models.seq2seq.editors import trained_corrector

        clean: CleanText = GrammarText()
        if self.source == "folder":
            try:
                clean = ArticleText(open_source("folder", self.text, context.data, cache))
            except RequestError as error:
                raise RequestError(
                    f"no clean text to train {self.model} on: {str(error).partition(';')[0]}; point HARNESS_DATA at "
                    "the folder that holds it, name another data set by --set task.text=NAME, or take generated "
                    "sentences by --set task.source=generated"
                ) from error
        return trained_corrector(size, clean, cache, device=context.device, seed=self.seed, progress=progress)

    def candidates(self, items: Items, encoded: Sequence[Sequence[int]], cache: Cache, progress: Any) -> NDArray[Any]:
        """Numbers of the sentences of the edit ratio asked for, judged by the model's greedy outputs.

        Raises `CellFailedError` when there is none.
        """
        if self.edit_ratio is None:
            return super().candidates(items, encoded, cache, progress)
        from tasks.models.pretrained.greedy import greedy_outputs

        low, high = self.edit_ratio
        outputs = greedy_outputs(self.generator, encoded, self.limit, cache, progress)
        ratios = edit_ratios(items.sources, [self.parsed(self.generator.decode(ids)) for ids in outputs])
        numbers = np.flatnonzero((ratios >= low) & (ratios < high))
        if not len(numbers):  # it depends on the model: this cell has no result, others have one
            raise CellFailedError(
                f"no sentence of {items.label} has an edit ratio in [{low:g}, {high:g}) under {self.model} "
                f"(they lie between {ratios.min():.2f} and {ratios.max():.2f}); give other bounds"
            )
        return numbers

    def metrics(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        """The task's score, and the median `edit_ratio` of source and output in tokens."""
        ratios = self._ratios(answers)
        interval = statistics.bootstrap_interval(ratios.tolist(), resamples=2000) if len(ratios) >= _LEAST else None
        return {**super().metrics(setting, answers), "edit_ratio": Measure.of(np.median(ratios), interval)}

    def series(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, list[float]]:
        """Edit ratio of every sentence, for plots against its iterations."""
        return {"edit_ratio": self._ratios(answers).tolist()}

    def worth_showing(self, outputs: Sequence[Tokens]) -> list[int]:
        """Sentences of readable length: the first one that was left as it is, then at equal steps from the least to the
        most edited."""
        ratios = edit_ratios(self.chosen.sources, outputs)
        readable = self.readable()
        untouched = [n for n in readable if ratios[n] == 0][:1]
        edited = sorted((n for n in readable if ratios[n] > 0), key=lambda n: (ratios[n], n))
        more = min(max(self.shown - len(untouched), 0), len(edited))
        steps = np.linspace(0, len(edited) - 1, more).round().astype(int)
        return [*untouched, *(edited[step] for step in steps)][: self.shown]

    def remarks(self, number: int, output: Tokens) -> dict[str, str]:
        [ratio] = edit_ratios([self.chosen.sources[number]], [output])
        return {"edit ratio": f"{ratio:.2f}"}

    def _ratios(self, answers: Sequence[Decoded]) -> NDArray[np.float64]:
        return edit_ratios(self.chosen.sources, self.outputs(answers))
