"""Linear layers, packed and plain."""

from __future__ import annotations

import pytest
import torch

from methods.decoding.engine import dense
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


@pytest.mark.parametrize("rows", [1, 2, 3, 64, 65, 130])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("packing", [True, False])
def test_a_layer_in_bfloat16_rounds_its_input_and_its_sum(rows, bias, packing, monkeypatch):
    if not packing:
        monkeypatch.setattr(dense, "pack", lambda weight: None)
    layer, x = torch.nn.Linear(48, 40, bias=bias, dtype=torch.bfloat16), torch.randn(rows, 48)
    with torch.inference_mode():
        wanted = (x.bfloat16().float() @ layer.weight.float().T).bfloat16().float()
        wanted = wanted + layer.bias.float() if bias else wanted
        found = Dense.of(layer)(x)
    assert found.dtype == torch.float32 and found.shape == (rows, 40)
    torch.testing.assert_close(found, wanted, atol=0, rtol=2**-7)  # a sum may be rounded to the next bfloat16
    assert (found == wanted).float().mean() > 0.95


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
