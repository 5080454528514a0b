"""Sizes of word LSTMs and their training. Without torch: a task reads the size for its cache keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its training by one of two plans. Fields that are None are not part of a size.

    SGD: the rate is 1 for `steady` epochs, then divided by `decay` every epoch. Adam, for few epochs: a short warm-up
    to the rate `peak`, then half a cosine; the recurrence runs in bfloat16 if that is fast.

    width: of embedding and hidden states. initial: weights start uniformly in +-initial. clip: of the gradient of the
    loss. For SGD the loss is summed over `bptt` words and averaged over `batch` streams, as in the paper, whose rate is
    1; for Adam it is a mean over words. tied: embedding and output layer share their weight, which learns more in few
    epochs (Press and Wolf, 2017).
    """

    width: int
    layers: int = 2
    dropout: float
    initial: float
    batch: int = 20
    bptt: int
    epochs: int
    steady: int | None = None
    decay: float | None = None
    clip: float
    peak: float | None = None
    tied: bool | None = None

    def stated(self) -> dict[str, Any]:
        """The fields that are part of this size, JSON-able, for keys and a model's folder."""
        return {name: value for name, value in asdict(self).items() if value is not None}


# ptb-large-short: PTB-Large trained in about an hour of one CPU core instead of 55 epochs
SIZES: Mapping[str, Size] = {
    "mini": Size(width=96, dropout=0.1, initial=0.1, bptt=25, epochs=2, steady=1, decay=4, clip=5),
    "ptb-small": Size(width=200, dropout=0.15, initial=0.1, bptt=25, epochs=12, steady=5, decay=2, clip=5),
    "ptb-medium": Size(width=650, dropout=0.5, initial=0.05, bptt=35, epochs=39, steady=6, decay=1.2, clip=5),
    "ptb-large": Size(width=1500, dropout=0.65, initial=0.04, bptt=35, epochs=55, steady=14, decay=1.15, clip=10),
    "ptb-large-short": Size(width=1500, dropout=0.4, initial=0.04, bptt=35, epochs=3, clip=0.5, peak=1e-3, tied=True),
}
