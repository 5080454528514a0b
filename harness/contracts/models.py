"""The interfaces of models for methods: a language model, a generation model, an output layer; and their token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from harness.common.training.pairs import Pair

KeyKind = Literal["last_ffn_input", "last_ffn_output", "last_hidden"]
Streams: TypeAlias = "Sequence[NDArray[np.int64]]"  # token ids of texts, int64 [T] each
TrainingPairs: TypeAlias = "Sequence[Pair]"  # token ids of a source and of its output


@dataclass(slots=True)
class EncodedBlock:
    """A language model's predictions of consecutive tokens of one stream (one evaluation window).

    start: index in the stream of the first predicted token (>= 1: the first token of a stream is given).
    targets: int64 [t]; log_prob: float32 [t], natural log p(target); keys: float32 [t, d] or None.
    max_log_prob, entropy: float32 [t] (nats), or None unless asked for. All on the model's device.
    log_distribution(rows): float32 [n, V], natural-log probabilities for rows of this block, computed on demand.
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
    """A causal language model for token scoring."""

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
        """Collect the keys [1, t, d] or [t, d] of every forward pass of the module inside the context."""


class GenerationModel(Protocol):
    """An encoder-decoder or causal Transformer for decoding and retrieval generation. Decoders keep what they prepare
    of it under the object: it is hashed by identity (a dataclass has `eq=False`), its weights stay as they are."""

    name: str
    hash: str
    kind: Literal["encoder-decoder", "causal"]
    module: Any  # the transformers (or compatible) torch module, in eval mode on `device`
    tokenizer: Any
    start_id: int  # the decoder's first input (encoder-decoder), or the BOS token
    eos_ids: tuple[int, ...]
    vocabulary_size: int
    window: int  # longest sequence of the decoder, in tokens
    longest_source: int | None  # most tokens of a source; None: the encoder's positions have no limit
    device: str
    gguf: Path | None  # the GGUF file that the model was read from, if any

    @property
    def assistant(self) -> GenerationModel | None:
        """A smaller model of the same vocabulary, for assisted decoding; None if none was given."""

    @property
    def language_model(self) -> LanguageModel | None:
        """The same weights in the interface of token scoring; None for encoder-decoders."""


@dataclass(frozen=True, slots=True)
class OutputLayer:
    """A softmax layer: logits = weight @ h + bias. weight: float32 [L, d] C-contiguous, bias: float32 [L]."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
