"""The compiled products against NumPy's."""

import subprocess
import sys

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
@pytest.mark.parametrize("inputs", [1, 2, 36, 37])
def test_products_are_numpys_for_any_number_of_rows_and_columns(numbers, threads, inputs):
    rng = np.random.default_rng(0)
    for outputs in (1, 2, 3, 7, 19):
        held, values, scale, bias = made(numbers, outputs, inputs)
        for rows in (1, 2, 6):
            x, found = rng.standard_normal((rows, inputs)).astype(np.float32), np.empty((rows, outputs), np.float32)
            multiply(held, scale, bias, x, False, found, threads)
            np.testing.assert_allclose(found, x @ values.T * scale + bias, rtol=1e-4, atol=1e-3)
        for count in (0, 1, 7, 8, 9, 17, 40):
            chosen, found = rng.integers(0, outputs, count, dtype=np.int32), np.empty(count, np.float32)
            multiply_chosen(held, scale, bias, x[0], False, chosen, found, threads)
            np.testing.assert_allclose(found, (x[0] @ values.T * scale + bias)[chosen], rtol=1e-4, atol=1e-3)


def test_a_row_that_is_read_in_pairs_keeps_what_is_not_finite_and_rounds_its_input():
    values = np.array([[1, -2, 0.5, 4], [np.inf, 1, 1, 1], [1, np.nan, 1, 1], [1, 1, -np.inf, 1]], np.float32)
    held = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    x, found = np.array([[3, 5, 7, 1 + 2**-9]], np.float32), np.empty((1, 4), np.float32)
    multiply(held, np.ones(4, np.float32), np.zeros(4, np.float32), x, True, found, 1)
    assert found[0, 0] == 0.5 and found[0, 1] == np.inf and np.isnan(found[0, 2]) and found[0, 3] == -np.inf


def test_starting_numbas_threads_keeps_the_number_of_torchs():
    """In a process of its own: numba starts its threads once."""
    program = "import torch; from methods.decoding.engine.kernels import ready; torch.set_num_threads(1); ready(); "
    subprocess.run([sys.executable, "-c", program + "assert torch.get_num_threads() == 1"], check=True)
