"""The tasks' side of the contracts: a task prepares a setting (data, model, items) and turns answers into metrics.

A task is data + model + metric. What is shared by all tasks of a contract (how a method is fitted, asked and
compared with its baseline) lives in `harness.measure.drivers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from harness.common.files import data_roots, default_cache
from harness.contracts.metrics import Metric
from harness.contracts.models import GenerationModel, LanguageModel, OutputLayer, Streams, TrainingPairs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Scale = Literal["mini", "small", "paper"]
SCALES: tuple[Scale, ...] = ("mini", "small", "paper")


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric with its 95% interval where it has one."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, value: Any, interval: tuple[float, float] | None) -> Measure:
        """A number of any type with the interval that `harness.common.statistics` gives, if any."""
        return cls(float(value), *(interval or (None, None)))


@dataclass(frozen=True, slots=True)
class Context:
    """Where a task runs: scale, device (`cpu`, `cuda`), seed, data folders in order, and the user's cache folder."""

    scale: Scale
    device: str
    seed: int
    data: tuple[Path, ...]
    cache: Path

    @classmethod
    def here(cls, scale: Scale, device: str, seed: int, cache: Path | None = None) -> Context:
        """On this machine: the data folders of $HARNESS_DATA and, unless one is given, the user's cache folder."""
        return cls(scale=scale, device=device, seed=seed, data=data_roots(), cache=cache or default_cache())


@dataclass(slots=True, kw_only=True)
class Setting:
    """What a prepared task hands over. `hashes` names the data and the model by content (`data`, `model`, ...).

    evaluation: items of the quality pass. timed: all items that may be timed; a timing process draws its own. sample:
    items of one timed pass, that is of one side of one pair (`harness.measure.drawing`).
    """

    hashes: dict[str, str]
    facts: dict[str, Any] = field(default_factory=dict)  # sizes and names that the row should carry
    evaluation: Any
    timed: Any
    sample: int


@dataclass(slots=True, kw_only=True)
class TokenScoringSetting(Setting):
    """Streams are int64 [T] whose first token is given, not predicted. `words` counts the evaluation's words. text:
    what ids say, for worked examples. filtered: data set -> how many documents of reference text it has, and how many
    share too much with the held-out text; the task's own reference text is ""; read when called."""

    model: LanguageModel
    reference: Streams
    validation: Streams
    evaluation: Streams
    timed: Streams
    words: int
    text: Callable[[Sequence[int]], str] | None = None
    filtered: Mapping[str, Callable[[], tuple[int, int]]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class SoftmaxSetting(Setting):
    """contexts float32 [n, d] and targets int64 [n] of training text; evaluation and timed contexts of test text.

    batch: contexts asked at a time; 1 calls `topk`, more `topk_many`. timed_targets int64, one for each timed context:
    when given, the timed pass asks `log_prob` of them instead of the top-k. between: opens the model and returns what
    runs between two calls in use, such as one step of the LSTM; the clock stands still meanwhile. None: nothing does.
    """

    layer: OutputLayer
    contexts: NDArray[np.float32]
    targets: NDArray[np.int64]
    evaluation: NDArray[np.float32]
    evaluation_targets: NDArray[np.int64]
    timed: NDArray[np.float32]
    timed_targets: NDArray[np.int64] | None = None
    between: Callable[[], Callable[[], object]] | None = None
    k: int = 5
    batch: int = 1


@dataclass(frozen=True, slots=True)
class GoldOutput:
    """A right output: its ids, and in how many places it departs from its source, in words."""

    ids: list[int]
    edits: int


@dataclass(slots=True, kw_only=True)
class DecodingSetting(Setting):
    """Sources are token ids; `batch` sources are decoded at a time, at most `limit` tokens each.

    reference, training: what `SequenceDecoding.fit` gets, made when a method needs it. A task that has them says so by
    `provides`: `reference-text`, `training-pairs`. gold: the right outputs of each evaluated source, several where
    several are right.
    """

    model: GenerationModel
    reference: Callable[[], Streams] | None = None
    training: Callable[[], TrainingPairs] | None = None
    gold: Callable[[], Sequence[Sequence[GoldOutput]]] | None = None
    evaluation: Sequence[Sequence[int]]
    timed: Sequence[Sequence[int]]
    limit: int
    batch: int = 1


@dataclass(slots=True, kw_only=True)
class RetrievalSetting(Setting):
    """Prompts are token ids; `knowledge` is passages of text or streams of token ids."""

    model: GenerationModel
    knowledge: Sequence[Any]
    validation: Sequence[Any]
    evaluation: Sequence[Sequence[int]]
    timed: Sequence[Sequence[int]]
    limit: int


class Task(ABC):
    """Base of all tasks. Parameters are the fields of a class, as for methods; the decorator names the
    contract, which decides what setting `prepare` returns and what answers `metrics` gets.

    measures: what its metrics are, where tables should show more than their names."""

    measures: ClassVar[tuple[Metric, ...]] = ()
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {}  # parameters whose default depends on the scale

    @abstractmethod
    def prepare(self, context: Context, progress: Any) -> Any:
        """Load data and model (train it on the spot where the scale says so) and return the contract's setting.

        `progress` is a `harness.common.progress.Progress`. Called in every process of a cell: whatever costs more than
        reading files is cached under `context.cache`.
        """

    @abstractmethod
    def metrics(self, setting: Any, answers: Sequence[Any]) -> dict[str, Measure]:
        """Metrics of the answers to `setting.evaluation`, computed from the answers alone."""

    def evaluate(self, setting: Any, method: Any) -> dict[str, Measure]:
        """Metrics that need the fitted method at work rather than its answers: BLEU of a beam search whose softmax
        layer it is, perplexity by its `log_prob`. None by default; part of the quality pass."""
        return {}

    def compared(self, setting: Any, ours: Sequence[Any], theirs: Sequence[Any]) -> dict[str, Measure]:
        """Metrics of a difference to the fidelity baseline that need the text: BLEU's, with the interval of a paired
        test. Of sequence decoding: ids of the method's outputs and of the baseline's for `setting.evaluation`. None by
        default."""
        return {}

    def examples(self, setting: Any, method: Any, answers: Sequence[Any]) -> list[dict[str, str]]:
        """A few worked examples, each an ordered label -> text, printed under the table. None by default.

        `output` is what this method made of it; the other labels say what it was made of, and examples of several rows
        that agree in them are shown together. Called after `evaluate` in the same process, so that what it decoded
        need not be decoded again.
        """
        return []

    def series(self, setting: Any, answers: Sequence[Any]) -> dict[str, list[float]]:
        """Figures of each item by name, in the items' order (edit ratios, ...). None by default."""
        return {}
