"""Shared n-grams, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from harness.common.errors import CellFailedError
from harness.common.progress import Progress
from methods.retomaton.overlap import NgramOverlap


def overlap(n, reference, evaluation):
    def streams(texts):
        return [np.array([0, *text], np.int64) for text in texts]  # the start token counts in none

    setting = SimpleNamespace(reference=streams(reference), validation=streams(evaluation))
    found = NgramOverlap(n=n)(setting, None, Progress(quiet=True))
    return found["overlap"].value, found["overlap_types"].value, found["ngrams"].value


def test_occurrences_and_different_ones():
    reference, evaluation = [[1, 2, 3], [4]], [[1, 2, 1, 2], [3, 4]]
    assert overlap(1, reference, evaluation) == (1, 1, 6)
    assert overlap(2, reference, evaluation) == (2 / 4, 1 / 3, 4)  # 12, 21, 12, 34; none reaches over two texts
    assert overlap(3, reference, evaluation) == (0, 0, 2)
    with pytest.raises(CellFailedError, match="no 5-gram"):
        overlap(5, reference, evaluation)
