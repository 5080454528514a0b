"""Compiled loops for a few rows: the product with a matrix, and a whole step of the decoder made of such products.

Profile in GB/s of weights read (two threads; a matrix of 262,144 x 640, larger than the caches). The loop reads a row
of the matrix once, from start to end, for all rows of the input, and widens its numbers to float32 on the way:

| rows of the input | 1 | 2 | 4 | 8 | 16 |
| --- | --- | --- | --- | --- | --- |
| float32, the loop | 26 | 25 | 28 | 19 | |
| float32, oneDNN with packed weights | 23 | 23 | 25 | 29 | 21 |
| bfloat16, the loop | 27 | 21 | 16 | 11 | |
| bfloat16, oneDNN with packed weights | 22 | 21 | 25 | 27 | 16 |
| int8, the loop | 29 | 23 | 13 | 9 | |

That was on an AMD EPYC. An Intel Xeon with AVX-512 reads 30 GB/s on two threads, but one sum at a time keeps it
waiting for additions: int8 has 10 GB/s there, 18 with two columns at once; bfloat16 18, 26 in pairs from huge pages.

All functions that call each other, and the type that they read, are in this file: numba checks only this file for
changes when it loads compiled code from its cache. `ready` must be called once per process, because code from the cache
does not start the threads that it uses. Fast-math without `nnan`: sums vectorise, NaNs still propagate.

A function that `step` calls is compiled twice, alone and again as a part of `step`. A process that compiles runs the
first copy, one that loads from the cache the second. Where the compiler orders a sum, the copies may differ: those of
the softmax did, so it sums in order. The other sums keep fast-math; `test_compile_cache` compares the states.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import carray, get_num_threads, njit, prange, types
from numba.extending import intrinsic
from numpy.typing import NDArray

FAST: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"reassoc", "contract", "arcp", "nsz"}}
RELU, GELU, SILU, TANH_GELU = range(4)  # activations that the compiled step knows
BEFORE, OF_OUTPUT, OF_SUM = range(3)  # norms around a sub-layer f: OF_SUM(x + OF_OUTPUT(f(BEFORE(x))))
SHARE = 1 << 15  # numbers of keys from which attention is split over threads
QUERY, KEY = 9, 10  # norms of a layer after the three of each of its three sub-layers


class Weights(NamedTuple):
    """All weights of a decoder's layers. Addresses are of float32 arrays, of matrices also int8 or bfloat16 (uint16);
    0: there is none.

    matrix: an empty array of the matrices' type. at: int64 [layers, 6, 4], for each matrix of a layer the addresses of
    matrix, scale and bias, and its number of rows, 0 for a sub-layer that there is not. norms: int64 [layers, 11, 3],
    for each norm the addresses of weight and bias, and whether the mean is subtracted. eps: float32 [layers, 11].
    windows: int64 [layers], positions that a token sees, 0: all. turned: int64 [layers], which rotation of positions a
    layer has. heads: of queries. size: width of a head. scale: of scores. gated: the inner layer gives gate and value.
    bfloat16: see `multiply`.
    """

    matrix: NDArray[Any]
    at: NDArray[np.int64]
    norms: NDArray[np.int64]
    eps: NDArray[np.float32]
    windows: NDArray[np.int64]
    turned: NDArray[np.int64]
    heads: int
    size: int
    scale: float
    activation: int
    gated: bool
    bfloat16: bool


def ready() -> None:
    """Start numba's threads if they are not running. Their start sets the number of torch's threads as well, where both
    use one OpenMP library; it is put back."""
    threads = torch.get_num_threads()
    get_num_threads()
    torch.set_num_threads(threads)


@intrinsic
def _pointer(typing, address, like):  # type: ignore[no-untyped-def]
    """The address as a pointer to numbers of the type of the array `like`."""
    kind = types.CPointer(like.dtype)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(address, like), generate


@intrinsic
def widened(typing, number):  # type: ignore[no-untyped-def]
    """A float32, an int8, or a bfloat16 held as uint16, as float32."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        result = context.get_value_type(types.float32)
        if number == types.uint16:  # the upper half of a float32
            half = builder.zext(arguments[0], context.get_value_type(types.uint32))
            return builder.bitcast(builder.shl(half, half.type(16)), result)
        return arguments[0] if number == types.float32 else builder.sitofp(arguments[0], result)

    return types.float32(number), generate


