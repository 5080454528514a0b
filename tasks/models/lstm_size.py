"""A word LSTM's size and training. The table of sizes stands elsewhere: another size voids no trained model."""

from __future__ import annotations

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
