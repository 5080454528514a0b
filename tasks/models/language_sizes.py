"""Sizes of the language models that are trained here. They stand apart from what trains them, so that another size does
not void the models of these."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.models.from_scratch import Size

SIZES: Mapping[str, Size] = {
    "mini": Size(vocabulary=4096, layers=2, width=128, window=128, batch=8, steps=1500, learning_rate=4e-3),
    "small": Size(vocabulary=8192, layers=3, width=256, window=256, batch=8, steps=3000, learning_rate=2e-3),
}
