"""Accuracy by a count, and an interval that a sample without a miss does not close."""

from __future__ import annotations

import numpy as np
import pytest

from harness.contracts import TopK
from tasks.metrics.accuracy import accuracy


def answers(*ids):
    return [TopK(np.array(one), np.zeros(len(one), np.float32), 0.0) for one in ids]


def test_hits_are_counted_at_one_and_at_k():
    found = accuracy(answers([3, 1], [2, 5], [4, 7]) * 10, np.array([3, 5, 9] * 10), 2)
    assert found["accuracy_at_1"].value == pytest.approx(1 / 3)
    assert found["accuracy_at_2"].value == pytest.approx(2 / 3)


def test_a_sample_without_a_miss_leaves_room_for_one():
    (measure,) = accuracy(answers([1]) * 100, np.ones(100, np.int64), 1).values()
    assert measure.value == 1 and 0.9 < measure.low < 0.98 and measure.high == 1
