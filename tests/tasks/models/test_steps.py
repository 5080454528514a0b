"""What runs between two calls of a softmax layer is what the model does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tasks.models.lstm.model import WordLSTM, side_by_side
from tasks.models.steps import lstm_steps


@pytest.mark.parametrize("rows", [1, 3])
def test_an_lstm_reads_its_text_as_the_model_does_and_then_again(rows):
    torch.manual_seed(0)
    model = WordLSTM(20, width=8, layers=2, dropout=0.0).eval()
    ids = np.random.default_rng(0).integers(0, 20, 12)
    columns = side_by_side(ids, rows)
    with torch.no_grad():
        wanted = model(columns)[0].numpy()
    step = lstm_steps(model, ids, rows)
    for _ in range(2):
        np.testing.assert_allclose(np.stack([step() for _ in columns]), wanted, atol=1e-6)
