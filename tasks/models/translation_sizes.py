"""Sizes of LSTM translators and how each is trained; no torch here, for a task names a model by the content of its
size."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.models.translation_size import Size

SIZES: Mapping[str, Size] = {
    "mini": Size(width=96, dropout=0.0, batch=16, epochs=7, learning_rate=5e-3, warmup=100),
    "nmt-500": Size(width=500, dropout=0.3, batch=64, epochs=12, learning_rate=1e-3, warmup=400),
}
