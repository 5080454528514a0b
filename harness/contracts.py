"""The four contracts between methods and tasks, and the records that flow through them.

A method declares one contract and does the work; a task declares the same contract and supplies data, model
and metric. The harness pairs them and measures. Nothing here imports torch: arrays are named in signatures only.

| contract | class | given | baseline | fidelity |
| --- | --- | --- | --- | --- |
| token scoring | `TokenScoring` | a language model, streams of token ids | the LM alone | perplexity difference |
| softmax screening | `SoftmaxScreening` | `weight [L, d]`, `bias [L]`, contexts | full product | precision@k |
| sequence decoding | `SequenceDecoding` | a generation model, sources | greedy, beam 5 | exact match |
| retrieval generation | `RetrievalGeneration` | a causal model, passages or text | sequential retrieval | exact match |

Life of a method: `__init__(*, parameters)` -> `fit(...)` once, in a process of its own -> `open(subject, artifacts)`
in every other process -> `score` / `topk` / `decode` / `generate` as often as wanted. `open` takes the subject (the
model or output layer) beside the artifacts, because a screened softmax needs the layer's weights to answer at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from harness.metrics import Metric
from harness.ratios import Ratio

Contract = Literal["token-scoring", "softmax-screening", "sequence-decoding", "retrieval-generation"]
CONTRACTS: tuple[Contract, ...] = ("token-scoring", "softmax-screening", "sequence-decoding", "retrieval-generation")

KeyKind = Literal["last_ffn_input", "last_ffn_output", "last_hidden"]


class Phases(Protocol):
    """Names the parts of a timed run: `with phases("search"): ...` (seconds add up per name)."""

    def __call__(self, name: str) -> AbstractContextManager[None]: ...

    def overlapped(self, name: str, seconds: float) -> None:
        """Record seconds spent in a worker thread, outside the sum of phases."""


class Artifacts(Protocol):
    """What `fit` leaves for other processes: named files and folders, and small JSON values.

    Files are cached by the hash of all that determines them, so a method and its baseline that name the same
    artifact share it; see `harness.artifacts`.
    """

    def build(self, name: str, key: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
        """Path of the artifact with this key; when there is none, `build` fills a temporary folder first."""

    def path(self, name: str) -> Path:
        """Path of an artifact that `fit` built under this name. Raises `RequestError` when `fit` did not."""

    values: dict[str, Any]  # tuned parameters and the like, JSON-able, carried from `fit` to `open`


class Shared(Protocol):
    """Results that cells share in the quality pass only (neighbours of every evaluation position, ...)."""

    def arrays(
        self, name: str, key: Mapping[str, Any], compute: Callable[[], dict[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """The arrays stored under this key, computed once and memory-mapped afterwards."""


# ---------------------------------------------------------------- models


@dataclass(slots=True)
class EncodedBlock:
    """What a language model says about consecutive tokens of one stream (one evaluation window).

    start: index in the stream of the first predicted token (>= 1: the first token of a stream is given).
    targets: int64 [t]; log_prob: float32 [t], natural log p(target); keys: float32 [t, d] or None.
    max_log_prob, entropy: float32 [t] (nats), or None unless asked for. All on the model's device.
    log_distribution(rows): float32 [n, V], natural-log probabilities for rows of this block; V never held for all.
    """

    start: int
    targets: torch.Tensor
    log_prob: torch.Tensor
    keys: torch.Tensor | None
    max_log_prob: torch.Tensor | None
    entropy: torch.Tensor | None
    log_distribution: Callable[[torch.Tensor], torch.Tensor]


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model as token scoring sees it."""

    name: str  # hub id, path or recipe name, for messages
    hash: str  # of the weights
    tokenizer_hash: str
    vocabulary_size: int
    window: int  # longest input, in tokens
    device: str

    def key_dimension(self, key: KeyKind) -> int:
        """Width d of the keys. Raises `RequestError` naming the model type when it has no usable last block."""

    def encode(
        self, stream: NDArray[np.int64], *, key: KeyKind | None = None, statistics: bool = False
    ) -> Iterator[EncodedBlock]:
        """Predict tokens 1..T-1 of one stream of ids [T], each once, with the longest left context that the
        sliding window allows. `statistics` asks for `max_log_prob` and `entropy`. Bounded memory per block."""

    def capture(self, key: KeyKind) -> AbstractContextManager[list[torch.Tensor]]:
        """Collect the keys [1, t, d] or [t, d] of every forward pass that others make of the module meanwhile."""


class GenerationModel(Protocol):
    """An encoder-decoder or causal Transformer as decoding and retrieval generation see it."""

    name: str
    hash: str
    kind: Literal["encoder-decoder", "causal"]
    module: Any  # the transformers (or compatible) torch module, in eval mode on `device`
    tokenizer: Any
    start_id: int  # the decoder's first input (encoder-decoder), or the BOS token
    eos_ids: tuple[int, ...]
    vocabulary_size: int
    window: int  # longest sequence of the decoder, in tokens
    device: str
    language_model: LanguageModel | None  # the same weights as token scoring sees them; None for encoder-decoders


