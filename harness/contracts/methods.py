"""The methods' side of the contracts: one base class each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from harness.contracts.answers import Decoded, TokenScores, TopK, near_tie

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.common.cache import CellArtifacts as Artifacts
    from harness.common.cache import SharedResults as Shared
    from harness.common.phases import Phases
    from harness.contracts.metrics import Metric
    from harness.contracts.models import GenerationModel, LanguageModel, OutputLayer, Streams, TrainingPairs
    from harness.contracts.ratios import Ratio

Contract = Literal["token-scoring", "softmax-screening", "sequence-decoding", "retrieval-generation"]
CONTRACTS: tuple[Contract, ...] = ("token-scoring", "softmax-screening", "sequence-decoding", "retrieval-generation")

NEEDS: Mapping[str, str] = {
    "causal": "a causal model: `GenerationModel.kind` is `causal`",
    "encoder-decoder": "an encoder-decoder model: `GenerationModel.kind` is `encoder-decoder`",
    "passages": "passages of text to retrieve from, as the knowledge",
    "reference-text": "streams of token ids of reference text, to build a datastore or index from",
    "training-pairs": "pairs of source and target ids, to train a drafter on",
}
"""Word of `needs` and `provides` -> what it means. A method runs on the tasks of its contract that provide all that it
needs."""


class Method(ABC):
    """Base of all methods. Parameters are the fields of a class, annotated and with defaults.

    A parameter whose name is a Python keyword ends in an underscore (`lambda_` is `lambda` in recipes).
    measures: descriptions of counters and ratios for which tables should show more than the name.
    """

    contract: ClassVar[Contract]
    measures: ClassVar[tuple[Metric, ...]] = ()

    def __post_init__(self) -> None:  # noqa: B027 - most methods keep nothing
        """Set up what an instance keeps besides its parameters, and refuse parameters that do not go together."""

    def open(self, subject: Any, artifacts: Artifacts) -> None:  # noqa: B027 - most baselines have nothing to open
        """Prepare to answer in a process that did not run `fit`. `subject` is the model or output layer."""

    def counters(self) -> dict[str, float]:
        """Deterministic numbers of the fitted method (entries, bytes, multiply-adds per call, ...)."""
        return {}

    def near_tie(self, model: Any) -> float:
        """The widest `gap` that rounding explains; by default of the type of the model's numbers."""
        return near_tie(model)

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Metrics from the samples of timing processes: a ratio of totals, with its interval over processes."""
        return {}

    @property
    def random_fit(self) -> bool:
        """Whether the result of `fit` with these parameters varies, from run to run or by `seed` (k-means, a graph
        built by several threads, training). Such a cell is fitted several times (`timing.fits`)."""
        return False


class TokenScoring(Method):
    """Gives the probability of every token of a text."""

    contract: ClassVar[Contract] = "token-scoring"

    def fit(self, model: LanguageModel, reference: Streams, validation: Streams, artifacts: Artifacts) -> None:
        """Build what `score` needs from reference streams, and tune on validation streams."""

    @abstractmethod
    def score(
        self, model: LanguageModel, streams: Streams, phases: Phases, shared: Shared | None = None
    ) -> list[TokenScores]:
        """Score tokens 1..T-1 of each stream [T]. `shared` is given only in the quality pass."""


class SoftmaxScreening(Method):
    """Finds the top-k words of a softmax layer.

    `counters` are about `topk`. If `log_prob` does other work, it has its own, such as `log_prob_multiply_adds`.
    """

    contract: ClassVar[Contract] = "softmax-screening"

    def fit(
        self,
        layer: OutputLayer,
        contexts: NDArray[np.float32],
        targets: NDArray[np.int64],
        artifacts: Artifacts,
    ) -> None:
        """Learn from training contexts [n, d] and the next words [n]."""

    @abstractmethod
    def topk(self, context: NDArray[np.float32], k: int) -> TopK:
        """Top-k of one context [d]."""

    def topk_many(self, contexts: NDArray[np.float32], k: int) -> TopK:
        """Top-k of contexts [n, d]; one by one unless a method overrides it."""
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
        """Natural-log probability of one word; `-inf` if the method gives it none."""


class SequenceDecoding(Method):
    """Decodes sources to outputs, token by token or faster."""

    contract: ClassVar[Contract] = "sequence-decoding"

    def fit(self, model: GenerationModel, reference: Streams, training: TrainingPairs, artifacts: Artifacts) -> None:
        """Build or train what decoding needs (an index, a drafter).

        reference: streams of token ids, int64 [T] each, if the method's `needs` has `reference-text`, else empty.
        training: pairs of source and target ids, if it has `training-pairs`, else empty.
        """

    @abstractmethod
    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        """Decode one batch of sources (ids), at most `limit` tokens each."""

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        """How far a token of `output` is below the model's best one, in logits: the farthest from the place on where it
        leaves the baseline's `expected`, whose token there counts, too. Infinite for an output that ends before `limit`
        and without an end token. None for a method that does not promise the baseline's output.

        A block and a single step use different matrix kernels, so a lossless method may differ at near ties, but only
        there. The driver counts other differences as `wide_differences`, of which a claim about speed allows none.
        """
        return None


class RetrievalGeneration(Method):
    """Continues a prompt with the help of retrieved passages or datastore entries."""

    contract: ClassVar[Contract] = "retrieval-generation"

    def fit(
        self,
        model: GenerationModel,
        knowledge: Sequence[str] | Streams,
        validation: Sequence[Any],
        artifacts: Artifacts,
    ) -> None:
        """Build the retriever, datastore or automaton that the parameters name."""

    @abstractmethod
    def generate(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> Decoded:
        """Continue one prompt (ids) by at most `limit` tokens.

        Phases: `retrieve` while waiting for a search, `encode` while encoding a query from text.
        """

    def gap(
        self, model: GenerationModel, prompt: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        """As for `SequenceDecoding`."""
        return None
