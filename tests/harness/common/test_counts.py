"""Ranges of counts as parameters write them."""

import pytest

from harness.common.counts import Counts
from harness.common.errors import RequestError


@pytest.mark.parametrize(
    ("written", "counts"),
    [(2, [2]), ("2", [2]), ("0", [0]), ("3-4", [3, 4]), ("3-3", [3]), ("5+", [5, 6, 7, 8]), ("0+", range(9))],
)
def test_a_range_holds_what_it_says(written, counts):
    assert [count for count in range(9) if count in Counts.parse(written, "edits")] == list(counts)


@pytest.mark.parametrize("wrong", ["", "-1", "4-3", "2-", "+", "a", "1.5", -1])
def test_anything_else_is_refused_with_the_parameters_name(wrong):
    with pytest.raises(RequestError, match=r"task\.edits = .*: give a count such as 2"):
        Counts.parse(wrong, "task.edits")
