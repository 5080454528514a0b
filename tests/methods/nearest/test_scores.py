"""The bound of the scores' error, where rounding is at its worst."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from methods.nearest.kernels import products
from methods.nearest.scores import Scores
from methods.nearest.vectors import Vectors


def test_the_bound_covers_the_products_that_bfloat16_rounds_worst(tmp_path):
    numbers = torch.arange(128, 256, dtype=torch.float64) / 128  # all significands
    products = numbers[:, None] * numbers
    worst = int(((products.to(torch.bfloat16).double() - products).abs() / products).argmax())
    key, query = (float(numbers[place]) for place in divmod(worst, 128))
    scores = Scores(Vectors(tmp_path, np.array([[key], [-key]], np.float16), key), torch.bfloat16, memory_gb=1.0)
    scores.load()
    scaled, error = scores.prepare(np.full((2, 1), query, np.float32))
    ((_, keys, norms),) = scores.blocks(0, 2, 2)
    found = torch.mm(scaled, keys.T).float().numpy() + norms
    missed = np.abs(found - [key * key - 2 * key * query, key * key + 2 * key * query])
    assert missed.max() > error[0] / 4  # the case is a hard one
    assert (missed <= error[:, None]).all()


@pytest.mark.parametrize("n", range(1, 9))
def test_the_loop_of_few_queries_is_within_the_bound(tmp_path, n):
    rng = np.random.default_rng(n)
    keys, queries = rng.normal(size=(50, 33)).astype(np.float16), rng.normal(size=(n, 33)).astype(np.float32)
    scores = Scores(Vectors(tmp_path, keys, 12.0), torch.float32, memory_gb=0.0)  # not centred
    scaled, error = scores.prepare(queries)
    ((_, wide, norms),) = scores.blocks(0, 50, 50)
    found = np.empty((n, 50), np.float32)
    products(wide.numpy(), scaled.numpy(), found)
    exact = (keys.astype(float) ** 2).sum(1) - 2 * queries.astype(float) @ keys.astype(float).T
    assert (np.abs(found + norms - exact) <= error[:, None]).all()