@dataclass(frozen=True, slots=True)
class OutputLayer:
    """A softmax layer: logits = weight @ h + bias. weight: float32 [L, d] C-contiguous, bias: float32 [L]."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]


# ---------------------------------------------------------------- answers


@dataclass(slots=True)
class TokenScores:
    """Natural-log probability of each predicted token of one stream.

    log_probs: float64 [T-1]. counters: deterministic totals (`searches`, `tokens`, ...). series: per-token arrays.
    """

    log_probs: NDArray[np.float64]
    counters: dict[str, float] = field(default_factory=dict)
    series: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(slots=True)
class TopK:
    """Best-first ids int64 [k] or [n, k], logits float32 of the same shape, log_normalizer float or float32 [n]
    (log-sum-exp of the logits over the method's candidate set)."""

    ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    log_normalizer: Any


@dataclass(slots=True)
class Trace:
    """How a sequence came about: model iterations, tokens accepted per iteration, deterministic counters,
    counters that depend on timing by design (never gate), and a text per step where a worked example shows it."""

    iterations: int = 0
    accepted: list[int] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    timing_counters: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Decoded:
    """One output: token ids without the start token, with the end token when it was generated."""

    ids: list[int]
    trace: Trace = field(default_factory=Trace)


# ---------------------------------------------------------------- methods


class Method(ABC):
    """Base of all methods. Parameters are keyword-only arguments of `__init__`, annotated and with defaults.

    A parameter whose name is a Python keyword ends in an underscore (`lambda_` is `lambda` in recipes).
    measures: what its counters and ratios are, where tables should show more than their names.
    """

    contract: ClassVar[Contract]
    measures: ClassVar[tuple[Metric, ...]] = ()

    def open(self, subject: Any, artifacts: Artifacts) -> None:  # noqa: B027 - most baselines have nothing to open
        """Make ready to answer in a process that did not run `fit`. `subject` is the model or output layer."""

    def counters(self) -> dict[str, float]:
        """Deterministic figures of the fitted method (entries, bytes, multiply-adds per call, ...)."""
        return {}

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Metrics that follow from the samples of a timing process; the row has their median over processes."""
        return {}

    @property
    def random_fit(self) -> bool:
        """Whether `fit` with these parameters gives something else each time, or by `seed` (k-means, a graph built by
        several threads, training). Such a cell is fitted several times (`timing.fits`)."""
        return False


class TokenScoring(Method):
    """Gives the probability of every token of a text."""

    contract: ClassVar[Contract] = "token-scoring"

    def fit(
        self,
        model: LanguageModel,
        reference: Sequence[NDArray[np.int64]],
        validation: Sequence[NDArray[np.int64]],
        artifacts: Artifacts,
    ) -> None:
        """Build what `score` needs from reference streams; tune on validation streams."""

    @abstractmethod
    def score(
        self,
        model: LanguageModel,
        streams: Sequence[NDArray[np.int64]],
        phases: Phases,
        shared: Shared | None = None,
    ) -> list[TokenScores]:
        """Score tokens 1..T-1 of each stream [T]. `shared` is given in the quality pass only."""


class SoftmaxScreening(Method):
    """Finds the top-k words of a softmax layer.

    `counters` speak of `topk`; where `log_prob` does other work, it has its own, such as `log_prob_multiply_adds`.
    """

    contract: ClassVar[Contract] = "softmax-screening"

    def fit(
        self,
        layer: OutputLayer,
        contexts: NDArray[np.float32],
        targets: NDArray[np.int64],
        artifacts: Artifacts,
    ) -> None:
        """Learn from training contexts [n, d] and the words [n] that followed them."""

    @abstractmethod
    def topk(self, context: NDArray[np.float32], k: int) -> TopK:
        """Top-k of one context [d]."""

    def topk_many(self, contexts: NDArray[np.float32], k: int) -> TopK:
        """Top-k of contexts [n, d]; one by one unless a method batches."""
        import numpy as np

        answers = [self.topk(context, k) for context in contexts]
        if not answers:
            return TopK(np.empty((0, k), np.int64), np.empty((0, k), np.float32), np.empty(0, np.float32))
        return TopK(
            np.stack([a.ids for a in answers]),
            np.stack([a.logits for a in answers]),
            np.asarray([a.log_normalizer for a in answers], np.float32),
        )

    @abstractmethod
    def log_prob(self, context: NDArray[np.float32], target: int) -> float:
        """Natural-log probability of one word; `-inf` where the method gives it none."""


class SequenceDecoding(Method):
    """Turns sources into outputs, token by token or faster."""

    contract: ClassVar[Contract] = "sequence-decoding"

    def fit(
        self, model: GenerationModel, training: Sequence[tuple[list[int], list[int]]], artifacts: Artifacts
    ) -> None:
        """Train what decoding needs (a drafter), from pairs of source and target ids."""

    @abstractmethod
    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        """Decode one batch of sources (ids), at most `limit` tokens each."""

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int]
    ) -> float | None:
        """How nearly the model itself was undecided where `output` first differs from the baseline's `expected`: its
        two best logits' difference there. None for a method that does not promise the baseline's output.

        A block and a single step go through different matrix kernels, so a lossless method may differ at a near tie
        and nowhere else; the driver counts the others as `wide_differences`.
        """
        return None


class RetrievalGeneration(Method):
    """Continues a prompt with the help of retrieved passages or datastore entries."""

    contract: ClassVar[Contract] = "retrieval-generation"

    def fit(
        self,
        model: GenerationModel,
        knowledge: Sequence[str] | Sequence[NDArray[np.int64]],
        validation: Sequence[Any],
        artifacts: Artifacts,
    ) -> None:
        """Build the retriever, datastore or automaton that the parameters name."""

    @abstractmethod
    def generate(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> Decoded:
        """Continue one prompt (ids) by at most `limit` tokens.

        Phases: `retrieve` while it waits for what is searched, `encode` while it makes a query of text.
        """

    def gap(
        self, model: GenerationModel, prompt: Sequence[int], output: list[int], expected: list[int]
    ) -> float | None:
        """As for `SequenceDecoding`."""
        return None
