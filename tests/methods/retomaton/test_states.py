"""Clustering: every entry has one state, k-means goes to the nearest centre, greedy merging follows its rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.nearest.distances import exact_distances
from methods.retomaton import states
from methods.retomaton.states import StateOptions, States
from methods.retomaton.walk import counted, draw, followers, having, mixed
from tests.methods.knnlm.conftest import search_of, store_of


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
@settings(deadline=None)
def test_states_hold_each_entry_once(numbers):
    made = States.of(np.array(numbers))
    assert sorted(made.members.tolist()) == list(range(len(numbers)))
    assert len(made) == len(set(numbers))
    for state in range(len(made)):
        members = made.members[made.offsets[state] : made.offsets[state + 1]]
        assert len(members) and (np.diff(members) > 0).all()
        assert (made.state_of[members] == state).all()
        assert len({numbers[member] for member in members}) == 1
    firsts = [made.members[offset] for offset in made.offsets[:-1]]
    assert firsts == sorted(firsts)
    assert made.bytes <= 12 * len(numbers) + 8


def test_kmeans_finds_what_is_far_apart(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 8)) * 20
    belongs = rng.integers(0, 6, 300)
    store = store_of(tmp_path / "store", centres[belongs] + 0.1 * rng.normal(size=(300, 8)))
    found = states._kmeans(store, StateOptions(clusters=30), 0, tmp_path)
    assert len(set(zip(found.tolist(), belongs.tolist(), strict=True))) == len(set(found.tolist())) > 6
    again = states._kmeans(store, StateOptions(clusters=30), 0, tmp_path)
    assert np.array_equal(found, again)


def merged(keys, values, near):
    """He et al.'s rule, one entry at a time."""
    found = {}
    for entry in range(len(keys)):
        if entry not in found:
            distances = ((keys - keys[entry]) ** 2).sum(1)
            found[entry] = entry
            for other in np.lexsort((np.arange(len(keys)), distances))[:near]:
                if other not in found and values[other] == values[entry]:
                    found[int(other)] = entry
    return [found[entry] for entry in range(len(keys))]


@pytest.mark.parametrize("neighbours", [1, 4, 100])
def test_greedy_merging_follows_its_rule(tmp_path, neighbours, monkeypatch):
    monkeypatch.setattr(states, "_SEARCHED", 7)
    rng = np.random.default_rng(1)
    keys, values = rng.normal(size=(60, 4)).astype(np.float16).astype(np.float32), rng.integers(0, 3, 60)
    store = store_of(tmp_path / "store", keys, values)
    found = states._greedy(store, StateOptions(clustering="greedy", merged=neighbours), 0, tmp_path)
    assert found.tolist() == merged(keys.astype(float), values, min(neighbours + 1, 60))


