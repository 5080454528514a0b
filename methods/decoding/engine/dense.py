"""A linear layer that is fast for one row and for a few.

Decoding one token reads every weight once and does little arithmetic, so memory bandwidth limits it. A few rows go
through a compiled loop that reads the matrix from start to end (its profile is in `kernels`). More rows go through
oneDNN with weights packed once.

oneDNN compiles and keeps a kernel for every shape, and drafts have all lengths. So rows are padded to a multiple of
`FILL`, which bounds the memory of kernels. Time grows with the rows: padding to powers of two would nearly double the
time of a draft of 17 tokens.

Products in bfloat16 round their input and their sum to it, in the loop as in oneDNN. Everything between products is
float32. A step and a block still sum in other orders, so that a number may be rounded to the next bfloat16; through the
layers this grows to the near ties that `harness.contracts.answers` allows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from methods.decoding.engine.kernels import multiply

FEW, FEW_BFLOAT16 = 5, 2  # rows that go through the compiled loop; of a matrix in bfloat16
FILL = 4  # rows of the packed form are padded to a multiple of this
MOST = 64  # above it rows of float32 go through the BLAS library, and of bfloat16 are padded to a multiple of it

Plain = tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32]]


class Dense:
    """x [n, in] -> x @ weight.T + bias, [n, out].

    plain: weight, scale and bias for the compiled loop; None if it does not apply. int8: the weight was made by
    `rounded`, and is held as 8-bit numbers. bfloat16: products are in bfloat16, and x is float32; so for a weight in
    bfloat16 on a CPU.
    """

    __slots__ = ("bfloat16", "bias", "few", "inputs", "outputs", "packed", "plain", "scale", "transposed")

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, int8: bool = False, bfloat16: bool = False
    ) -> None:
        weight, on_cpu = weight.detach(), weight.device.type == "cpu"
        self.outputs, self.inputs = weight.shape
        self.bfloat16 = bfloat16 or (on_cpu and weight.dtype == torch.bfloat16)
        self.few = FEW_BFLOAT16 if self.bfloat16 and not int8 else FEW
        self.transposed, self.bias = weight.t(), bias  # a view
        if self.bfloat16 and bias is not None:
            self.bias = bias.detach().float()
        self.scale = scale_of(weight) if int8 else None
        self.plain: Plain | None = None
        if on_cpu and weight.dtype in (torch.float32, torch.bfloat16):
            numbers = weight if self.scale is None else weight.div(self.scale[:, None]).round()
            self.packed = pack(numbers.bfloat16() if self.bfloat16 else weight)
            numbers = (numbers.to(torch.int8) if int8 else numbers).contiguous()
            scale = torch.ones(len(weight)) if self.scale is None else self.scale
            zeros = torch.zeros(len(weight)) if self.bias is None else self.bias.detach().contiguous()
            plain = numbers.view(torch.uint16) if numbers.dtype == torch.bfloat16 else numbers
            self.plain = plain.numpy(), scale.numpy(), zeros.numpy()
            if self.bfloat16:
                self.transposed = numbers.bfloat16().t() if self.packed is None else weight.new_empty(0)
        else:
            self.packed = None

    @classmethod
    def of(cls, *layers: torch.nn.Linear, int8: bool = False, bfloat16: bool = False) -> Dense:
        """One layer, or several with the same input fused into one whose outputs are concatenated. The layers' weights
        become views of it: the module and the engine made last hold the matrix once."""
        if len(layers) == 1:
            return cls(layers[0].weight, layers[0].bias, int8, bfloat16)
        with torch.inference_mode(False):  # a layer may be trained later
            weight = torch.cat(tuple(layer.weight.detach() for layer in layers))
            for layer, part in zip(layers, weight.split([len(layer.weight) for layer in layers]), strict=True):
                layer.weight.data = part
        if all(layer.bias is None for layer in layers):
            return cls(weight, None, int8, bfloat16)
        biases: list[torch.Tensor] = [
            weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in layers
        ]
        return cls(weight, torch.cat(biases), int8, bfloat16)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        if self.plain is not None and rows <= self.few:
            few = x.new_empty(rows, self.outputs)
            multiply(*self.plain, x.contiguous().numpy(), self.bfloat16, few.numpy(), torch.get_num_threads())
            return few
        if self.bfloat16:
            x = self._packed(x.bfloat16(), None).float()
            x = x if self.scale is None else x * self.scale
            return x if self.bias is None else x + self.bias
        if self.packed is None or rows > MOST:
            return torch.mm(x, self.transposed) if self.bias is None else torch.addmm(self.bias, x, self.transposed)
        return self._packed(x, self.bias)

    def _packed(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if self.packed is None:
            return torch.mm(x, self.transposed)
        rows, fill = len(x), FILL if len(x) <= MOST else MOST
        size = -(-rows // fill) * fill
        if size != rows:
            x = torch.constant_pad_nd(x, (0, 0, 0, size - rows))
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.packed, bias, "none", [], "")
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
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        torch.ops.mkldnn._linear_pointwise.default(weight.new_zeros(2, weight.shape[1]), packed, None, "none", [], "")
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN's linear layer
        return None
    return packed
