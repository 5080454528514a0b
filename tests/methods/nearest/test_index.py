"""Every index against a naive scan."""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.common.errors import RequestError
from methods.nearest import flat, kernels, tiled
from methods.nearest.distances import exact_distances, ranked
from methods.nearest.faiss_index import build_index
from methods.nearest.flat import FlatIndex
from methods.nearest.index import IndexOptions
from methods.nearest.opening import needs_build, open_index
from methods.nearest.tiled import TiledIndex
from methods.nearest.vectors import Vectors, open_vectors

DTYPES = (torch.float32, torch.bfloat16)


def vectors_of(folder: Path, keys: np.ndarray) -> Vectors:
    """Vectors on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "keys.npy", keys.astype(np.float16))
    return open_vectors(folder / "keys.npy")


def naive(keys: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Every distance in float64, sorted, ties by lowest id."""
    distances = ((queries[:, None].astype(np.float64) - keys[None].astype(np.float64)) ** 2).sum(-1)
    order = np.lexsort((np.broadcast_to(np.arange(len(keys)), distances.shape), distances), axis=-1)[:, :k]
    return np.take_along_axis(distances, order, -1), order


@given(
    st.integers(1, 200), st.integers(1, 9), st.integers(1, 40), st.integers(1, 7), st.integers(1, 3), st.integers(0, 99)
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flat_equals_a_naive_scan_with_many_duplicates(tmp_path, monkeypatch, entries, width, k, n, span, seed):
    monkeypatch.setattr(flat, "ENTRIES", (16, 16))
    monkeypatch.setattr(flat, "TILE", 3)
    rng = np.random.default_rng(seed)
    keys = rng.integers(-span, span + 1, (entries, width)).astype(np.float16)
    queries = rng.integers(-span, span + 1, (n, width)).astype(np.float32)
    vectors = vectors_of(tmp_path / f"{entries}-{width}-{span}-{seed}", keys)
    expected_distances, expected_ids = naive(keys, queries, k)
    backends = [partial(FlatIndex, dtype=dtype) for dtype in DTYPES] + [partial(TiledIndex, device="cpu")]
    for index in [backend(vectors, memory_gb=m) for m in (8, 0) for backend in backends]:
        distances, ids = index.search(queries, k)
        assert distances.dtype == np.float32 and ids.dtype == np.int64
        np.testing.assert_array_equal(distances, expected_distances)
        np.testing.assert_array_equal(ids, expected_ids)


@pytest.mark.parametrize("memory", [8.0, 0.0])
def test_exact_search_loses_no_neighbour_to_ties_or_cancellation(tmp_path, monkeypatch, memory):
    monkeypatch.setattr(tiled, "TILE_BYTES", 1 << 14)  # many tiles
    rng = np.random.default_rng(0)
    ties = np.full((3000, 3), 0.1, np.float16)  # more than a pool of candidates holds
    ties[2500:2510] += np.float16(0.001)
    far = (100 + rng.normal(size=(3000, 32))).astype(np.float16)
    apart = far.copy()
    apart[:10] *= -1  # no mean helps: the expansion cancels
    for number, (keys, center) in enumerate(((ties, 0.3), (far, 100.0), (apart, 100.0))):
        queries = (center + rng.normal(size=(7, keys.shape[1]))).astype(np.float32)
        vectors, expected = vectors_of(tmp_path / str(number), keys), naive(keys, queries, 40)
        for index in (TiledIndex(vectors, "cpu", memory), *(FlatIndex(vectors, memory, dtype) for dtype in DTYPES)):
            distances, ids = index.search(queries, 40)
            np.testing.assert_array_equal(ids, expected[1])
            np.testing.assert_allclose(distances, expected[0], rtol=1e-6)


def test_a_tile_is_bounded_by_its_keys_and_by_its_scores(tmp_path):
    index = TiledIndex(vectors_of(tmp_path, np.zeros((4, 4096))), "cpu")
    for queries in (1, 1024, 8192):
        assert index._tile(queries) * 4 * max(queries, 4096) <= tiled.TILE_BYTES < 2**30


def test_flat_answers_a_query_alike_in_any_batch(tmp_path):
    rng = np.random.default_rng(1)
    index = FlatIndex(vectors_of(tmp_path, rng.normal(size=(20000, 24))))
    queries = rng.normal(size=(130, 24)).astype(np.float32)
    together = index.search(queries, 30)
    for row in (0, 77, 129):
        alone = index.search(queries[row : row + 1], 30)
        for one, all_ in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], all_[row])


@pytest.mark.parametrize("memory", [8.0, 0.0])
@pytest.mark.parametrize("width", [24, 257])
def test_few_and_many_queries_find_the_nearest_in_float32(tmp_path, memory, width):
    rng = np.random.default_rng(2)
    keys = rng.normal(size=(9000, width)).astype(np.float16)
    index = FlatIndex(vectors_of(tmp_path, keys), memory, torch.float32)
    queries = rng.normal(size=(flat.FEW + 1, width)).astype(np.float32)
    expected = naive(keys, queries, 20)[1]
    for n in (1, 2, 3, 4, 5, 7, 8, flat.FEW, flat.FEW + 1):
        np.testing.assert_array_equal(index.search(queries[:n], 20)[1], expected[:n])


