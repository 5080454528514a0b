"""Sizes of word LSTMs and how each is trained; no torch here, for a task names a model by the content of its size."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.models.lstm_size import Size

# ptb-large-short: PTB-Large trained in about an hour of one CPU core instead of 55 epochs
SIZES: Mapping[str, Size] = {
    "mini": Size(width=96, dropout=0.1, initial=0.1, bptt=25, epochs=2, steady=1, decay=4, clip=5),
    "ptb-small": Size(width=200, dropout=0.15, initial=0.1, bptt=25, epochs=12, steady=5, decay=2, clip=5),
    "ptb-medium": Size(width=650, dropout=0.5, initial=0.05, bptt=35, epochs=39, steady=6, decay=1.2, clip=5),
    "ptb-large": Size(width=1500, dropout=0.65, initial=0.04, bptt=35, epochs=55, steady=14, decay=1.15, clip=10),
    "ptb-large-short": Size(width=1500, dropout=0.4, initial=0.04, bptt=35, epochs=3, clip=0.5, peak=1e-3, tied=True),
}
