"""The weights of a decoder for `kernels.step`, which runs a step of a few tokens in one compiled call.

Profile: at width 256 a step of 6 layers reads 30 MB of weights, and about a hundred calls of torch functions take
longer than that. Here one call runs the whole step, on contiguous weights. Gemma-3-270M in bfloat16 (18 layers, without
its output layer) takes 10 ms, where the modules of transformers take 57 and copying as many bytes 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.decoding.engine.kernels import (
    BEFORE,
    GELU,
    KEY,
    OF_OUTPUT,
    OF_SUM,
    QUERY,
    RELU,
    SILU,
    TANH_GELU,
    Weights,
)  # fmt: skip
from methods.decoding.engine.layers import DecoderLayer, Norm

ACTIVATIONS = {
    "ReLU": RELU, "GELUActivation": GELU, "GELUTanh": TANH_GELU, "NewGELUActivation": TANH_GELU,
    "SiLUActivation": SILU, "SiLU": SILU,
}  # fmt: skip


def gathered(layers: Sequence[DecoderLayer], heads: int, size: int, scale: float | None) -> Weights | None:
    """The weights of a decoder's layers; None if they are not float32 or bfloat16 on a CPU, or if an activation is
    unknown. They are addresses: the layers hold the numbers. heads: of queries; size: width of a head; scale: of
    scores, None for 1 / sqrt(size)."""
    kinds = {ACTIVATIONS.get(type(layer.feed_forward.activation).__name__) for layer in layers}
    if len(kinds) != 1 or None in kinds or layers[0].qkv.plain is None:
        return None
    at = np.zeros((len(layers), 6, 4), np.int64)
    norms, eps = np.zeros((len(layers), 11, 3), np.int64), np.zeros((len(layers), 11), np.float32)
    for number, layer in enumerate(layers):
        inner, own, source = layer.feed_forward, [layer.residual], []
        if layer.source_query is not None:
            own, source = [layer.residual, layer.source_residual], [layer.source_query, layer.source_out]
        places = {0: layer.qkv, 1: layer.out, 4: inner.first, 5: inner.second, **dict(enumerate(source, 2))}
        for place, dense in places.items():
            assert dense.plain is not None
            at[number, place] = *map(_address, dense.plain), dense.outputs
        around = {**dict(enumerate(own)), 2: inner.residual}
        norms_of = {
            3 * sub + kind: norm
            for sub, one in around.items()
            for kind, norm in ((BEFORE, one.before), (OF_OUTPUT, one.of_output), (OF_SUM, one.of_sum))
        }
        for place, norm in {**norms_of, QUERY: layer.query_norm, KEY: layer.key_norm}.items():
            if norm is not None:
                parts = (_address(norm.weight.numpy()), _address(norm.bias.numpy()))
                norms[number, place] = *parts, isinstance(norm, Norm)
                eps[number, place] = norm.eps
    [activation] = kinds
    return Weights(
        layers[0].qkv.plain[0][:0].copy(), at, norms, eps,
        np.array([layer.window or 0 for layer in layers]), np.array([layer.turned for layer in layers]),
        heads, size, scale or size**-0.5, int(activation or 0),
        layers[0].feed_forward.gated, layers[0].qkv.bfloat16,
    )  # fmt: skip


def _address(array: NDArray[Any]) -> int:
    """Where a contiguous array begins."""
    assert array.flags.c_contiguous
    return int(array.ctypes.data)
