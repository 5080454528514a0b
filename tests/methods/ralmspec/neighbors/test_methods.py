"""Speculative kNN-LM serving against its sequential baseline, token for token."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import CellArtifacts
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.bandwidth import weights_of
from methods.knnlm import base
from methods.knnlm.mixture import knn_distribution
from methods.knnlm.scorer import KnnLm
from methods.knnlm.search import DatastoreSearch
from methods.ralmspec.neighbors.generation import KnnGeneration, Mixture, Neighbors
from methods.ralmspec.neighbors.methods import KnnSequential, KnnSpeculative
from methods.ralmspec.neighbors.sources import LocalityCache, Pointers

from ..conftest import make_model

FIXED = {"lambda_": 0.5, "temperature": 20.0}
MODELS = {seed: make_model(seed) for seed in range(2)}
PROMPTS = [[5, 9, 14], [1], [60, 3, 3, 3, 22, 7, 8]]


def streams(seed: int, *lengths: int) -> list[np.ndarray]:
    """Text of repeated phrases, so that neighbours are followed by what comes next."""
    rng = np.random.default_rng(seed)
    phrases = np.random.default_rng(0).integers(1, 61, (8, 6))
    return [np.concatenate([[0], *phrases[rng.integers(0, 8, n // 6 + 1)]])[:n].astype(np.int64) for n in lengths]


KNOWLEDGE = streams(1, 120, 90, 3)


def fitted(cls, model, root, **parameters):
    method = cls(**FIXED | parameters)
    method.fit(model, KNOWLEDGE, [], CellArtifacts(root))
    return method


def plain(model, method, prompt, limit, key):
    """kNN-LM generation without any cache: every token from a fresh pass, its full mixed distribution."""
    store, output = method.ready()[0].store, []
    while len(output) < limit and (not output or output[-1] not in model.eos_ids):
        with torch.no_grad(), model.language_model.capture(key) as keys:
            logits = model.module(input_ids=torch.tensor([[*prompt, *output]])).logits[0, -1]
        query = keys[0].reshape(-1, keys[0].shape[-1])[-1].numpy().astype(np.float32)
        distances = ((store.keys.astype(np.float64) - query) ** 2).sum(1)
        ids = np.argsort(distances, kind="stable")[: method.k]
        knn = knn_distribution(distances[ids][None], store.values[ids][None], 20.0, model.vocabulary_size)[0]
        output.append(int((0.5 * knn + 0.5 * logits.softmax(-1).numpy()).argmax()))
    return output


@pytest.mark.parametrize("key", ["last_hidden", "last_ffn_input", "last_ffn_output"])
@pytest.mark.parametrize("k", [1, 16, 1024])
def test_the_baseline_is_knnlm_without_any_cache(artifacts_root, k, key):
    method = fitted(KnnSequential, MODELS[0], artifacts_root, k=k, key=key)
    for prompt in PROMPTS:
        answer = method.generate(MODELS[0], prompt, 15, NoPhases())
        assert answer.ids == plain(MODELS[0], method, prompt, 15, key)
        assert answer.trace.counters["searches"] == len(answer.ids)


@settings(deadline=None, max_examples=30)
@given(
    weights=st.sampled_from(sorted(MODELS)),
    index=st.sampled_from(["flat", "hnsw"]),
    k=st.sampled_from([1, 8, 1024]),
    prompt=st.lists(st.integers(1, 60), max_size=12),
    limit=st.integers(0, 40),
    eos=st.integers(0, 60),
    lambda_=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    cache=st.sampled_from([{}, {"following": 0, "nearest": 1, "searches": 1}, {"guesses": "pointers"}]),
    scheduling=st.one_of(
        st.builds(lambda s: {"scheduler": "fixed", "stride": s}, st.integers(0, 9)),
        st.builds(lambda g: {"scheduler": "os3", "gamma_max": g}, st.sampled_from([0.0, 0.6, 0.99])),
    ),
    asynchronous=st.booleans(),
)
def test_speculation_never_changes_a_token(
    artifacts_root, weights, index, k, prompt, limit, eos, lambda_, cache, scheduling, asynchronous
):
    model = replace(MODELS[weights], eos_ids=(eos,))
    common = {"index": index, "k": k, "lambda_": lambda_}
    sequential = fitted(KnnSequential, model, artifacts_root, **common)
    speculative = fitted(
        KnnSpeculative, model, artifacts_root, **common, **cache, **scheduling, asynchronous=asynchronous
    )
    assert (
        speculative.generate(model, prompt, limit, NoPhases()).ids
        == sequential.generate(model, prompt, limit, NoPhases()).ids
    )


@pytest.mark.parametrize("guesses", [{"nearest": 2}, {"guesses": "pointers"}])
def test_speculation_saves_searches_and_is_corrected(artifacts_root, guesses):
    method = fitted(KnnSpeculative, MODELS[0], artifacts_root, k=8, **guesses, scheduler="fixed", stride=5)
    answers = [method.generate(MODELS[0], prompt, 60, NoPhases()) for prompt in PROMPTS]
    total = {name: sum(a.trace.counters[name] for a in answers) for name in answers[0].trace.counters}
    assert total["searches"] < 0.6 * sum(len(a.ids) for a in answers)
    assert total["rollbacks"] > 0


def test_a_request_reads_the_model_every_entry_of_a_search_and_the_entries_that_it_guesses_from(artifacts_root):
    model, weights = MODELS[0], weights_of(MODELS[0]).each_pass
    prompt, key, entries = PROMPTS[0], 16, 210
    method = fitted(KnnSequential, model, artifacts_root, k=4)
    decoded = method.generate(model, prompt, 20, NoPhases())
    search = entries * (key * method.opened.index.scores.dtype.itemsize + 4)
    counters = decoded.trace.counters
    assert counters["searches"] == len(decoded.ids)
    assert counters["bytes_read"] == len(decoded.ids) * (weights + search + 64 * 4)  # a search finds 64 values
    spared = fitted(KnnSpeculative, model, artifacts_root, k=4, scheduler="fixed", stride=3)
    faster = spared.generate(model, prompt, 20, NoPhases()).trace.counters
    passes = faster["speculated"] + faster["sequential"]  # a step that is repeated does not ask the model again
    least = passes * weights + faster["searches"] * search + faster["queries"] * 64 * 4
    assert least < faster["bytes_read"] <= least + faster["speculated"] * entries * (2 * key + 4)
    timed = fitted(KnnSpeculative, model, artifacts_root, k=4, scheduler="os3").generate(model, prompt, 20, NoPhases())
    assert "bytes_read" not in timed.trace.counters and timed.trace.timing_counters["bytes_read"] > 0


@pytest.mark.parametrize("lambda_", [0.02, 0.5, 1.0])
def test_unaided_tokens_are_those_that_the_model_alone_would_choose_behind_the_same_context(artifacts_root, lambda_):
    model, unaided = MODELS[0], {}
    for cls, parameters in (
        (KnnSequential, {}),
        (KnnSpeculative, {"scheduler": "fixed", "stride": 5, "nearest": 2}),
        (KnnSpeculative, {"scheduler": "os3", "asynchronous": True}),
    ):
        method = fitted(cls, model, artifacts_root, k=1, lambda_=lambda_, **parameters)
        for number, prompt in enumerate(PROMPTS):
            answer = method.generate(model, prompt, 40, NoPhases())
            whole = torch.tensor([[*prompt, *answer.ids]])
            with torch.no_grad():
                alone = model.module(input_ids=whole).logits[0, len(prompt) - 1 : -1].argmax(-1).tolist()
            unaided[number] = sum(a == b for a, b in zip(alone, answer.ids, strict=True))
            assert answer.trace.counters["unaided"] == unaided[number]
    total = sum(unaided.values()) / sum(len(method.generate(model, p, 40, NoPhases()).ids) for p in PROMPTS)
    assert total == 1 if lambda_ == 0.02 else total < 0.7


def test_the_cache_learns_more_neighbours_than_are_mixed(artifacts_root, monkeypatch):
    learnt = []
    searched = LocalityCache.searched
    monkeypatch.setattr(LocalityCache, "searched", lambda self, ids: (learnt.append(ids), searched(self, ids))[1])
    accuracy = {}
    for nearest in (1, 64):
        method = fitted(KnnSpeculative, MODELS[0], artifacts_root, k=1, nearest=nearest, scheduler="fixed", stride=1)
        traces = [method.generate(MODELS[0], prompt, 60, NoPhases()).trace for prompt in PROMPTS]
        accuracy[nearest] = sum(t.counters["matched"] for t in traces) / sum(t.counters["verified"] for t in traces)
    assert {len(ids) for ids in learnt} == {64}
    assert accuracy[1] < accuracy[64]


@pytest.mark.parametrize("prompt", [PROMPTS[0], []])
def test_the_gap_is_that_of_the_mixed_distribution_where_outputs_part(artifacts_root, prompt):
    method = fitted(KnnSpeculative, MODELS[0], artifacts_root, k=16, key="last_hidden")
    expected = method.generate(MODELS[0], prompt, 12, NoPhases()).ids
    store = method.ready()[0].store
    for place in (0, 5):
        with torch.no_grad(), MODELS[0].language_model.capture("last_hidden") as keys:
            logits = MODELS[0].module(input_ids=torch.tensor([[*(prompt or [0]), *expected[:place]]])).logits[0, -1]
        query = keys[0].reshape(-1, keys[0].shape[-1])[-1].numpy().astype(np.float32)
        distances = ((store.keys.astype(np.float64) - query) ** 2).sum(1)
        ids = np.argsort(distances, kind="stable")[:16]
        knn = knn_distribution(distances[ids][None], store.values[ids][None], 20.0, MODELS[0].vocabulary_size)[0]
        scores = np.log(0.5 * knn + 0.5 * logits.softmax(-1).numpy())
        other = [*expected[:place], 60 - expected[place], *expected[place + 1 :]]
        gap = method.gap(MODELS[0], prompt, other, expected, 12)
        assert gap == pytest.approx(scores.max() - scores[other[place]], rel=1e-4)


def test_asynchronous_verification_runs_during_generation(artifacts_root, monkeypatch):
    """A search in the worker ends only after a later step was begun: waiting for it at once would never end."""
    common = {"k": 8, "scheduler": "fixed", "stride": 2}
    expected = fitted(KnnSpeculative, MODELS[0], artifacts_root, **common).generate(
        MODELS[0], PROMPTS[2], 40, NoPhases()
    )
    method = fitted(KnnSpeculative, MODELS[0], artifacts_root, **common, asynchronous=True)
    search, begin, begun, later = DatastoreSearch.search, KnnGeneration.begin, [], threading.Event()
    workers, overlapped = set(), []

    def waiting(self, queries, phases):
        if threading.current_thread() is not threading.main_thread():
            workers.add(threading.current_thread())
            if not overlapped:
                overlapped.append(later.wait(10))
        return search(self, queries, phases)

    def counted(self):
        assert threading.current_thread() is threading.main_thread()
        begun.append(1)
        if len(begun) > 3:  # one by a search, two that are being verified
            later.set()
        return begin(self)

    monkeypatch.setattr(DatastoreSearch, "search", waiting)
    monkeypatch.setattr(KnnGeneration, "begin", counted)
    assert method.generate(MODELS[0], PROMPTS[2], 40, NoPhases()).ids == expected.ids
    assert overlapped == [True]
    assert workers and not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_error_of_the_search_reaches_the_caller_and_leaves_no_thread(artifacts_root, monkeypatch, asynchronous):
    method = fitted(KnnSpeculative, MODELS[0], artifacts_root, k=8, asynchronous=asynchronous, scheduler="fixed")
    calls, search = [], DatastoreSearch.search

    def failing(self, queries, phases):
        calls.append(len(queries))
        if len(calls) > 1:
            raise OSError("the index is gone")
        return search(self, queries, phases)

    monkeypatch.setattr(DatastoreSearch, "search", failing)
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="the index is gone"):
        method.generate(MODELS[0], PROMPTS[0], 20, NoPhases())
    assert set(threading.enumerate()) <= before  # threads of other tests may end meanwhile


def test_the_cache_holds_what_was_found_and_what_follows_it_in_the_text(artifacts_root):
    store = fitted(KnnSequential, MODELS[0], artifacts_root).ready()[0].store
    cache = LocalityCache(store, following=3, nearest=2, searches=2)
    assert cache.entries().tolist() == []
    cache.searched(np.asarray([117, 10, 50]))  # entry 118 is the last of the first stream; 50 is not among the nearest
    assert cache.entries().tolist() == [10, 11, 12, 13, 117, 118]
    cache.searched(np.asarray([12, -1]))
    assert cache.entries().tolist() == [10, 11, 12, 13, 14, 15, 117, 118]
    cache.searched(np.asarray([0]))
    assert cache.entries().tolist() == [0, 1, 2, 3, 12, 13, 14, 15]


def test_pointers_lead_from_entries_that_agreed_to_those_behind_them(artifacts_root):
    store = fitted(KnnSequential, MODELS[0], artifacts_root).ready()[0].store
    pointers = Pointers(store)
    assert pointers.entries().tolist() == []
    token = int(store.values[10])
    others = [n for n in range(60) if store.values[n] == token and n != 10][:2]
    wrong = next(n for n in range(60) if store.values[n] != token)
    pointers.followed(np.asarray([118, 10, wrong, *others, -1]), token)  # entry 118 is the last of its stream
    assert pointers.entries().tolist() == sorted([11, *(n + 1 for n in others)])
    before = pointers.state()
    pointers.followed(np.empty(0, np.int64), int(store.values[11]))
    assert 12 in pointers.entries()
    pointers.followed(np.empty(0, np.int64), 60_000)
    assert pointers.entries().tolist() == []
    pointers.restore(before)
    assert 11 in pointers.entries()


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 10**6), k=st.integers(0, 12), lambda_=st.sampled_from([0.0, 0.4, 1.0]))
def test_the_best_token_is_that_of_the_full_mixture(seed, k, lambda_):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 9, 30).astype(np.int32)
    log_lm = np.log(rng.dirichlet(np.ones(9)))
    found = Neighbors(np.sort(rng.random(k)).astype(np.float32), rng.integers(0, 30, k))
    knn = knn_distribution(found.distances[None], values[found.ids][None], 0.7, 9)[0] if k else np.exp(log_lm)
    mixed = lambda_ * knn + (1 - lambda_) * np.exp(log_lm)
    best = Mixture(values, lambda_, 0.7).best(log_lm, int(log_lm.argmax()), found)
    assert mixed[best] == pytest.approx(mixed.max())


def test_serving_takes_the_datastore_and_the_weights_that_knnlm_was_fitted_with(artifacts_root, monkeypatch):
    model, validation, scoring, serving = MODELS[0], streams(2, 60), *(CellArtifacts(artifacts_root) for _ in range(2))
    KnnLm(k=5).fit(model.language_model, KNOWLEDGE, validation, scoring)
    monkeypatch.setattr(base, "_tuned", None)
    KnnSequential(k=5).fit(model, KNOWLEDGE, validation, serving)
    assert serving.values == scoring.values and serving.path("datastore") == scoring.path("datastore")


def test_bad_requests_are_refused(artifacts_root):
    model = MODELS[0]
    with pytest.raises(RequestError, match="knowledge base is empty"):
        KnnSequential(**FIXED).fit(model, [], [], CellArtifacts(artifacts_root))
    with pytest.raises(RequestError, match="not passages of text"):
        KnnSequential(**FIXED).fit(model, ["a passage"], [], CellArtifacts(artifacts_root))
    with pytest.raises(RequestError, match="nearest=65 exceeds the 64 neighbours"):
        KnnSpeculative(k=8, nearest=65)
    method = fitted(KnnSpeculative, model, artifacts_root)
    with pytest.raises(RequestError, match="exceed the window of 96"):
        method.generate(model, [1] * 80, 20, NoPhases())
    assert method.generate(model, [1] * 80, 0, NoPhases()).ids == []


def test_guesses_have_the_distances_of_a_search(artifacts_root):
    given = {"index": "ivf-sq8", "nprobe": 64, "distance": "approximate", "k": 8}
    method = fitted(KnnSpeculative, MODELS[0], artifacts_root, **given)
    with method.request(MODELS[0], PROMPTS[0], 10, NoPhases()) as process:
        step = process.begin()
        (truth,) = process.search([step.query], single_thread=False)
        process.learn([truth])
        guess = process.guess(step)
    assert guess.found.ids.tolist() == truth.ids[:8].tolist()
    np.testing.assert_allclose(guess.found.distances, truth.distances[:8], rtol=1e-3)
