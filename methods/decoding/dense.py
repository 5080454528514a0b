"""A linear layer that is fast for one row and for a few.

Decoding one token reads every weight once and does little with it, so that reading decides: one row, and on one thread
up to `FEW`, go through a compiled loop that reads the matrix from start to end (its profile is in `kernels`). More rows
go through oneDNN with weights packed once, which shares them out over threads (two threads, five rows, 2048 x 512:
173 us against 237 us by the loop; one row: 195 us against 178 us).

oneDNN compiles and keeps a kernel for every shape it meets, and drafts come in all lengths: rows are filled up to one
of `SIZES`, which bounds the memory that kernels take.
"""

from __future__ import annotations

from bisect import bisect_left

import torch

from methods.decoding.kernels import multiply

FEW = 5  # rows that go through the compiled loop on one thread
SIZES = (2, 4, 8, 16, 32, 64)  # rows that the packed form is run with; more go through the BLAS library


class Dense:
    """x [n, in] -> x @ weight.T + bias, [n, out]."""

    __slots__ = ("bias", "packed", "plain", "transposed")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.transposed = weight.t()  # a view
        self.bias = bias
        self.packed = pack(weight)
        self.plain = None
        if weight.device.type == "cpu" and weight.dtype == torch.float32:
            zeros = weight.new_zeros(len(weight)) if bias is None else bias
            self.plain = weight.detach().contiguous().numpy(), zeros.detach().contiguous().numpy()

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
        if self.plain is not None and (rows == 1 or (rows <= FEW and torch.get_num_threads() == 1)):
            few = x.new_empty(rows, self.transposed.shape[1])
            multiply(*self.plain, x.contiguous().numpy(), few.numpy())
            return few
        if self.packed is None or rows > SIZES[-1]:
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
