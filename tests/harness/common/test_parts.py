"""Parts of a build without a cluster; with one: `tests.harness.measure.test_cluster`."""

from __future__ import annotations

import pytest

from harness.common import parts


def test_parts_are_made_here_in_order_and_not_before_they_are_asked_for():
    made = []

    def make(shared, one, other):
        made.append(one)
        return shared + one * other

    found = parts.HERE.each(make, [(1, 10), (2, 20), (3, 30)], 100)
    assert parts.HERE.side_by_side() == 1 and made == []
    assert next(found) == 110 and made == [1]
    assert list(found) == [140, 190]


def test_what_a_part_raises_ends_the_build():
    def make(shared, number):
        raise ValueError(f"part {number}")

    with pytest.raises(ValueError, match="part 7"):
        list(parts.HERE.each(make, [(7,)]))


def test_nodes_get_the_variables_that_are_set(monkeypatch):
    for name in parts.CARRIED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESS_DATA", "/data")
    assert parts.carried() == {"HARNESS_DATA": "/data"}
