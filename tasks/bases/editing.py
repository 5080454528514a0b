"""Tasks whose output is an edited source: error correction, simplification.

Sources are tokenised sentences. A model reads and writes text with blanks between tokens, so an output is split at
blanks to get its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from harness.common import statistics
from harness.common.cache import Cache
from harness.common.counts import Counts
from harness.common.errors import CellFailedError, RequestError
from harness.contracts import Decoded
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, DecodingSetting, Measure, Scale
from tasks.bases.seq2seq import Items, Seq2SeqTask
from tasks.data.correction import ArticleText, CleanText, GrammarText
from tasks.data.learners import TO_LEARN_FROM, learner_pairs
from tasks.data.text.kinds import open_source
from tasks.metrics.edits import edit_counts, edit_ratios
from tasks.models.seq2seq.sizes import SIZES, Size
from tasks.models.trained import size_to_train

Tokens = list[str]
CLEAN_TEXT = "wikipedia-2015/sample.jsonl.gz"
MEASURES = (
    Metric("edit_ratio", "median edit ratio"),
    Metric("mean_edit_ratio"),
    Metric("edits", "edits a sentence"),
    Metric("unchanged", "sentences left unchanged"),
)


@dataclass(kw_only=True, eq=False)
class EditingTask(Seq2SeqTask):
    """Parameters: those of `Seq2SeqTask`, and

    source: `folder` takes sentences from data sets, `generated` from a seeded grammar, whose corrections are known.
    text: a data set of clean text to train a model on. corrections: sets of real corrections for the last steps of
    training, `conll13` and `jfleg-dev`; [] for none. edits: range of edits (`2`, `3-4`, `5+`); only sentences whose
    greedy output (by `transformers`) has this number of edits are used. Worked examples are spread over the outputs'
    edit ratios.
    """

    source: Literal["folder", "generated"] = "folder"
    text: str = CLEAN_TEXT
    corrections: list[str] = field(default_factory=list)
    edits: int | str = "0+"

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        # 64 ids are more than any generated sentence has; a model trained for a minute sometimes repeats itself forever
        "mini": {"source": "generated", "model": "train:mini", "evaluation": 100, "timed": 8, "limit": 64},
        "small": {"model": "train:small", "corrections": list(TO_LEARN_FROM)},
        "paper": {"model": "train:transformer-big", "corrections": list(TO_LEARN_FROM)},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for parameter, model in (("task.model", self.model), ("task.assistant", self.assistant)):
            if model is not None:
                size_to_train(model, SIZES, parameter)  # refuses an unknown size before anything is loaded
        self._wanted = Counts.parse(self.edits, "task.edits")

    def source_text(self, source: Tokens) -> str:
        return " ".join(source)

    def parsed(self, text: str) -> Tokens:
        return text.split()

    def trained(self, size: Size, context: Context, cache: Cache, progress: Any) -> Path:
        """Folder of the corrector of a size, trained now unless the cache has it.

        Raises `RequestError` for missing text, and if corrections to learn from are of test sentences.
        """
        from tasks.models.seq2seq.editors import trained_corrector

        clean: CleanText = GrammarText()
        learners: list[tuple[Tokens, Tokens]] = []
        if self.source == "folder":
            try:
                learners = learner_pairs(self.corrections if size.last_steps else [], context.data)
            except RequestError as error:
                raise RequestError(
                    f"{error}; or train {self.model} without them by --set task.corrections=[]"
                ) from error
            self._learned_apart(learners, self.items(context, cache, progress))
            try:
                clean = ArticleText(open_source("folder", self.text, context.data, cache))
            except RequestError as error:
                raise RequestError(
                    f"no clean text to train {self.model} on: {str(error).partition(';')[0]}; point HARNESS_DATA at "
                    "the folder that holds it, name another data set by --set task.text=NAME, or take generated "
                    "sentences by --set task.source=generated"
                ) from error
        return trained_corrector(
            size, clean, cache, learners=learners, device=context.device, seed=self.seed, progress=progress
        )

    def _learned_apart(self, learners: Sequence[tuple[Tokens, Tokens]], items: Items) -> None:
        """Refuse test sentences that are, letter by letter, among those to learn from."""
        learned = {" ".join(source) for source, _ in learners}
        both = learned & {self.source_text(source) for source in items.sources}
        if both:
            raise RequestError(
                f"{self.model} is to be trained on corrections of {len(both):,} sentences of {items.label}, which it "
                f"would be tested on, such as {min(both, key=len)!r}: train it without them by "
                "--set task.corrections=[...], or test on another set"
            )

    def facts(self) -> dict[str, Any]:
        """The training data of a model that is trained here."""
        size = size_to_train(self.model, SIZES)
        if size is None:
            return {}
        folder = self.source == "folder"
        clean = self.text if folder else "generated sentences"
        real = self.corrections if folder and size.last_steps else []
        return {"trained_on": ", then ".join([f"{clean} with synthetic errors", *filter(None, [" and ".join(real)])])}

    def gold_texts(self, items: Items) -> list[list[str]]:
        return [[" ".join(tokens) for tokens in references] for references in items.gold]

    def candidates(self, items: Items, encoded: Sequence[Sequence[int]], cache: Cache, progress: Any) -> NDArray[Any]:
        """Numbers of the sentences whose edits, in the model's greedy outputs, are in the range `edits`.

        Raises `CellFailedError` when there is none.
        """
        if self._wanted == Counts(0, None):
            return super().candidates(items, encoded, cache, progress)
        from tasks.models.pretrained.greedy import greedy_outputs

        outputs = greedy_outputs(self.generator, encoded, self.limit, cache, progress)
        counts = edit_counts(items.sources, [self.parsed(self.generator.decode(ids)) for ids in outputs])
        numbers = np.array([number for number, count in enumerate(counts) if count in self._wanted], np.int64)
        if not len(numbers):  # depends on the model: only this cell fails
            raise CellFailedError(
                f"task.edits = {self.edits}: no output of {self.model} for {items.label} has that many edits "
                f"(they have {counts.min()} to {counts.max()}); give another range"
            )
        return numbers

    def metrics(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        """The task's score and the outputs' distance from their sources, in tokens: the median `edit_ratio` and its
        mean, the mean number of `edits`, and the share of sentences left `unchanged`."""
        outputs = self.outputs(answers)
        ratios = edit_ratios(self.chosen.sources, outputs)
        counts = edit_counts(self.chosen.sources, outputs).astype(np.float64)
        same = (counts == 0).astype(np.float64)
        median = statistics.order_statistic_interval(ratios.tolist())
        return {
            **super().metrics(setting, answers),
            "edit_ratio": Measure.of(np.median(ratios), median),
            "mean_edit_ratio": Measure.of(ratios.mean(), statistics.mean_interval(ratios)),
            "edits": Measure.of(counts.mean(), statistics.mean_interval(counts)),
            "unchanged": Measure.of(same.mean(), statistics.share_interval(same)),
        }

    def series(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, list[float]]:
        """Edit ratio and edits of every sentence, to plot against its iterations."""
        outputs = self.outputs(answers)
        return {
            "edit_ratio": edit_ratios(self.chosen.sources, outputs).tolist(),
            "edits": edit_counts(self.chosen.sources, outputs).astype(np.float64).tolist(),
        }

    def worth_showing(self, outputs: Sequence[Tokens]) -> list[int]:
        """Sentences of readable length: the first unchanged one, then at equal steps from the least to the most
        edited."""
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
