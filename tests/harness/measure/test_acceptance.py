"""The definition of acceptance."""

from __future__ import annotations

import pytest

from harness.contracts import Decoded, Trace
from harness.measure.drivers.acceptance import acceptance


def test_acceptance_is_pooled_by_item_by_position_and_as_a_histogram():
    one = Decoded([1, 2, 3, 4, 5, 6], Trace(2, [5, 1], [[1, 2, 3, 4, 9, 9, 9, 9], []]))
    other = Decoded([7, 8], Trace(2, [1, 1], [[9, 8], [9]]))
    found = acceptance([one, other])
    assert found["accepted_tokens"] == 8 / 4
    assert found["accepted_tokens_by_item"] == pytest.approx((6 / 2 + 2 / 2) / 2)
    assert (found["blocks_of_1"], found["blocks_of_4"]) == (3, 1)
    assert "blocks_of_2" not in found
    assert found["accepted_at_1"] == pytest.approx(1 / 3)
    assert found["accepted_at_2"] == pytest.approx(1 / 2)
    assert (found["accepted_at_4"], found["accepted_at_8"]) == (1, 0)
    assert "accepted_at_16" not in found


def test_what_a_trace_does_not_tell_is_left_out():
    assert acceptance([Decoded([1, 2])]) == {}
    greedy = acceptance([Decoded([1, 2], Trace(2, [1, 1]))])
    assert greedy == {"accepted_tokens": 1, "accepted_tokens_by_item": 1}
    lookup = acceptance([Decoded([1, 2, 3], Trace(2, [2, 1]))])
    assert (lookup["blocks_of_1"], lookup["blocks_of_2"]) == (1, 1)
    assert not any(name.startswith("accepted_at") for name in lookup)
