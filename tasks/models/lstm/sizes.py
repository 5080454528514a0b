"""Sizes of word LSTMs and how each is trained. No torch here: a task reads the size for the keys of its cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its training, by one of two plans; what is None is not part of a size.

    SGD: the rate is 1 for `steady` epochs and then divided by `decay` every epoch. Adam, for few epochs: `peak` is the
    rate after a short warm-up, from which half a cosine falls; the recurrence runs in bfloat16 where that is fast.

    width: of embedding and hidden states. initial: weights start uniformly in +-initial. clip: of the gradient of the
    loss, which for SGD is summed over `bptt` words and averaged over `batch` streams, as in the paper, for which the
    rate of 1 is meant, and for Adam is a mean over words. tied: embedding and output layer share their weight, which
    learns more from few epochs (Press and Wolf, 2017).
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
        """The fields that are part of this size, as JSON: what names it in keys and in a model's folder."""
        return {name: value for name, value in asdict(self).items() if value is not None}


# ptb-large-short: PTB-Large trained in about an hour of one CPU core instead of 55 epochs
SIZES: Mapping[str, Size] = {
    "mini": Size(width=96, dropout=0.1, initial=0.1, bptt=25, epochs=2, steady=1, decay=4, clip=5),
    "ptb-small": Size(width=200, dropout=0.15, initial=0.1, bptt=25, epochs=12, steady=5, decay=2, clip=5),
    "ptb-medium": Size(width=650, dropout=0.5, initial=0.05, bptt=35, epochs=39, steady=6, decay=1.2, clip=5),
    "ptb-large": Size(width=1500, dropout=0.65, initial=0.04, bptt=35, epochs=55, steady=14, decay=1.15, clip=10),
    "ptb-large-short": Size(width=1500, dropout=0.4, initial=0.04, bptt=35, epochs=3, clip=0.5, peak=1e-3, tied=True),
}
