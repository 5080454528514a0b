"""An encoder-decoder's size and training. The table of sizes stands elsewhere: another size voids no trained model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its training with AdamW: linear warm-up over `warmup` steps, then half a cosine down to 5%.

    vocabulary: entries of the shared subword vocabulary. width: of the model; feed_forward: of the inner layers.
    positions: longest source or output, in ids. batch_ids: padded ids of the longer side, a step. longest: pairs with
    more ids on either side are left out of training. smoothing: share of probability that label smoothing spreads.
    """

    vocabulary: int
    encoder_layers: int
    decoder_layers: int
    width: int
    feed_forward: int
    heads: int
    positions: int = 512
    longest: int = 128
    batch_ids: int
    steps: int
    warmup: int
    learning_rate: float
    dropout: float = 0.0
    smoothing: float = 0.0