@intrinsic
def _number(typing, bits):  # type: ignore[no-untyped-def]
    """The float32 with the bits uint32."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(bits), generate


@intrinsic
def _bits(typing, number):  # type: ignore[no-untyped-def]
    """The bits of a float32, uint32."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], context.get_value_type(types.uint32))

    return types.uint32(number), generate


@njit(**FAST)
def to_bfloat16(number):  # type: ignore[no-untyped-def]
    """A float32 rounded to bfloat16, ties to even."""
    bits = _bits(number)
    upper = np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
    return widened(upper)


@njit(**FAST)
def multiply(weight, scale, bias, x, bfloat16, result, threads):  # type: ignore[no-untyped-def]
    """result [n, out] = x [n, in] @ weight.T * scale [out] + bias [out]; all C-contiguous. weight: [out, in], see
    `widened`. bfloat16: x and the product are rounded to it, as oneDNN does. The columns of the result are split over
    threads."""
    if bfloat16:
        narrow = np.empty_like(x)
        for row in range(len(x)):
            for place in range(x.shape[1]):
                narrow[row, place] = to_bfloat16(x[row, place])
        x = narrow
    if threads > 1:
        _in_threads(weight, scale, bias, x, bfloat16, result, threads)
    else:
        _columns(weight, scale, bias, x, bfloat16, result, 0, len(weight))


