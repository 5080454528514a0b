"""The walk against lists with repeats, as the authors' code keeps them, on random datastores."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from methods.knnlm.mixture import log_knn
from methods.retomaton.states import States
from methods.retomaton.walk import Automaton, Walk
from tests.methods.knnlm.conftest import search_of, store_of

QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEMPERATURE = 2.0


def authors(store, state_of, queries, tokens, k, tau, most):
    """Per token: p_auto of the token, whether it was searched, the sorted list of candidates.

    The list of pointers is never made unique, and the members of their states contain the pointers again. One state an
    entry means no clustering: then there are no members.
    """
    keys, values, ends = store.keys.astype(float), store.values.tolist(), set(store.offsets.tolist())
    pointers, steps = [], []
    for query, token in zip(queries, tokens, strict=True):
        distances = ((keys - query) ** 2).sum(1)
        states = {state_of[entry] for entry in pointers}
        members = [entry for entry in range(len(keys)) if state_of[entry] in states]
        clustered = len(set(state_of)) < len(state_of)
        searched = len(states) < tau
        near = np.argsort(distances, kind="stable")[:k].tolist() if searched else []
        listed = near + (pointers + members if clustered and len(pointers) < most else pointers[:most])
        weights = [math.exp(-distances[entry] / TEMPERATURE) for entry in listed]
        agreeing = [entry for entry in listed if values[entry] == token]
        right = math.fsum(weight for entry, weight in zip(listed, weights, strict=True) if values[entry] == token)
        steps.append((right / math.fsum(weights) if listed else math.nan, searched, sorted(listed)))
        pointers = [entry + 1 for entry in sorted(agreeing, key=distances.__getitem__) if entry + 1 not in ends]
    return steps


@given(
    seed=st.integers(0, 10_000),
    clusters=st.sampled_from([1, 2, 6, 40]),
    k=st.integers(1, 12),
    tau=st.sampled_from([1, 2, 4, math.inf]),
    most=st.sampled_from([1, 4, 9, 100_000]),
)
@QUICK
def test_runs_are_the_authors_lists_with_repeats(tmp_path_factory, seed, clusters, k, tau, most):
    rng = np.random.default_rng(seed)
    entries, words = 40, int(rng.integers(1, 4))  # few words, so that long runs match
    store = store_of(
        tmp_path_factory.mktemp("store"), rng.normal(size=(entries, 3)), rng.integers(0, words, entries), [0, 23, 40]
    )
    state_of = np.arange(entries) if clusters == entries else rng.integers(0, clusters, entries)
    if clusters < entries:
        most = 100_000  # a cap draws members at random
    queries, tokens = rng.normal(size=(12, 3)).astype(np.float32), rng.integers(0, words, 12)
    automaton = Automaton(search_of(store), States.of(state_of), most, "capped", counts="runs")
    walk = Walk(automaton, 0)
    for query, token, (p_auto, searched, listed) in zip(
        queries, tokens, authors(store, state_of.tolist(), queries, tokens, k, tau, most), strict=True
    ):
        found = None
        if walk.reached < tau:
            distances = ((store.keys.astype(float) - query) ** 2).sum(1)
            ids = np.argsort(distances, kind="stable")[:k]
            found = distances[ids].astype(np.float32), ids
        candidates = walk.candidates(query, found)
        assert candidates.searched == searched
        assert sorted(np.repeat(candidates.ids, candidates.counts).tolist()) == listed
        log_p = log_knn(
            candidates.distances[None], candidates.values[None] == token, TEMPERATURE,
            automaton.log_counts(candidates.counts),
        )[0]  # fmt: skip
        np.testing.assert_allclose(math.exp(log_p), p_auto, rtol=1e-4, atol=1e-9)
        walk.advance(int(token), candidates)


def test_a_capped_draw_leaves_room_for_repeats(tmp_path):
    """Three entries pointed to that count 4, 3 and 2 times fill a cap of 8 with one to spare for the last."""
    rng = np.random.default_rng(0)
    store = store_of(tmp_path / "store", rng.normal(size=(20, 3)))
    pointed, counts = np.array([3, 7, 1]), np.array([4, 3, 2])
    states = np.array([0], np.int32)
    for most, expected in ((8, [4, 3, 1]), (7, [4, 3]), (2, [2]), (11, [4, 3, 2, 1, 1])):
        walk = Walk(Automaton(search_of(store), States.of(np.zeros(20, int)), most), 0, pointed, counts, states)
        candidates = walk.candidates(rng.normal(size=3).astype(np.float32), None)
        assert candidates.counts.tolist() == expected
        assert candidates.ids[: min(len(expected), 3)].tolist() == [3, 7, 1][: len(expected)]


def test_one_that_has_matched_more_tokens_in_a_row_weighs_more(tmp_path):
    """Two streams hold the text; only the first holds it from the beginning."""
    values = [0, 1, 2, 3, 4, 9, 3, 5]
    keys = np.arange(8)[:, None] * np.ones(3)
    store = store_of(tmp_path / "store", keys, np.array(values), [0, 5, 8])
    walk = Walk(Automaton(search_of(store), States.of(np.arange(8)), counts="weighted", base=2.0), 0)
    every = np.zeros(8, np.float32), np.arange(8)
    for token in (0, 1, 2, 3):
        walk.advance(token, walk.candidates(np.zeros(3, np.float32), every))
    assert dict(zip(walk.pointed.tolist(), walk.counts.tolist(), strict=True)) == {4: 4, 7: 1}
    candidates = walk.candidates(np.zeros(3, np.float32), None)
    log_counts = walk.automaton.log_counts(candidates.counts)
    p = np.exp(log_knn(np.zeros((1, 2), np.float32), candidates.values[None] == 4, 1.0, log_counts)[0])
    np.testing.assert_allclose(p, 16 / 18)
