"""The tasks' side of the contracts: a task prepares a setting (data, model, items) and computes metrics from answers.

A task is data + model + metric. The common part of all tasks of a contract (fitting a method, running it, comparing it
with its baseline) is in `harness.measure.drivers`.
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
    """A metric's value with its 95% interval, if any."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, value: Any, interval: tuple[float, float] | None) -> Measure:
        """A number of any type with an interval of `harness.common.statistics`, if any."""
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
    """A prepared task. `hashes` identifies data and model by content (`data`, `model`, ...).

    evaluation: items of the quality pass. timed: all items that may be timed; a timing process draws its own. sample:
    items of one timed pass, that is, of one side of one pair (`harness.measure.timed`). numbers: the place in
    `evaluation` of each timed item, where it differs from its place in `timed`; rows give items by these numbers.
    Numbers from len(evaluation) on belong to items that are timed but not evaluated.
    """

    hashes: dict[str, str]
    facts: dict[str, Any] = field(default_factory=dict)  # sizes and names for the row
    evaluation: Any
    timed: Any
    sample: int
    numbers: Sequence[int] | None = None


@dataclass(slots=True, kw_only=True)
class TokenScoringSetting(Setting):
    """Streams are int64 [T] whose first token is given, not predicted. words, bytes: of the evaluation's text (0 words:
    nothing separates them; 0 bytes: unknown). text: what ids say, for worked examples. filtered: data set -> how many
    documents of reference text it has, and how many share too much with the held-out text; the task's own reference
    text is ""; read when called."""

    model: LanguageModel
    reference: Streams
    validation: Streams
    evaluation: Streams
    timed: Streams
    words: int
    bytes: int = 0
    text: Callable[[Sequence[int]], str] | None = None
    filtered: Mapping[str, Callable[[], tuple[int, int]]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class SoftmaxSetting(Setting):
    """contexts float32 [n, d] and targets int64 [n] of training text; evaluation and timed contexts of test text.

    batch: contexts per call; 1 calls `topk`, more `topk_many`. timed_targets: int64, one per timed context; if given,
    the timed pass calls `log_prob` of them instead of the top-k. between: opens the model and returns a function that
    runs untimed between two calls, such as one step of the LSTM; None: nothing runs.
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
    """A right output: its ids, and its number of edits from the source, in words."""

    ids: list[int]
    edits: int


@dataclass(slots=True, kw_only=True)
class DecodingSetting(Setting):
    """Sources are token ids; `batch` sources are decoded at a time, at most `limit` tokens each.

    reference, training: for `SequenceDecoding.fit`, made when a method needs them. A task that has them declares
    `reference-text`, `training-pairs` in `provides`. gold: the right outputs of each evaluated source, one or more.
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
    """Base of all tasks. Parameters are the fields of a class, as for methods. The decorator names the contract, which
    determines the setting that `prepare` returns and the answers that `metrics` gets.

    measures: descriptions of metrics for which tables should show more than the name."""

    measures: ClassVar[tuple[Metric, ...]] = ()
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {}  # parameters whose default depends on the scale

    @abstractmethod
    def prepare(self, context: Context, progress: Any) -> Any:
        """Load data and model (train it if the scale asks for it) and return the contract's setting.

        `progress` is a `harness.common.progress.Progress`. Called in every process of a cell, so everything that costs
        more than reading files is cached under `context.cache`.
        """

    @abstractmethod
    def metrics(self, setting: Any, answers: Sequence[Any]) -> dict[str, Measure]:
        """Metrics computed from the answers to `setting.evaluation` alone."""

    def evaluate(self, setting: Any, method: Any) -> dict[str, Measure]:
        """Metrics that need the fitted method itself, not its answers: BLEU of a beam search with it as softmax layer,
        perplexity by its `log_prob`. Part of the quality pass. None by default."""
        return {}

    def compared(self, setting: Any, ours: Sequence[Any], theirs: Sequence[Any]) -> dict[str, Measure]:
        """Metrics of the difference to the fidelity baseline that need the text, such as that of BLEU, with the
        interval of a paired test. For sequence decoding `ours` and `theirs` are ids of the method's and the baseline's
        outputs for `setting.evaluation`. None by default."""
        return {}

    def examples(self, setting: Any, method: Any, answers: Sequence[Any]) -> list[dict[str, str]]:
        """A few worked examples, each an ordered label -> text, printed under the table. None by default.

        `output` is this method's output; the other labels describe its input. Examples of several rows with equal
        inputs are shown together. Called after `evaluate` in the same process, so that its outputs can be reused.
        """
        return []

    def series(self, setting: Any, answers: Sequence[Any]) -> dict[str, list[float]]:
        """Numbers of each item by name, in the items' order (edit ratios, ...). None by default."""
        return {}
