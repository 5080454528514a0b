"""The bound of the scores' error, where rounding is at its worst."""

from __future__ import annotations

import numpy as np
import torch

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
