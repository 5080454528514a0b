"""Compiled loops for a few rows: the product with a matrix, and a whole step of the decoder made of such products.

Profile in GB/s of weights read (one thread, uncached float32 weights 2048 x 512), here, by `torch.addmm` and by oneDNN
with packed weights: one row 20, 10, 13; two rows 19, 6, 12; five rows 19, 7, 18; eight rows 10, 7, 13. A row of the
matrix is read once, from start to end, for all rows of the input.

All functions that call each other, and the type that they read, are in this file: numba checks only this file for
changes when it loads compiled code from its cache. `ready` must be called once per process, because code from the cache
does not start the threads that it uses.

Fast-math without `nnan`: sums vectorise, NaNs still propagate.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import get_num_threads, njit, prange

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAST: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"reassoc", "contract", "arcp", "nsz"}}
RELU, GELU, SILU = range(3)  # activations that the compiled step knows


class Weights(NamedTuple):
    """All weights of a decoder's layers. matrices, scales, vectors: flat arrays. at: int64 [layers, 6, 4], for each
    matrix of a layer the offsets of the matrix, its scale and its bias, and its number of rows. norms: int64 [layers,
    3, 2], offsets of weight and bias of each norm. pre: whether norms come first. eps: float32 [layers, 3]."""

    matrices: NDArray[Any]
    scales: NDArray[np.float32]
    vectors: NDArray[np.float32]
    at: NDArray[np.int64]
    norms: NDArray[np.int64]
    eps: NDArray[np.float32]
    pre: bool
    activation: int


def ready() -> None:
    """Start numba's threads if they are not running."""
    get_num_threads()


@njit(**FAST)
def multiply(weight, scale, bias, x, result):  # type: ignore[no-untyped-def]
    """result [n, out] = x [n, in] @ (scale [out] * weight [out, in]).T + bias [out]; all C-contiguous. weight: float32
    with a scale of ones, or int8."""
    _columns(weight, scale, bias, x, result, 0, len(weight))


@njit(**FAST)
def _columns(weight, scale, bias, x, result, begin, end):  # type: ignore[no-untyped-def]
    """`multiply` for columns [begin, end) of the result. Five rows, as in a beam search, are summed together."""
    inputs = weight.shape[1]
    for column in range(begin, end):
        factor, add, row = scale[column], bias[column], 0
        while row + 5 <= len(x):
            a = b = c = d = e = np.float32(0)
            for place in range(inputs):
                w = np.float32(weight[column, place])
                a += w * x[row, place]
                b += w * x[row + 1, place]
                c += w * x[row + 2, place]
                d += w * x[row + 3, place]
                e += w * x[row + 4, place]
            for total in (a, b, c, d, e):
                result[row, column] = total * factor + add
                row += 1
        while row < len(x):
            total = np.float32(0)
            for place in range(inputs):
                total += np.float32(weight[column, place]) * x[row, place]
            result[row, column] = total * factor + add
            row += 1


