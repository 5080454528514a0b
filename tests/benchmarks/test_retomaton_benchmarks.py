"""A step of RetoMaton's walk against the search that it saves, and what clustering a datastore takes.

Quick by default, with loose bounds because machines are noisy. RETOMATON_BENCHMARK_ENTRIES=2000000 measures the walk at
the size that its target is stated for, RETOMATON_BENCHMARK_CLUSTERS=10000 the clustering of a hundred times as many
entries (minutes); then the targets are asserted. The figures are in `extra_info`.
"""

from __future__ import annotations

import os
from time import perf_counter

import numpy as np
import pytest

from methods.knnlm.datastore import Datastore
from methods.knnlm.mixture import log_knn
from methods.nearest.flat import FlatIndex
from methods.retomaton import states
from methods.retomaton.states import StateOptions, States
from methods.retomaton.walk import Automaton, Walk

ENTRIES = int(os.environ.get("RETOMATON_BENCHMARK_ENTRIES", "200000"))
CLUSTERS = int(os.environ.get("RETOMATON_BENCHMARK_CLUSTERS", "200"))
WIDTH, K, WORDS, REACHED = 256, 1024, 50, 100


def datastore(folder, entries: int, centres: int) -> tuple[Datastore, np.ndarray]:
    """Keys around centres, values that depend on them, one stream; and each entry's centre."""
    rng = np.random.default_rng(0)
    places = rng.standard_normal((centres, WIDTH)).astype(np.float32)
    belongs = rng.integers(0, centres, entries)
    keys = np.empty((entries, WIDTH), np.float16)
    for start in range(0, entries, 1 << 16):
        part = places[belongs[start : start + (1 << 16)]]
        keys[start : start + len(part)] = part + 0.5 * rng.standard_normal(part.shape, np.float32)
    values = (belongs + rng.integers(0, 4, entries)).astype(np.int32) % WORDS
    norm = float(np.sqrt((keys[:1000].astype(np.float32) ** 2).sum(1).max())) * 2
    return Datastore(folder, keys, norm, values, np.array([0, entries]), {}), belongs


@pytest.fixture(scope="module")
def automaton(tmp_path_factory) -> Automaton:
    store, belongs = datastore(tmp_path_factory.mktemp("store"), ENTRIES, ENTRIES // 100)
    return Automaton(store, States.of(belongs), K)


def test_a_step_of_the_walk_takes_a_small_part_of_the_search_that_it_saves(benchmark, automaton):
    store, rng = automaton.store, np.random.default_rng(1)
    index = FlatIndex(store)
    index.load()
    query = store.keys[123].astype(np.float32)
    reached = np.sort(rng.choice(len(automaton.states), REACHED, replace=False)).astype(np.int32)
    pointed = rng.choice(store.entries - 1, REACHED, replace=False)

    def step() -> int:
        walk = Walk(automaton, 7, pointed, reached)
        candidates = walk.candidates(query, None)
        values = store.values[candidates.ids]
        log_knn(candidates.distances[None], (values == 5)[None], 10.0)
        walk.advance(5, candidates, False)
        return len(candidates.ids)

    assert step() == K
    walking, searching = fastest(step, 20), fastest(lambda: index.search(query[None], K), 4)
    benchmark.pedantic(step, rounds=5)
    benchmark.extra_info.update(entries=ENTRIES, walk_ms=1e3 * walking, ratio=walking / searching)
    assert walking / searching < (0.05 if ENTRIES >= 2_000_000 else 0.5)


def test_kmeans_takes_minutes_for_a_million_entries(benchmark, tmp_path):
    store, _ = datastore(tmp_path, 100 * CLUSTERS, CLUSTERS)
    found = benchmark.pedantic(
        states._kmeans, args=(store, StateOptions(clusters=CLUSTERS), 0, tmp_path), rounds=1, iterations=1
    )
    sizes = np.bincount(found, minlength=CLUSTERS)
    seconds = benchmark.stats.stats.max if benchmark.stats else 0.0
    benchmark.extra_info.update(entries=store.entries, clusters=CLUSTERS, empty=int((sizes == 0).sum()))
    assert seconds < (900 if CLUSTERS >= 10_000 else 60)
    assert (sizes > 0).mean() > 0.5


def fastest(call, rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = perf_counter()
        call()
        seconds.append(perf_counter() - started)
    return min(seconds)
