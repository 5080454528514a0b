"""The weights of a decoder for `kernels.step`, which runs a step of a few tokens in one compiled call.

Profile: at width 256 a step of 6 layers reads 30 MB of weights, and about a hundred calls of torch functions take
longer than that. Here one call runs the whole step, on contiguous weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from methods.decoding.engine.kernels import GELU, RELU, SILU, Weights
from methods.decoding.engine.layers import Norm

if TYPE_CHECKING:
    from methods.decoding.engine.layers import DecoderLayer

ACTIVATIONS = {"ReLU": RELU, "GELUActivation": GELU, "SiLUActivation": SILU, "SiLU": SILU}


def gathered(layers: Sequence[DecoderLayer]) -> Weights | None:
    """The weights of these layers; None if they are not float32 on a CPU, or if an activation or norm is unknown."""
    kinds = {ACTIVATIONS.get(type(layer.feed_forward.activation).__name__) for layer in layers}
    known = all(layer.qkv.plain is not None and isinstance(layer.residual.norm, Norm) for layer in layers)
    if len(kinds) != 1 or None in kinds or not known:
        return None
    matrices: list[NDArray[Any]] = []
    scales: list[NDArray[np.float32]] = []
    vectors: list[NDArray[np.float32]] = []

    def put(column: list[NDArray[Any]], array: NDArray[Any]) -> int:
        begin = sum(map(len, column))
        column.append(array.reshape(-1))
        return begin

    at, norms, eps = [], [], []
    for layer in layers:
        parts = (layer.qkv, layer.out, layer.source_query, layer.source_out)
        for dense in (*parts, layer.feed_forward.first, layer.feed_forward.second):
            assert dense.plain is not None
            weight, scale, bias = dense.plain
            at.append((put(matrices, weight), put(scales, scale), put(vectors, bias), len(weight)))
        for residual in (layer.residual, layer.source_residual, layer.feed_forward.residual):
            norm = residual.norm
            assert isinstance(norm, Norm)
            norms.append((put(vectors, _numbers(norm.weight)), put(vectors, _numbers(norm.bias))))
            eps.append(norm.eps)
    [activation] = kinds
    count = len(layers)
    return Weights(
        np.concatenate(matrices), np.concatenate(scales), np.concatenate(vectors),
        np.array(at, np.int64).reshape(count, 6, 4), np.array(norms, np.int64).reshape(count, 3, 2),
        np.array(eps, np.float32).reshape(count, 3), layers[0].residual.pre, int(activation or 0),
    )  # fmt: skip


def _numbers(tensor: torch.Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().contiguous().numpy()
    return array