def test_greedy_merging_of_many_entries_is_by_an_approximate_index(tmp_path, monkeypatch):
    monkeypatch.setattr(states, "_APPROXIMATE", 100)
    rng = np.random.default_rng(2)
    keys = np.repeat(rng.normal(size=(100, 8)) * 10, 5, axis=0) + 0.01 * rng.normal(size=(500, 8))
    store = store_of(tmp_path / "store", keys, np.repeat(np.arange(100) % 7, 5))
    found = states._greedy(store, StateOptions(clustering="greedy"), 0, tmp_path)
    assert len(set(found.tolist())) < 150
    assert (found // 5 == np.arange(500) // 5).mean() > 0.8
    assert not list(tmp_path.glob("*/index.faiss"))


# ---------------------------------------------------------------- the kernels of the walk

STATES = States.of(np.array([0, 1, 0, 2, 1, 0, 2, 3, 3, 0]))


@given(
    chosen=st.sets(st.integers(0, 3)), without=st.lists(st.integers(0, 9), unique=True, max_size=5),
    most=st.integers(-1, 12), seed=st.integers(0, 50),
)  # fmt: skip
@settings(deadline=None)
def test_members_are_drawn_from_the_states_and_never_twice(chosen, without, most, seed):
    chosen = np.array(sorted(chosen), np.int32)
    drawn = draw(
        chosen, STATES.members, STATES.offsets, np.array(without, np.int64), most, np.uint64(mixed(seed, 0))
    ).tolist()
    others = {int(m) for s in chosen for m in STATES.members[STATES.offsets[s] : STATES.offsets[s + 1]]} - set(without)
    assert len(set(drawn)) == len(drawn) == min(max(most, 0), len(others))
    assert set(drawn) <= others


def test_each_member_is_drawn_equally_often():
    everything, none = np.arange(4, dtype=np.int32), np.empty(0, np.int64)
    counts = np.zeros(10)
    for seed in range(3000):
        counts[draw(everything, STATES.members, STATES.offsets, none, 3, np.uint64(mixed(seed, 7)))] += 1
    assert np.abs(counts / 3000 - 0.3).max() < 0.04


def test_of_many_members_single_ones_are_drawn_equally_often_and_never_twice():
    states = States.of(np.arange(400) % 8)
    reached, without = np.array([1, 3, 4, 7], np.int32), np.array([12, 3, 399], np.int64)  # of states 4, 3 and 7
    counts = np.zeros(400)
    for seed in range(2000):
        found = draw(reached, states.members, states.offsets, without, 17, np.uint64(mixed(seed, 3)))
        assert len(set(found.tolist())) == 17
        counts[found] += 1
    inside = np.isin(np.arange(400) % 8, reached)
    inside[without] = False
    assert not counts[~inside].any()
    assert np.abs(counts[inside] / 2000 - 17 / 197).max() < 0.03


def test_members_that_have_a_value():
    values = np.array([5, 6, 5, 5, 6, 6, 6, 5, 6, 5], np.int32)[STATES.members]
    assert having(np.array([0, 2], np.int32), STATES.members, STATES.offsets, values, 5).tolist() == [0, 2, 9, 3]


def test_keys_copied_into_memory_give_the_distances_of_mapped_ones(tmp_path):
    rng = np.random.default_rng(0)
    store = store_of(tmp_path / "store", rng.normal(size=(20, 8)))
    query, ids = rng.normal(size=8).astype(np.float32), np.array([3, 3, 19, 0])
    mapped, copied = search_of(store, memory_gb=0.0), search_of(store)
    for search in (mapped, copied):
        search.load()
    assert np.shares_memory(mapped.bits, store.keys) and not np.shares_memory(copied.bits, store.keys)
    expected = exact_distances(store, query[None], ids[None])[0]
    assert np.array_equal(mapped.distances(query, ids), expected)
    assert np.array_equal(copied.distances(query, ids), expected)


@given(
    nearest=st.lists(st.integers(0, 29), max_size=12),
    others=st.lists(st.integers(0, 29), unique=True, max_size=20),
    stretch=st.sampled_from([1, 4096]),  # ids with equal lowest bits as well
    last=st.sets(st.integers(0, 29)),
)
@settings(deadline=None)
def test_followers_come_once_in_order_and_not_beyond_a_stream(nearest, others, stretch, last):
    ends = np.zeros(30 * stretch, np.bool_)
    ends[[entry * stretch for entry in last]] = True
    found = followers(
        np.array(nearest, np.int64) * stretch,
        np.array(others, np.int64) * stretch,
        np.packbits(ends, bitorder="little"),
    )
    assert found.tolist() == [entry * stretch + 1 for entry in dict.fromkeys([*nearest, *others]) if entry not in last]


@given(
    entries=st.lists(st.integers(0, 9), max_size=12),
    ids=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=12),
    stretch=st.sampled_from([1, 4096]),
    plus=st.integers(0, 1),
)
@settings(deadline=None)
def test_counts_of_equal_ids_are_summed(entries, ids, stretch, plus):
    columns = np.array(ids, np.int64).reshape(-1, 2).T
    found = counted(np.array(entries, np.int64) * stretch, columns[0] * stretch, columns[1], plus)
    assert found.tolist() == [plus + sum(count for one, count in ids if one == entry) for entry in entries]
