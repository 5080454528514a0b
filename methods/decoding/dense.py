"""A linear layer that is fast for one row and for a few.

Profile (one thread of an AVX-512 CPU, 1024 x 256, float32): one row 12 us as a matrix-vector product against 20 us
through oneDNN; eight rows 58-134 us through the BLAS library against 32 us through oneDNN with weights packed once.
Blocks of drafted tokens and beams are a few rows, so both forms are kept: the model's own weights and a packed copy.

oneDNN compiles and keeps a kernel for every shape it meets, and drafts come in all lengths: rows are filled up to one
of `SIZES`, which bounds the memory that kernels take.
"""

from __future__ import annotations

from bisect import bisect_left

import torch

SIZES = (2, 4, 8, 16, 32, 64)  # rows that the packed form is run with; more go through the BLAS library


class Dense:
    """x [n, in] -> x @ weight.T + bias, [n, out]."""

    __slots__ = ("bias", "packed", "transposed")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.transposed = weight.t()  # a view
        self.bias = bias
        self.packed = pack(weight)

    @classmethod
    def of(cls, *layers: torch.nn.Linear) -> Dense:
        """One layer, or several that read the same input as one whose outputs lie side by side."""
        if len(layers) == 1:
            return cls(layers[0].weight, layers[0].bias)
        biases: list[torch.Tensor] = [
            layer.bias if layer.bias is not None else layer.weight.new_zeros(len(layer.weight)) for layer in layers
        ]
        return cls(torch.cat(tuple(layer.weight for layer in layers)), torch.cat(biases))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        if self.packed is None or rows == 1 or rows > SIZES[-1]:
            return torch.mm(x, self.transposed) if self.bias is None else torch.addmm(self.bias, x, self.transposed)
        size = SIZES[bisect_left(SIZES, rows)]
        if size != rows:
            x = torch.constant_pad_nd(x, (0, 0, 0, size - rows))
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.packed, self.bias, "none", [], "")
        return result if size == rows else result[:rows]


def pack(weight: torch.Tensor) -> torch.Tensor | None:
    """Weights in the order in which oneDNN's kernels read them, or None where they do not apply."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        torch.ops.mkldnn._linear_pointwise.default(weight.new_zeros(2, weight.shape[1]), packed, None, "none", [], "")
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN's linear layer
        return None
    return packed
