"""Sizes of language models and their training. No training module imports this table, so a new size does not invalidate
trained models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its training. Heads have width 64; the feed-forward part is four times as wide as the model.
    optimizer: AdamW, or Muon for the matrices (`harness.common.training.optimizers`)."""

    vocabulary: int
    layers: int
    width: int
    window: int
    batch: int  # windows per step
    steps: int
    learning_rate: float
    dropout: float = 0.05
    optimizer: Literal["adamw", "muon"] = "adamw"


SIZES: Mapping[str, Size] = {
    # AdamW takes 1,500 steps, 102 seconds instead of 67, for the same loss on held-out text
    "mini": Size(
        vocabulary=4096, layers=2, width=128, window=128, batch=8, steps=900, learning_rate=1.2e-2, optimizer="muon"
    ),
    "small": Size(vocabulary=8192, layers=3, width=256, window=256, batch=8, steps=3000, learning_rate=2e-3),
    # with more text than WikiText-2 (`training_text`), most of it seen once: an hour and a quarter on two cores
    "medium": Size(
        vocabulary=8192,
        layers=6,
        width=320,
        window=256,
        batch=16,
        steps=3000,
        learning_rate=4e-3,
        dropout=0.0,
        optimizer="muon",
    ),
    # its window holds a passage of 256 tokens, a question and 128 tokens of output
    "serving": Size(vocabulary=8192, layers=2, width=256, window=512, batch=4, steps=2000, learning_rate=2e-3),
    # the same, small enough that searching takes the share of the time that it has in the paper
    "serving-tiny": Size(vocabulary=8192, layers=2, width=128, window=512, batch=4, steps=2000, learning_rate=3e-3),
    # the larger language model
    "serving-large": Size(vocabulary=8192, layers=4, width=512, window=512, batch=4, steps=2000, learning_rate=1e-3),
}
