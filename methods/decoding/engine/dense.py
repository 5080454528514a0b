"""A linear layer that is fast for one row and for a few.

Decoding one token reads every weight once and does little arithmetic, so memory bandwidth limits it. Up to `FEW` rows
go through a compiled loop that reads the matrix from start to end (its profile is in `kernels`). More rows go through
oneDNN with weights packed once.

oneDNN compiles and keeps a kernel for every shape, and drafts have all lengths. So rows are padded to a multiple of
`FILL`, which bounds the memory of kernels. Time grows with the rows: padding to powers of two would nearly double the
time of a draft of 17 tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from methods.decoding.engine.kernels import multiply, multiply_shared

FEW = 5  # rows that go through the compiled loop
FILL = 4  # rows of the packed form are padded to a multiple of this
MOST = 64  # most rows of the packed form; more go through the BLAS library

Plain = tuple[NDArray[np.float32] | NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]]


class Dense:
    """x [n, in] -> x @ weight.T + bias, [n, out].

    plain: weight, scale and bias for the compiled loop; None if it does not apply. eighth: the weight was made by
    `rounded`, and the loop reads it as 8-bit numbers.
    """

    __slots__ = ("bias", "packed", "plain", "transposed")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, eighth: bool = False) -> None:
        self.transposed = weight.t()  # a view
        self.bias = bias
        self.packed = pack(weight)
        self.plain: Plain | None = None
        if weight.device.type == "cpu" and weight.dtype == torch.float32:
            zeros = weight.new_zeros(len(weight)) if bias is None else bias
            scale = scale_of(weight) if eighth else torch.ones(len(weight))
            numbers = weight.detach().div(scale[:, None]).round().to(torch.int8) if eighth else weight.detach()
            self.plain = numbers.contiguous().numpy(), scale.numpy(), zeros.detach().contiguous().numpy()

    @classmethod
    def of(cls, *layers: torch.nn.Linear, eighth: bool = False) -> Dense:
        """One layer, or several with the same input fused into one whose outputs are concatenated."""
        if len(layers) == 1:
            return cls(layers[0].weight, layers[0].bias, eighth)
        biases: list[torch.Tensor] = [
            layer.bias if layer.bias is not None else layer.weight.new_zeros(len(layer.weight)) for layer in layers
        ]
        return cls(torch.cat(tuple(layer.weight for layer in layers)), torch.cat(biases), eighth)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        if self.plain is not None and rows <= FEW:
            few, threads = x.new_empty(rows, self.transposed.shape[1]), torch.get_num_threads()
            if threads > 1:
                multiply_shared(*self.plain, x.contiguous().numpy(), few.numpy(), threads)
            else:
                multiply(*self.plain, x.contiguous().numpy(), few.numpy())
            return few
        if self.packed is None or rows > MOST:
            return torch.mm(x, self.transposed) if self.bias is None else torch.addmm(self.bias, x, self.transposed)
        size = -(-rows // FILL) * FILL
        if size != rows:
            x = torch.constant_pad_nd(x, (0, 0, 0, size - rows))
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.packed, self.bias, "none", [], "")
        return result if size == rows else result[:rows]


def scale_of(weight: torch.Tensor) -> torch.Tensor:
    """The 8-bit quantisation step [out] of each output's row of weight [out, in]; 1 for a row of zeros."""
    largest = weight.detach().abs().amax(1)
    return torch.where(largest > 0, largest / 127, torch.ones_like(largest))


def rounded(weight: torch.Tensor) -> torch.Tensor:
    """The weight [out, in] with every row rounded to 255 equal steps."""
    scale = scale_of(weight)[:, None]
    return weight.detach().div(scale).round() * scale


def pack(weight: torch.Tensor) -> torch.Tensor | None:
    """Weights packed for oneDNN's kernels, or None if these do not apply."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        torch.ops.mkldnn._linear_pointwise.default(weight.new_zeros(2, weight.shape[1]), packed, None, "none", [], "")
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN's linear layer
        return None
    return packed
