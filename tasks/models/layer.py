"""The output layer of a model as arrays on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def write_layer(folder: Path, head: Any) -> None:
    """weight.npy float32 [L, d] and bias.npy float32 [L] (zeros where there is none) of a torch module."""
    weight = head.weight.detach().float().cpu().numpy()
    bias = getattr(head, "bias", None)
    np.save(folder / "weight.npy", weight)
    np.save(folder / "bias.npy", np.zeros(len(weight), np.float32) if bias is None else bias.detach().float().cpu())
