"""The compiled products against NumPy's."""

import numpy as np
import pytest
import torch

from methods.decoding.engine.kernels import multiply
from methods.heads.chosen import multiply_chosen


def made(numbers: str, outputs: int, inputs: int = 37):
    """A matrix as the engine holds it, its values, scales, and biases."""
    rng = np.random.default_rng(outputs)
    scale, bias = rng.uniform(0.5, 2, outputs).astype(np.float32), rng.standard_normal(outputs).astype(np.float32)
    if numbers == "int8":
        held = rng.integers(-127, 128, (outputs, inputs), dtype=np.int8)
        return held, held.astype(float), scale, bias
    weight = torch.from_numpy(rng.standard_normal((outputs, inputs)).astype(np.float32)).bfloat16()
    return weight.view(torch.uint16).numpy(), weight.double().numpy(), scale, bias


@pytest.mark.parametrize("numbers", ["int8", "bfloat16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_are_numpys_for_any_number_of_rows_and_columns(numbers, threads):
    rng = np.random.default_rng(0)
    for outputs in (1, 2, 3, 7, 19):
        held, values, scale, bias = made(numbers, outputs)
        for rows in (1, 2, 6):
            x, found = rng.standard_normal((rows, 37)).astype(np.float32), np.empty((rows, outputs), np.float32)
            multiply(held, scale, bias, x, False, found, threads)
            np.testing.assert_allclose(found, x @ values.T * scale + bias, rtol=1e-4, atol=1e-3)
        for count in (0, 1, 7, 8, 9, 17, 40):
            chosen, found = rng.integers(0, outputs, count, dtype=np.int32), np.empty(count, np.float32)
            multiply_chosen(held, scale, bias, x[0], False, chosen, found, threads)
            np.testing.assert_allclose(found, (x[0] @ values.T * scale + bias)[chosen], rtol=1e-4, atol=1e-3)