def test_the_number_of_threads_does_not_change_answers(tmp_path):
    rng = np.random.default_rng(5)
    vectors, queries = vectors_of(tmp_path, rng.normal(size=(20000, 8))), rng.normal(size=(9, 8)).astype(np.float32)
    answers, before = [], torch.get_num_threads()
    for threads in (1, 3):
        index = FlatIndex(vectors)
        index.workers.count = threads
        answers.append(index.search(queries, 50))
    np.testing.assert_array_equal(*(ids for _, ids in answers))
    np.testing.assert_array_equal(answers[0][1], naive(np.asarray(vectors.keys), queries, 50)[1])
    assert torch.get_num_threads() in (before, 3)


def test_an_error_in_a_thread_reaches_the_caller(tmp_path):
    index = FlatIndex(vectors_of(tmp_path, np.eye(8)))
    index.workers.count = 2
    with pytest.raises(ZeroDivisionError):
        index.workers.map(lambda x: 1 // x, [1, 0])


def test_indexes_of_one_file_hold_its_keys_once_and_of_a_refilled_folder_their_own(tmp_path):
    rng = np.random.default_rng(0)
    first, second = (rng.normal(size=(n, 8)).astype(np.float16) for n in (100, 500))
    old, twin = FlatIndex(vectors_of(tmp_path, first)), FlatIndex(open_vectors(tmp_path / "keys.npy"))
    assert old.scores is twin.scores
    old.load()
    (tmp_path / "keys.npy").unlink()
    new = FlatIndex(vectors_of(tmp_path, second))
    assert new.search(second[:4].astype(np.float32), 1)[1][:, 0].tolist() == [0, 1, 2, 3]
    assert old.search(first[:4].astype(np.float32), 1)[1][:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("backend", ["flat", "faiss-flat", "hnsw", "ivf-sq8", "tiled"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_query_that_is_not_finite_is_refused_by_its_row(tmp_path, backend, bad):
    """It is near to nothing: exact search left the ids of its row as it found them in memory."""
    vectors = vectors_of(tmp_path / "vectors", np.random.default_rng(0).normal(size=(200, 4)))
    if backend == "tiled":
        index = TiledIndex(vectors, "cpu")
    else:
        options = IndexOptions(index=backend)
        if needs_build(options):
            build_index(tmp_path, vectors, options)
        index = open_index(vectors, options, tmp_path)
    queries = np.ones((5, 4), np.float32)
    queries[3, 1] = bad
    with pytest.raises(RequestError, match="row 3 of 5 queries is not finite"):
        index.search(queries, 2)
    with pytest.raises(RequestError, match="row 0 of 1 queries is not finite"):
        exact_distances(vectors, queries[3:4], np.zeros((1, 2), np.int64))


def test_no_queries_give_no_rows(tmp_path):
    vectors = vectors_of(tmp_path, np.eye(4))
    for index in (
        FlatIndex(vectors),
        TiledIndex(vectors, "cpu"),
        open_index(vectors, IndexOptions(index="faiss-flat")),
    ):
        distances, ids = index.search(np.empty((0, 4), np.float32), 3)
        assert distances.shape == ids.shape == (0, 3)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory):
    rng = np.random.default_rng(2)
    centers = rng.normal(size=(30, 16)) * 3
    keys = centers[rng.integers(0, 30, 3000)] + rng.normal(size=(3000, 16))
    queries = (centers[rng.integers(0, 30, 40)] + rng.normal(size=(40, 16))).astype(np.float32)
    return vectors_of(tmp_path_factory.mktemp("clustered"), keys), queries


OPTIONS = [
    (IndexOptions(index="faiss-flat"), 0.999),
    (IndexOptions(index="ivf-sq8", nlist=32, nprobe=16), 0.9),
    (IndexOptions(index="ivf-pq", nlist=32, nprobe=16, code_size=8), 0.6),
    (IndexOptions(index="hnsw", links=8, ef=200), 0.9),
]


@pytest.mark.parametrize(("options", "recall"), OPTIONS, ids=lambda o: getattr(o, "index", None))
def test_approximate_backends_return_entries_with_sane_recall(clustered, tmp_path, options, recall):
    vectors, queries = clustered
    if options.index != "faiss-flat":
        build_index(tmp_path, vectors, options)
    distances, ids = open_index(vectors, options, tmp_path).search(queries, 20)
    assert ids.min() >= 0 and ids.max() < vectors.entries
    assert all(len(set(row)) == 20 for row in ids)
    assert np.all(np.diff(distances, axis=1) >= 0)
    exact = naive(np.asarray(vectors.keys), queries, 20)[1]
    assert np.mean([len(set(a) & set(b)) / 20 for a, b in zip(ids, exact, strict=True)]) >= recall


def test_an_index_counts_the_bytes_that_a_search_reads(clustered, tmp_path, monkeypatch):
    vectors, queries = clustered
    index = flat.FlatIndex(vectors, dtype=torch.float32)
    monkeypatch.setattr(flat, "TILE", 16)
    index.search(queries, 5)  # 40 queries in three tiles
    assert index.bytes_read == 3 * 3000 * (16 * 4 + 4)
    tiles = tiled.TiledIndex(vectors, "cpu")
    tiles.search(queries, 5)
    assert tiles.bytes_read == 3000 * 16 * 2
    every = open_index(vectors, IndexOptions(index="faiss-flat"))
    every.search(queries, 5)
    assert every.bytes_read == 40 * 3000 * 16 * 4
    for options, code, centres in (
        (IndexOptions(index="ivf-sq8", nlist=32, nprobe=32), 16, 32 * 16 * 4),  # all lists
        (IndexOptions(index="ivf-pq", nlist=32, nprobe=32, code_size=8), 8, 32 * 16 * 4),
    ):
        build_index(tmp_path, vectors, options)
        index = open_index(vectors, options, tmp_path)
        index.search(queries, 5)
        assert index.bytes_read == 40 * (3000 * code + centres)
    build_index(tmp_path, vectors, IndexOptions(index="hnsw", links=8))
    few, many = (open_index(vectors, IndexOptions(index="hnsw", ef=ef), tmp_path) for ef in (8, 200))
    few.search(queries, 5)
    many.search(queries, 5)
    assert 0 < few.bytes_read < many.bytes_read < 40 * 3000 * 16 * 4 and few.bytes_read % (16 * 4) == 0


def test_too_few_probed_entries_end_in_missing_ones(clustered, tmp_path):
    vectors, queries = clustered
    options = IndexOptions(index="ivf-sq8", nlist=64, nprobe=1)
    build_index(tmp_path, vectors, options)
    distances, ids = open_index(vectors, options, tmp_path).search(queries, 1000)
    assert ids.shape == (40, 1000) and (ids == -1).any()
    assert np.array_equal(ids == -1, np.isinf(distances))
    exact, ids = ranked(exact_distances(vectors, queries, ids), ids)
    assert np.array_equal(ids == -1, np.isinf(exact)) and np.all(np.diff(exact[:, :5], axis=1) >= 0)


def test_exact_distances_are_those_of_the_stored_keys(clustered):
    vectors, queries = clustered
    ids = np.random.default_rng(3).integers(0, vectors.entries, (len(queries), 7))
    found = exact_distances(vectors, queries, ids)
    for row, column in product(range(0, 40, 13), range(7)):
        expected = ((vectors.keys[ids[row, column]].astype(np.float64) - queries[row].astype(np.float64)) ** 2).sum()
        assert found[row, column] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("count", [0, 1, 16, 40])
@pytest.mark.parametrize("width", [1, 32, 70])
def test_distances_to_any_number_of_keys_of_any_width_are_those_of_numpy(count, width):
    rng = np.random.default_rng(count + width)
    keys = rng.normal(size=(50, width)).astype(np.float16)
    query, ids, found = rng.normal(size=width).astype(np.float32), rng.integers(0, 50, count), np.empty(count)
    kernels.distances(keys.view(np.uint16), ids, query, found)
    expected = ((keys[ids].astype(np.float64) - query.astype(np.float64)) ** 2).sum(1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (IndexOptions(index="ivf-pq", nlist=5000), "nlist=5000 exceeds the 3000 entries"),
        (IndexOptions(index="ivf-pq", nlist=4, code_size=5), "code_size=5 does not divide the keys' width d=16"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(clustered, tmp_path, options, message):
    with pytest.raises(RequestError, match=message):
        build_index(tmp_path, clustered[0], options)


def test_a_damaged_index_file_is_refused(clustered, tmp_path: Path):
    options = IndexOptions(index="ivf-sq8", nlist=4)
    build_index(tmp_path, clustered[0], options)
    file = tmp_path / "index.faiss"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(RequestError, match=r"index\.faiss is not a readable faiss index"):
        open_index(clustered[0], options, tmp_path)


def test_an_index_of_another_datastore_is_refused(clustered, tmp_path: Path):
    options = IndexOptions(index="hnsw")
    build_index(tmp_path, clustered[0], options)
    other = vectors_of(tmp_path / "other", np.eye(16))
    with pytest.raises(RequestError, match=r"holds 3000 entries of width 16.* 16 of width 16"):
        open_index(other, options, tmp_path)


def test_a_missing_faiss_is_named_with_a_way_out(clustered, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(RequestError, match="pip install faiss-cpu, or use index=flat"):
        open_index(clustered[0], IndexOptions(index="faiss-flat"))


def test_the_bound_of_lengths_holds_and_is_close(tmp_path):
    keys = np.random.default_rng(0).normal(size=(9000, 24)).astype(np.float16)
    largest = np.linalg.norm(keys.astype(np.float64), axis=1).max()
    assert largest <= vectors_of(tmp_path, keys).largest_norm <= 1.0001 * largest
