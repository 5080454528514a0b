"""An LSTM translator's size and training. The table of sizes stands elsewhere: another size voids no trained model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its training by Adam, whose rate rises for `warmup` steps and falls along half a cosine.

    width: of embeddings, hidden states and contexts (even: each direction of the encoder has half of it). batch: pairs
    a step. unknown: how often a source word seen once in training is read as `<unk>`, so that `<unk>` is learned too.
    """

    width: int
    layers: int = 2
    dropout: float
    batch: int
    epochs: int
    learning_rate: float
    warmup: int
    unknown: float = 0.3
    clip: float = 1.0
