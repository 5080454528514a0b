"""Exact search against one BLAS product of the same shape and a selection.

Quick by default, with a loose bound because machines are noisy; SEARCH_BENCHMARK_ENTRIES=1000000 measures the size that
the target is stated for and asserts the target. The ratio itself is in `extra_info`.
"""

from __future__ import annotations

import os
from functools import partial
from time import perf_counter

import pytest
import torch

from methods.nearest.flat import FlatIndex
from methods.nearest.vectors import Vectors

ENTRIES = int(os.environ.get("SEARCH_BENCHMARK_ENTRIES", "100000"))
WIDTH, K = 256, 1024


@pytest.fixture(scope="module")
def keys() -> torch.Tensor:
    """float16 [N, d] with clusters, as hidden states have."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(200, WIDTH, generator=generator)
    return (centers[torch.arange(ENTRIES) % 200] + torch.randn(ENTRIES, WIDTH, generator=generator)).half()


@pytest.fixture(scope="module")
def index(keys, tmp_path_factory) -> FlatIndex:
    folder = tmp_path_factory.mktemp("store")
    norm = float(keys.float().norm(dim=1).max()) * 1.001
    index = FlatIndex(Vectors(folder, keys.numpy(), norm))
    index.load()
    return index


@pytest.mark.parametrize("batch", [1, 64])
def test_exact_search_keeps_up_with_one_product_and_selection(benchmark, keys, index, batch):
    wide = keys.float()
    queries = wide[torch.arange(batch) * 31] + 0.1
    scores = torch.empty(batch, ENTRIES)

    def product_and_selection() -> None:
        torch.mm(queries, wide.T, out=scores)
        scores.topk(K, dim=1, largest=False)

    def search() -> None:
        index.search(queries.numpy(), K)

    theirs, ours = (_fastest(call) for call in (product_and_selection, search))
    theirs = min(theirs, _fastest(product_and_selection))  # on both sides of ours, for load that comes and goes
    benchmark.pedantic(search, rounds=3)
    figures = {"ms_per_query": 1e3 * ours / batch, "ratio": ours / theirs}
    benchmark.extra_info.update(entries=ENTRIES, batch=batch, dtype=str(index.scores.dtype), **figures)
    assert ours / theirs < (1.5 if ENTRIES >= 1_000_000 else 3)


def test_three_queries_at_once_cost_little_more_than_one(benchmark, keys, index):
    index = FlatIndex(index.vectors, dtype=torch.float32)
    queries = (keys[:3].float() + 0.1).numpy()
    index.search(queries, 20)
    rounds = [[_fastest(partial(index.search, queries[:count], 20)) for count in (1, 3)] for _ in range(4)]
    one, three = map(min, zip(*rounds, strict=True))
    benchmark.pedantic(index.search, (queries, 20), rounds=3)
    benchmark.extra_info.update(entries=ENTRIES, ratio=three / one)
    assert three / one < 1.8  # 2.3 by `torch.mm` on AVX2


def _fastest(call) -> float:
    seconds = []
    for _ in range(4):
        started = perf_counter()
        call()
        seconds.append(perf_counter() - started)
    return min(seconds)
