"""What tasks have in common whose output is an edited source: error correction, simplification.

Sources are tokenised sentences; a model reads and writes them as text with blanks between tokens, so that ids become
tokens again by splitting. A task adds where sentences and models come from, and the score.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.contracts import Decoded
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, DecodingSetting, Measure, Scale, Task
from harness.errors import CellFailedError, RequestError, unknown
from harness.files import digest
from harness.measure import statistics
from harness.measure.artifacts import Cache
from tasks.correction import ArticleText, CleanText, GrammarText, trained_corrector
from tasks.metrics.edit_ratio import edit_ratios
from tasks.models.encoder_decoder_sizes import SIZES
from tasks.sources.kinds import open_source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tasks.models.generation import TextGenerator

Tokens = list[str]
TRAINED = "train:"  # a model parameter that begins so names a size to train here
CLEAN_TEXT = "wikipedia-2015/sample.jsonl.gz"
_READABLE = range(8, 31)  # tokens of a source that a worked example may have
_LEAST = 10  # sentences; fewer give no interval
EDIT_RATIO = Metric("edit_ratio")


@dataclass(frozen=True, slots=True)
class Items:
    """Sentences to edit (tokens), what the score needs beside them (one entry a sentence), and their name in rows."""

    sources: list[Tokens]
    gold: list[Any]
    label: str

    def chosen(self, numbers: Sequence[int]) -> Items:
        """These sentences only."""
        return Items([self.sources[n] for n in numbers], [self.gold[n] for n in numbers], self.label)


@dataclass(kw_only=True, eq=False)
class EditingTask(Task):
    """Parameters that all editing tasks share. source: `folder` takes sentences from data sets, `generated` from a
    seeded grammar, whose corrections are known. model: `train:` and a size of `tasks.models.encoder_decoder_sizes`, to
    train here on `text` (clean text, a data set), or a model by folder or hub id. limit: longest output in ids.
    evaluation: at most this many sentences (None: all), drawn with `seed`. timed: sentences of one timed pass, at least
    a batch, taken from all that are evaluated. batch: sentences decoded at a time. edit_ratio: [low, high), only
    sentences whose greedy output (by `transformers`) differs from the source by that much. shown: worked examples,
    spread over the edit ratios of the outputs. seed: of training, of errors that are generated, and of what is drawn.
    """

    source: str = "folder"
    text: str = CLEAN_TEXT
    model: str = "train:small"
    limit: int = 256
    evaluation: int | None = None
    timed: int = 4
    batch: int = 1
    edit_ratio: list[float] | None = None
    shown: int = 0
    seed: int = 0

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        # 64 ids are more than any generated sentence has; a model of a minute sometimes repeats itself for ever
        "mini": {"source": "generated", "model": "train:mini", "evaluation": 100, "timed": 8, "limit": 64},
        "small": {"model": "train:small"},
        "paper": {"model": "train:transformer-big"},
    }

    def __post_init__(self) -> None:
        if self.source not in ("folder", "generated"):
            raise unknown("source", self.source, ["folder", "generated"], "task.source")
        if min(self.timed, self.batch) < 1 or (self.evaluation is not None and self.evaluation < 1):
            raise RequestError(
                f"timed, batch and evaluation must be positive, given {self.timed}, {self.batch} and {self.evaluation}"
            )
        if min(self.limit, self.shown, self.seed) < 0:
            raise RequestError(
                f"limit, shown and seed must not be negative, given {self.limit}, {self.shown} and {self.seed}"
            )
        bounds = self.edit_ratio
        if bounds is not None and (
            len(bounds) != 2 or any(math.isnan(bound) for bound in bounds) or not bounds[0] < bounds[1]
        ):
            raise RequestError(f"edit_ratio = {bounds}: give a lower bound and a larger upper bound, such as [0, 0.1]")

    @abstractmethod
    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        """The test sentences. Raises `RequestError` when they cannot be found or read."""

    def trained(self, size: str, context: Context, cache: Cache, progress: Any) -> Path:
        """Folder of the model of a size, trained now unless the cache has it: here a corrector.

        Raises `RequestError` for an unknown size or missing text.
        """
        if size not in SIZES:
            raise unknown("model size", f"train:{size}", [f"train:{name}" for name in SIZES], "task.model")
        clean: CleanText = GrammarText()
        if self.source == "folder":
            try:
                clean = ArticleText(open_source("folder", self.text, context.data, cache))
            except RequestError as error:
                raise RequestError(
                    f"no clean text to train train:{size} on: {str(error).partition(';')[0]}; point HARNESS_DATA at "
                    "the folder that holds it, name another data set by --set task.text=NAME, or take generated "
                    "sentences by --set task.source=generated"
                ) from error
        return trained_corrector(SIZES[size], clean, cache, device=context.device, seed=self.seed, progress=progress)

    @abstractmethod
    def score(self, items: Items, outputs: Sequence[Tokens]) -> dict[str, Measure]:
        """Metrics of outputs (tokens) for the items."""

    def prepare(self, context: Context, progress: Any) -> DecodingSetting:
        """Raises `RequestError` when data or model are missing or a sentence does not fit the model, and
        `CellFailedError` when no sentence has the edit ratio asked for."""
        from tasks.models.generation import TextGenerator

        cache = Cache(context.cache)
        items = self.items(context, cache, progress)
        if not any(items.sources):
            raise RequestError(f"{items.label} holds no sentence; give a file that does")
        folder = self.model
        if self.model.startswith(TRAINED):
            folder = str(self.trained(self.model.removeprefix(TRAINED), context, cache, progress))
        self.generator = TextGenerator.load(folder, device=context.device, cache=cache, name=self.model)
        encoded = self.generator.encode([" ".join(tokens) for tokens in items.sources])
        self._check_lengths(encoded, items.label)
        numbers = self._within(items, encoded, cache, progress)
        drawn = numbers[np.random.default_rng(self.seed).permutation(len(numbers))][: self.evaluation]
        numbers = np.sort(drawn)
        self.chosen = items.chosen(numbers.tolist())
        sources = [encoded[number] for number in numbers]
        record = Path(folder) / "training.json"
        lengths = [len(source) for source in sources]
        return DecodingSetting(
            model=self.generator,
            evaluation=sources,
            timed=[encoded[number] for number in drawn],
            sample=min(max(self.timed, self.batch), len(drawn)),
            limit=self.limit,
            batch=self.batch,
            hashes={
                "data": digest([items.sources, [repr(gold) for gold in items.gold]]),
                "model": self.generator.hash,
            },
            facts={
                "data": items.label,
                "sentences": len(sources),
                "source_ids": {"median": float(np.median(lengths)), "longest": max(lengths)},
                "model": self.model,
                "training": json.loads(record.read_text()) if record.is_file() else {},
            },
        )

    def metrics(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        """The task's score, and the median `edit_ratio` of source and output in tokens."""
        outputs = self._outputs(answers)
        ratios = edit_ratios(self.chosen.sources, outputs)
        interval = statistics.bootstrap_interval(ratios.tolist(), resamples=2000) if len(ratios) >= _LEAST else None
        median = Measure(float(np.median(ratios)), *(interval or (None, None)))
        return {**self.score(self.chosen, outputs), "edit_ratio": median}

    def series(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, list[float]]:
        """Edit ratio of every sentence, for plots against its iterations."""
        return {"edit_ratio": edit_ratios(self.chosen.sources, self._outputs(answers)).tolist()}

    def examples(self, setting: DecodingSetting, method: Any, answers: Sequence[Decoded]) -> list[dict[str, str]]:
        """Sentences of readable length: the first one that was left as it is, then at equal steps from the least to the
        most edited; what was accepted together stands in brackets, what came from an ordinary step does not."""
        ratios = edit_ratios(self.chosen.sources, self._outputs(answers))
        readable = [n for n, tokens in enumerate(self.chosen.sources) if len(tokens) in _READABLE]
        untouched = [n for n in readable if ratios[n] == 0][:1]
        edited = sorted((n for n in readable if ratios[n] > 0), key=lambda n: (ratios[n], n))
        more = min(max(self.shown - len(untouched), 0), len(edited))
        steps = np.linspace(0, len(edited) - 1, more).round().astype(int)
        chosen = [*untouched, *(edited[step] for step in steps)][: self.shown]
        return [
            {
                "source": " ".join(self.chosen.sources[number]),
                "edit ratio": f"{ratios[number]:.2f}",
                "output": marked_blocks(self.generator, answers[number]),
            }
            for number in chosen
        ]

    def _outputs(self, answers: Sequence[Decoded]) -> list[Tokens]:
        return [self._tokens(answer.ids) for answer in answers]

    def _tokens(self, ids: Sequence[int]) -> Tokens:
        return self.generator.decode(ids).split()

    def _check_lengths(self, encoded: Sequence[Sequence[int]], label: str) -> None:
        """Refuse sentences that the model has no positions for."""
        for number, ids in enumerate(encoded):
            if len(ids) > self.generator.window:
                raise RequestError(
                    f"sentence {number} of {label} has {len(ids)} ids and {self.model} takes "
                    f"{self.generator.window}: leave it out, or take a model with more positions"
                )

    def _within(
        self, items: Items, encoded: Sequence[Sequence[int]], cache: Cache, progress: Any
    ) -> NDArray[np.int64]:  # fmt: skip
        """Numbers of the sentences of the edit ratio asked for, judged by the model's greedy outputs."""
        if self.edit_ratio is None:
            return np.arange(len(encoded))
        from tasks.models.greedy import greedy_outputs

        low, high = self.edit_ratio
        outputs = greedy_outputs(self.generator, encoded, self.limit, cache, progress)
        ratios = edit_ratios(items.sources, [self._tokens(ids) for ids in outputs])
        numbers = np.flatnonzero((ratios >= low) & (ratios < high))
        if not len(numbers):  # the model's doing: this cell has no result, others have
            raise CellFailedError(
                f"no sentence of {items.label} has an edit ratio in [{low:g}, {high:g}) under {self.model} "
                f"(they lie between {ratios.min():.2f} and {ratios.max():.2f}); give other bounds"
            )
        return numbers


def marked_blocks(generator: TextGenerator, answer: Decoded) -> str:
    """The output, with brackets around the tokens that were accepted together, and how many iterations it took."""
    text, done, parts = "", 0, []
    for accepted in answer.trace.accepted:
        done += accepted
        whole = generator.decode(answer.ids[:done])
        piece = whole[len(text) :]
        if accepted > 1 and piece.strip():
            parts.append(f"{' ' if piece[0] == ' ' else ''}[{piece.strip()}]")
        else:
            parts.append(piece)
        text = whole
    marked = "".join(parts).strip() or generator.decode(answer.ids)
    return f"{marked} ({len(answer.ids)} tokens in {answer.trace.iterations} iterations)"
