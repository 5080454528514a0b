"""Maximum inner product search as nearest-neighbour search (Bachrach et al., 2014; Neyshabur and Srebro, 2015).

With x = [w; b] and U the largest ||x||, the points [x; sqrt(U^2 - ||x||^2)] all have length U. Their inner products
with the query [h; 1; 0] are the logits. So the nearest point, by distance or angle, is the word with the largest logit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.contracts import OutputLayer


def points(layer: OutputLayer) -> NDArray[np.float32]:
    """float32 [L, d + 2], all rows of the same length U."""
    items = np.column_stack([layer.weight, layer.bias]).astype(np.float64)
    squares = np.einsum("ld,ld->l", items, items)
    lift = np.sqrt(np.maximum(squares.max() - squares, 0))
    return np.column_stack([items, lift]).astype(np.float32)


def query(context: NDArray[np.float32], out: NDArray[np.float32]) -> NDArray[np.float32]:
    """[h; 1; 0], written into `out` float32 [d + 2] and returned."""
    out[:-2] = context
    out[-2] = 1
    out[-1] = 0
    return out
