"""Sizes of LSTM translators and their training. Without torch: a task reads the size for its cache keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its training by Adam, whose rate rises for `warmup` steps, then falls along half a cosine.

    width: of embeddings, hidden states and contexts (even: each direction of the encoder has half of it). batch: pairs
    per step. unknown: probability that a source word seen once in training is read as `<unk>`, so that `<unk>` is
    learned.
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


SIZES: Mapping[str, Size] = {
    "mini": Size(width=96, dropout=0.0, batch=16, epochs=7, learning_rate=5e-3, warmup=100),
    "nmt-500": Size(width=500, dropout=0.3, batch=64, epochs=12, learning_rate=1e-3, warmup=400),
}
