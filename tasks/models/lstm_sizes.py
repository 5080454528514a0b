"""Sizes of word LSTMs and how each is trained; no torch here, for a task names a model by the content of its size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its training: SGD whose rate is 1 for `steady` epochs and then divided by `decay` every epoch.

    width: of embedding and hidden states. initial: weights start uniformly in +-initial. clip: of the gradient of the
    loss summed over `bptt` words and averaged over `batch` streams, as in the paper, for which the rate of 1 is meant.
    """

    width: int
    layers: int = 2
    dropout: float
    initial: float
    batch: int = 20
    bptt: int
    epochs: int
    steady: int
    decay: float
    clip: float


SIZES: Mapping[str, Size] = {
    "mini": Size(width=96, dropout=0.1, initial=0.1, bptt=25, epochs=2, steady=1, decay=4, clip=5),
    "ptb-small": Size(width=200, dropout=0.15, initial=0.1, bptt=25, epochs=12, steady=5, decay=2, clip=5),
    "ptb-medium": Size(width=650, dropout=0.5, initial=0.05, bptt=35, epochs=39, steady=6, decay=1.2, clip=5),
    "ptb-large": Size(width=1500, dropout=0.65, initial=0.04, bptt=35, epochs=55, steady=14, decay=1.15, clip=10),
}