@njit(parallel=True, **FAST)
def _in_threads(weight, scale, bias, x, bfloat16, result, threads):  # type: ignore[no-untyped-def]
    outputs = len(weight)
    for part in prange(threads):
        _columns(weight, scale, bias, x, bfloat16, result, part * outputs // threads, (part + 1) * outputs // threads)


@njit(**FAST)
def _columns(weight, scale, bias, x, bfloat16, result, begin, end):  # type: ignore[no-untyped-def]
    """`multiply` for columns [begin, end) of the result. Five rows, as in a beam search, are summed together; of one
    row two columns, where int8 would wait for the sum and not for the weights. Numbers in bfloat16 are read in pairs:
    a shift gives the first as float32, a mask the second (little-endian); `widened` spreads each over 32 bits."""
    inputs = weight.shape[1]
    if len(x) == 1 and weight.itemsize == 2 and inputs % 2 == 0:
        pairs, even, odd = weight.view(np.uint32), x[0, ::2].copy(), x[0, 1::2].copy()
        for column in range(begin, end):
            a = b = np.float32(0)
            for place in range(len(even)):
                pair = pairs[column, place]
                a += _number(np.uint32(pair << np.uint32(16))) * even[place]
                b += _number(np.uint32(pair & np.uint32(0xFFFF0000))) * odd[place]
            total = a + b
            result[0, column] = (to_bfloat16(total) if bfloat16 else total) * scale[column] + bias[column]
        return
    while len(x) == 1 and weight.itemsize == 1 and begin + 2 <= end:
        a = b = np.float32(0)
        for place in range(inputs):
            a += widened(weight[begin, place]) * x[0, place]
            b += widened(weight[begin + 1, place]) * x[0, place]
        for total in (a, b):
            result[0, begin] = (to_bfloat16(total) if bfloat16 else total) * scale[begin] + bias[begin]
            begin += 1
    for column in range(begin, end):
        factor, add, row = scale[column], bias[column], 0
        while row + 5 <= len(x):
            a = b = c = d = e = np.float32(0)
            for place in range(inputs):
                w = widened(weight[column, place])
                a += w * x[row, place]
                b += w * x[row + 1, place]
                c += w * x[row + 2, place]
                d += w * x[row + 3, place]
                e += w * x[row + 4, place]
            for total in (a, b, c, d, e):
                result[row, column] = (to_bfloat16(total) if bfloat16 else total) * factor + add
                row += 1
        while row + 2 <= len(x):
            a = b = np.float32(0)
            for place in range(inputs):
                w = widened(weight[column, place])
                a += w * x[row, place]
                b += w * x[row + 1, place]
            for total in (a, b):
                result[row, column] = (to_bfloat16(total) if bfloat16 else total) * factor + add
                row += 1
        if row < len(x):
            total = np.float32(0)
            for place in range(inputs):
                total += widened(weight[column, place]) * x[row, place]
            result[row, column] = (to_bfloat16(total) if bfloat16 else total) * factor + add


@njit(**FAST)
def normalise(x, weight, bias, eps, centred):  # type: ignore[no-untyped-def]
    """Layer normalisation of rows [n, d], or, not centred, division by the root mean square; a new array."""
    width = x.shape[1]
    result = np.empty_like(x)
    for row in range(len(x)):
        mean = np.float32(0)
        if centred:
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
    """The activation of rows [n, f], in place."""
    flat = x.reshape(-1)
    if kind == RELU:
        for place in range(len(flat)):
            flat[place] = max(flat[place], np.float32(0))
    elif kind == GELU:
        half = np.float32(math.sqrt(0.5))
        for place in range(len(flat)):
            flat[place] *= np.float32(0.5) * (np.float32(1) + np.float32(math.erf(flat[place] * half)))
    elif kind == TANH_GELU:
        steep, cubic = np.float32(math.sqrt(8 / math.pi)), np.float32(0.044715)
        for place in range(len(flat)):  # (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u))
            inner = steep * (flat[place] + cubic * flat[place] * flat[place] * flat[place])
            flat[place] /= np.float32(1) + np.exp(-inner)
    else:
        for place in range(len(flat)):
            flat[place] /= np.float32(1) + np.exp(-flat[place])


@njit(**FAST)
def _gated(x, kind):  # type: ignore[no-untyped-def]
    """activation(first half) * second half of rows [n, 2 f], a new array [n, f]."""
    width = x.shape[1] // 2
    gate = x[:, :width].copy()
    activate(gate, kind)
    return gate * x[:, width:]


@njit(nogil=True, cache=True, fastmath=False)
def _weigh(scores):  # type: ignore[no-untyped-def]
    """Softmax, in place, summed in order. Without `fastmath=False` numba hands down the caller's fast-math."""
    largest, total = scores.max(), np.float32(0)
    for place in range(len(scores)):
        scores[place] = np.exp(scores[place] - largest)
        total += scores[place]
    for place in range(len(scores)):
        scores[place] /= total


@njit(**FAST)
def attend_to_cache(query, held, begin, end, scale, result, head_from, head_to):  # type: ignore[no-untyped-def]
    """Attention of one token to positions [begin, end) of a row, by heads [head_from, head_to). query, result: [heads *
    size]; held: [longest, 2, shared, size], where each of the `shared` keys and values serves as many heads. The loop
    goes over positions first, in memory order. With heads first, the same 128 bytes of every position share few cache
    lines, and a step of five rows took up to twice as long."""
    size = held.shape[3]
    each, scores = len(query) // size // held.shape[2], np.empty((head_to - head_from, end - begin), np.float32)
    for place in range(begin, end):
        for head in range(head_from, head_to):
            first, total, key = head * size, np.float32(0), held[place, 0, head // each]
            for at in range(size):
                total += query[first + at] * key[at]
            scores[head - head_from, place - begin] = total * scale
    for number in range(len(scores)):
        _weigh(scores[number])
    for at in range(head_from * size, head_to * size):
        result[at] = np.float32(0)
    for place in range(begin, end):
        for head in range(head_from, head_to):
            first, weight, value = head * size, scores[head - head_from, place - begin], held[place, 1, head // each]
            for at in range(size):
                result[first + at] += weight * value[at]


@njit(parallel=True, **FAST)
def _attend_in_threads(query, held, begin, end, scale, result, heads, threads):  # type: ignore[no-untyped-def]
    for part in prange(threads):
        attend_to_cache(query, held, begin, end, scale, result, part * heads // threads, (part + 1) * heads // threads)


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
def step(x, row_of, place_of, sees, wanted, weights, turns, cache, source, counts, owners, threads):  # type: ignore[no-untyped-def]
    """States [m, d] of the tokens `wanted`, int64 [m] ascending, among the embedded tokens x [n, d]. Token i is at
    place_of[i] of row row_of[i] and attends to the row's first sees[i] positions. Keys and values of all tokens are
    written to the cache, [layers, rows, places, 2, shared, size]. turns: [rotations, places, 2, size / 2], cosines and
    sines of rotary positions; of no rotation if the model has none. counts: tokens of each source; owners: the source
    of each row."""
    heads, own = weights.heads, weights.heads * weights.size
    for layer in range(len(weights.at)):
        at = weights.at[layer]
        qkv = _dense(weights, at[0], _norm(weights, layer, BEFORE, x), threads)
        write(weights, layer, qkv, turns, row_of, place_of, cache)
        if layer == len(weights.at) - 1 and len(wanted) < len(x):  # the others are not needed any more
            x, qkv, row_of, sees = x[wanted], qkv[wanted], row_of[wanted], sees[wanted]
        mixed = np.empty((len(x), own), np.float32)
        scale, window = np.float32(weights.scale), weights.windows[layer]
        for i in range(len(x)):
            begin, end, held = max(0, sees[i] - window) if window else 0, sees[i], cache[layer, row_of[i]]
            if threads > 1 and (end - begin) * own >= SHARE:
                _attend_in_threads(qkv[i, :own], held, begin, end, scale, mixed[i], heads, threads)
            else:
                attend_to_cache(qkv[i, :own], held, begin, end, scale, mixed[i], 0, heads)
        x = _add(weights, layer, 0, x, _dense(weights, at[1], mixed, threads))
        if at[2, 3]:
            query = _dense(weights, at[2], _norm(weights, layer, 3 + BEFORE, x), threads)
            for i in range(len(x)):
                owner = owners[row_of[i]]
                attend_to_source(query[i], source, layer, owner, counts[owner], mixed[i])
            x = _add(weights, layer, 1, x, _dense(weights, at[3], mixed, threads))
        inner = _dense(weights, at[4], _norm(weights, layer, 6 + BEFORE, x), threads)
        if weights.gated:
            inner = _gated(inner, weights.activation)
        else:
            activate(inner, weights.activation)
        x = _add(weights, layer, 2, x, _dense(weights, at[5], inner, threads))
    return x


@njit(**FAST)
def write(weights, layer, qkv, turns, row_of, place_of, cache):  # type: ignore[no-untyped-def]
    """Normalise and rotate the queries and keys in qkv [n, (heads + 2 shared) size], in place, and write keys and
    values to the cache. The other arguments are those of `step`. It uses one thread: numba's own would take the cores
    from torch's between two products."""
    size, own, others = weights.size, weights.heads * weights.size, cache.shape[4] * weights.size
    for i in range(len(qkv)):
        _prepare(weights, layer, qkv[i, : own + others].reshape((-1, size)), turns, place_of[i])
        held = cache[layer, row_of[i], place_of[i]].reshape(-1)
        for column in range(2 * others):
            held[column] = qkv[i, own + column]


@njit(**FAST)
def _prepare(weights, layer, heads, turns, place):  # type: ignore[no-untyped-def]
    """Normalise and rotate the queries and keys [heads + shared, size] of one token, in place."""
    half = heads.shape[1] // 2
    if weights.norms[layer, QUERY, 0]:
        for number, begin, end in ((QUERY, 0, weights.heads), (KEY, weights.heads, len(heads))):
            normal = _norm(weights, layer, number, heads[begin:end])
            for head in range(begin, end):  # numba takes seconds to compile an assignment to a slice
                for at in range(heads.shape[1]):
                    heads[head, at] = normal[head - begin, at]
    if len(turns):
        cosine, sine = turns[weights.turned[layer], place, 0], turns[weights.turned[layer], place, 1]
        for head in range(len(heads)):
            for at in range(half):
                a, b = heads[head, at], heads[head, half + at]
                heads[head, at] = a * cosine[at] - b * sine[at]
                heads[head, half + at] = b * cosine[at] + a * sine[at]


@njit(**FAST)
def _dense(weights, at, x, threads):  # type: ignore[no-untyped-def]
    """x through the matrix with the addresses `at`."""
    outputs = at[3]
    result = np.empty((len(x), outputs), np.float32)
    matrix = carray(_pointer(at[0], weights.matrix), (outputs, x.shape[1]))
    scale = carray(_pointer(at[1], weights.eps), (outputs,))
    bias = carray(_pointer(at[2], weights.eps), (outputs,))
    multiply(matrix, scale, bias, x, weights.bfloat16, result, threads)
    return result


@njit(**FAST)
def _norm(weights, layer, number, x):  # type: ignore[no-untyped-def]
    """x through a norm of the layer; x itself if the layer does not have it."""
    parts, width = weights.norms[layer, number], x.shape[1]
    if not parts[0]:
        return x
    weight = carray(_pointer(parts[0], weights.eps), (width,))
    bias = carray(_pointer(parts[1], weights.eps), (width,))
    return normalise(x, weight, bias, weights.eps[layer, number], parts[2])


@njit(**FAST)
def _add(weights, layer, sub_layer, x, y):  # type: ignore[no-untyped-def]
    """x plus a sub-layer's output y."""
    return _norm(weights, layer, 3 * sub_layer + OF_SUM, x + _norm(weights, layer, 3 * sub_layer + OF_OUTPUT, y))
