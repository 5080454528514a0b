"""Each process gets its own items, once each."""

import itertools

import numpy as np
import pytest

from harness.common.errors import CellFailedError
from harness.measure.timed import passes


def drawn(pool, sample, processes, number=4, **details):
    return [passes(pool, sample, number, process, seed=3, **details) for process in range(processes)]


def test_processes_share_no_item_while_the_pool_lasts():
    items = [item for process in drawn(200, 5, 10) for one in process for item in one.tolist()]
    assert len(items) == len(set(items)) == 200


@pytest.mark.parametrize(("pool", "sample"), [(200, 5), (50, 5), (9, 5), (4, 1)])
def test_no_process_gets_an_item_twice_and_passes_are_equally_long(pool, sample):
    for process in drawn(pool, sample, 12):
        items = np.concatenate(process)
        assert len(set(items.tolist())) == len(items)
        assert {len(one) for one in process} == {min(sample, pool // 4)}
        assert items.min() >= 0 and items.max() < pool


def test_when_the_pool_is_used_up_other_combinations_follow():
    first, second = drawn(20, 5, 2)
    assert sorted(np.concatenate(first).tolist()) == sorted(np.concatenate(second).tolist()) == list(range(20))
    assert any(a.tolist() != b.tolist() for a, b in zip(first, second, strict=True))


def test_neighbours_stay_together_where_asked():
    for process in drawn(1000, 20, 10, consecutive=True):
        for one in process:
            assert one.tolist() == list(range(one[0], one[0] + 20))
    starts = [one[0] for process in drawn(1000, 20, 10, consecutive=True) for one in process]
    assert all(abs(a - b) >= 20 for a, b in itertools.combinations(starts, 2))


def test_the_draw_follows_from_the_seed():
    assert [p.tolist() for p in passes(100, 5, 4, 1, seed=1)] == [p.tolist() for p in passes(100, 5, 4, 1, seed=1)]
    assert [p.tolist() for p in passes(100, 5, 4, 1, seed=1)] != [p.tolist() for p in passes(100, 5, 4, 1, seed=2)]


def test_fewer_items_than_passes_are_refused():
    with pytest.raises(CellFailedError, match="3 items to time are fewer than the 4 passes"):
        passes(3, 1, 4, 0, seed=0)
