"""Linear layers, packed and plain."""

from __future__ import annotations

import pytest
import torch

from methods.decoding.engine.dense import Dense
from methods.decoding.engine.ragged import Ragged


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 9, 64, 65])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_fused_layer_is_its_layers_side_by_side(rows, bias, dtype):
    layers = [torch.nn.Linear(12, width, bias=bias, dtype=dtype) for width in (5, 7)]
    x = torch.randn(rows, 12, dtype=dtype)
    with torch.inference_mode():
        wanted = torch.cat([layer(x) for layer in layers], 1)
        torch.testing.assert_close(Dense.of(*layers)(x), wanted, atol=1e-5, rtol=0)
        torch.testing.assert_close(Dense.of(layers[0])(x), layers[0](x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("counts", [[2, 2], [1, 3, 2], [0, 2], [1, 1, 1], [4]])
def test_padding_and_packing_are_inverse(counts):
    rows = Ragged(counts, "cpu")
    x = torch.arange(sum(counts) * 2.0).view(-1, 2)
    padded = rows.pad(x)
    assert padded.shape == (len(counts), max(counts), 2)
    assert torch.equal(rows.pack(padded), x)
    assert torch.equal(padded[rows.row, rows.slot], x)
    if all(counts):
        ends = torch.tensor(counts).cumsum(0) - 1
        assert torch.equal(rows.last(x), x[ends])
