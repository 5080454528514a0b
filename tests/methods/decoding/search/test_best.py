"""The best of rows of scores: row by row and all at once."""

from __future__ import annotations

import pytest
import torch

from methods.decoding.search.best import best, best_of_rows, copied


@pytest.mark.parametrize("count", [1, 2, 5])
def test_rows_that_are_copied_together_are_those_looked_at_one_by_one(count):
    rows = torch.randn(7, 40, generator=torch.Generator().manual_seed(0))
    alone = [best(row, count) for row in rows]
    assert alone == copied(rows, count) == [best_of_rows(rows, count)(number) for number in range(7)]
    for row, (values, places) in zip(rows, alone, strict=True):
        assert values == sorted(row.tolist(), reverse=True)[:count] == row[places].tolist()


def test_equal_scores_are_all_found():
    rows = torch.zeros(2, 6).index_fill_(1, torch.tensor([1, 4]), 3.0)
    for values, places in (best(rows[0], 3), copied(rows, 3)[1]):
        assert values == [3.0, 3.0, 0.0] and set(places[:2]) == {1, 4}