@njit(parallel=True, **FAST)
def multiply_shared(weight, scale, bias, x, result, threads):  # type: ignore[no-untyped-def]
    """`multiply` with its columns split over threads."""
    outputs = len(weight)
    for part in prange(threads):
        _columns(weight, scale, bias, x, result, part * outputs // threads, (part + 1) * outputs // threads)


@njit(**FAST)
def normalise(x, weight, bias, eps):  # type: ignore[no-untyped-def]
    """Layer normalisation of rows [n, d], a new array."""
    width = x.shape[1]
    result = np.empty_like(x)
    for row in range(len(x)):
        mean = np.float32(0)
        for place in range(width):
            mean += x[row, place]
        mean /= np.float32(width)
        variance = np.float32(0)
        for place in range(width):
            variance += (x[row, place] - mean) * (x[row, place] - mean)
        inverse = np.float32(1) / np.sqrt(variance / np.float32(width) + np.float32(eps))
        for place in range(width):
            result[row, place] = (x[row, place] - mean) * inverse * weight[place] + bias[place]
    return result


@njit(**FAST)
def activate(x, kind):  # type: ignore[no-untyped-def]
    """The activation, in place."""
    flat = x.reshape(-1)
    if kind == RELU:
        for place in range(len(flat)):
            flat[place] = max(flat[place], np.float32(0))
    elif kind == GELU:
        half = np.float32(math.sqrt(0.5))
        for place in range(len(flat)):
            flat[place] *= np.float32(0.5) * (np.float32(1) + np.float32(math.erf(flat[place] * half)))
    else:
        for place in range(len(flat)):
            flat[place] /= np.float32(1) + np.exp(-flat[place])


@njit(**FAST)
def _weigh(scores):  # type: ignore[no-untyped-def]
    """Softmax, in place."""
    largest, total = scores.max(), np.float32(0)
    for place in range(len(scores)):
        scores[place] = np.exp(scores[place] - largest)
        total += scores[place]
    for place in range(len(scores)):
        scores[place] /= total


@njit(**FAST)
def attend_to_cache(query, cache, layer, row, count, result):  # type: ignore[no-untyped-def]
    """Attention of one token to the first `count` positions of a row. query, result: [heads * size]; cache: [layers,
    rows, longest, 2, heads, size]. The loop goes over positions first, in memory order. With heads first, the same 128
    bytes of every position share few cache lines, and a step of five rows took up to twice as long."""
    held, heads, size = cache[layer, row], cache.shape[4], cache.shape[5]
    scale, scores = np.float32(1 / math.sqrt(size)), np.empty((heads, count), np.float32)
    for place in range(count):
        for head in range(heads):
            first, total = head * size, np.float32(0)
            for at in range(size):
                total += query[first + at] * held[place, 0, head, at]
            scores[head, place] = total * scale
    for head in range(heads):
        _weigh(scores[head])
    for at in range(heads * size):
        result[at] = np.float32(0)
    for place in range(count):
        for head in range(heads):
            first, weight = head * size, scores[head, place]
            for at in range(size):
                result[first + at] += weight * held[place, 1, head, at]


@njit(**FAST)
def attend_to_source(query, source, layer, row, count, result):  # type: ignore[no-untyped-def]
    """The same, source: [layers, 2, sources, heads, longest, size]."""
    heads, size = source.shape[3], source.shape[5]
    scale, scores = np.float32(1 / math.sqrt(size)), np.empty(count, np.float32)
    for head in range(heads):
        first = head * size
        for place in range(count):
            total = np.float32(0)
            for at in range(size):
                total += query[first + at] * source[layer, 0, row, head, place, at]
            scores[place] = total * scale
        _weigh(scores)
        for at in range(size):
            result[first + at] = np.float32(0)
        for place in range(count):
            for at in range(size):
                result[first + at] += scores[place] * source[layer, 1, row, head, place, at]


@njit(**FAST)
def step(x, row_of, place_of, sees, wanted, weights, cache, source, counts, owners, threads):  # type: ignore[no-untyped-def]
    """States [m, d] of the tokens `wanted`, int64 [m] ascending, among the embedded tokens x [n, d]. Token i is at
    place_of[i] of row row_of[i] and attends to the row's first sees[i] positions. Keys and values of all tokens are
    written to the cache. counts: tokens of each source; owners: the source of each row."""
    width = x.shape[1]
    for layer in range(len(weights.at)):
        at = weights.at[layer]
        qkv = _dense(weights, at[0], _read(weights, layer, 0, x), threads)
        for i in range(len(x)):
            held = cache[layer, row_of[i], place_of[i]].reshape(-1)
            for column in range(2 * width):
                held[column] = qkv[i, width + column]
        if layer == len(weights.at) - 1 and len(wanted) < len(x):  # the others are not needed any more
            x, qkv, row_of, sees = x[wanted], qkv[wanted], row_of[wanted], sees[wanted]
        mixed = np.empty((len(x), width), np.float32)
        for i in range(len(x)):
            attend_to_cache(qkv[i], cache, layer, row_of[i], sees[i], mixed[i])
        x = _add(weights, layer, 0, x, _dense(weights, at[1], mixed, threads))
        query = _dense(weights, at[2], _read(weights, layer, 1, x), threads)
        for i in range(len(x)):
            owner = owners[row_of[i]]
            attend_to_source(query[i], source, layer, owner, counts[owner], mixed[i])
        x = _add(weights, layer, 1, x, _dense(weights, at[3], mixed, threads))
        inner = _dense(weights, at[4], _read(weights, layer, 2, x), threads)
        activate(inner, weights.activation)
        x = _add(weights, layer, 2, x, _dense(weights, at[5], inner, threads))
    return x


@njit(**FAST)
def _dense(weights, at, x, threads):  # type: ignore[no-untyped-def]
    """x through the matrix with the offsets `at`."""
    outputs, inputs = at[3], x.shape[1]
    matrix = weights.matrices[at[0] : at[0] + outputs * inputs].reshape((outputs, inputs))
    scale, bias = weights.scales[at[1] : at[1] + outputs], weights.vectors[at[2] : at[2] + outputs]
    result = np.empty((len(x), outputs), np.float32)
    if threads > 1:
        multiply_shared(matrix, scale, bias, x, result, threads)
    else:
        multiply(matrix, scale, bias, x, result)
    return result


@njit(**FAST)
def _normalised(weights, layer, sub_layer, x):  # type: ignore[no-untyped-def]
    weight, bias, width = weights.norms[layer, sub_layer, 0], weights.norms[layer, sub_layer, 1], x.shape[1]
    return normalise(
        x, weights.vectors[weight : weight + width], weights.vectors[bias : bias + width],
        weights.eps[layer, sub_layer],
    )  # fmt: skip


@njit(**FAST)
def _read(weights, layer, sub_layer, x):  # type: ignore[no-untyped-def]
    """The input of a sub-layer."""
    return _normalised(weights, layer, sub_layer, x) if weights.pre else x


@njit(**FAST)
def _add(weights, layer, sub_layer, x, y):  # type: ignore[no-untyped-def]
    """x plus a sub-layer's output y."""
    return x + y if weights.pre else _normalised(weights, layer, sub_layer, x + y)


@njit(**FAST)
def largest(values, count):  # type: ignore[no-untyped-def]
    """The `count` largest of float32 values [n], best first, their indices int64 [count], and whether there is a tie
    among them or between the last and one left out. Needs count <= n."""
    best, places = np.empty(count, np.float32), np.empty(count, np.int64)
    held, tied = 0, False
    for place in range(len(values)):
        value = values[place]
        if held == count:
            if value < best[count - 1]:
                continue
            if value == best[count - 1]:
                tied = True
                continue
        at = min(held, count - 1)
        while at > 0 and best[at - 1] < value:
            best[at], places[at] = best[at - 1], places[at - 1]
            at -= 1
        best[at], places[at] = value, place
        held = min(held + 1, count)
        tied = tied or (at > 0 and best[at - 1] == value)
    return best, places, tied
