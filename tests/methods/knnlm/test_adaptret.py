"""AdaptRet, and lambda learned per token."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache, CellArtifacts, SharedResults
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.knnlm import gate
from methods.knnlm.adaptret import AdaptRet
from methods.knnlm.gate import Gate, learned, neighbour_features
from methods.knnlm.lm import Lm
from methods.knnlm.ngrams import ARTIFACT, NgramStatistics, ngram_statistics
from methods.knnlm.scorer import KnnLm
from methods.knnlm.search import DatastoreSearch
from methods.retomaton.scorer import RetoMaton

from .conftest import text

REFERENCE = text(1, 400, 300)
VALIDATION = text(2, 2500)
EVALUATION = text(3, 200, 2, 90)
GIVEN = {"lambda_": 0.3, "temperature": 20.0, "k": 8}
NO_PHASES = NoPhases()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gate, "STEPS", 300)


def fitted(kind, model, cache, **parameters):
    method = kind(**{**GIVEN, **parameters})
    method.fit(model, REFERENCE, VALIDATION, CellArtifacts(cache))
    return method


def score(method, model, shared=None):
    return method.score(model, EVALUATION, NO_PHASES, shared)


def foss(answers):
    tokens, searches = (sum(a.counters[name] for a in answers) for name in ("tokens", "searches"))
    return 1 - searches / tokens


def perplexity(answers):
    return math.exp(-np.concatenate([a.log_probs for a in answers]).mean())


# ---------------------------------------------------------------- n-grams


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=15), min_size=1, max_size=3), st.lists(st.integers(0, 4), max_size=12)
)
@settings(max_examples=40, deadline=None)
def test_ngrams_are_counted_as_by_hand(tmp_path_factory, reference, asked):
    artifacts = CellArtifacts(Cache(tmp_path_factory.mktemp("cache")))
    ngram_statistics(artifacts, [np.array(stream, np.int64) for stream in reference])
    found = NgramStatistics(artifacts.path(ARTIFACT)).features(np.array(asked, np.int64))
    assert found.shape == (max(len(asked) - 1, 0), 8)
    for order in range(1, 5):
        counts, following = Counter(), defaultdict(set)
        for stream in reference:
            for end in range(order, len(stream)):
                words = tuple(stream[end - order : end])
                counts[words] += 1
                following[words].add(stream[end])
        for place in range(len(asked) - 1):
            words = tuple(asked[place + 1 - order : place + 1]) if place + 1 >= order else None
            expected = [np.log1p(counts[words]), np.log1p(len(following[words]))] if words else [0, 0]
            np.testing.assert_allclose(found[place, 2 * order - 2 : 2 * order], expected, rtol=1e-6)


# ---------------------------------------------------------------- the network


def test_a_gate_learns_where_neighbours_are_right(tmp_path):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(4000, 5))
    good = features[:, 2] > 0.5
    log_lm, log_knn = np.full(4000, -2.0), np.where(good, -0.1, -8.0)
    log_knn[rng.random(4000) < 0.1] = np.nan  # no neighbour: nothing to be learned
    made = learned(features, log_lm, log_knn)
    weights = made(features)
    assert weights[good].mean() > 0.9 and weights[~good].mean() < 0.1
    assert np.all(np.diff(made.held_out) >= 0) and 300 < len(made.held_out) < 500
    made.save(tmp_path)
    assert np.array_equal(Gate.open(tmp_path)(features), weights)
    assert learned(features, log_lm, log_knn, penalty=10.0)(features).max() < 0.1


def test_too_little_text_is_refused():
    with pytest.raises(RequestError, match="10 tokens of validation text are too few"):
        learned(np.zeros((10, 2)), np.zeros(10), np.zeros(10))


def test_features_of_neighbours_by_hand():
    distances = np.array([[1.0, 3.0, np.inf], [np.inf, np.inf, np.inf]], np.float32)
    values = np.array([[7, 7, 9], [1, 2, 3]])
    first, none = neighbour_features(distances, values, 2.0)
    heavy = 1 / (1 + math.exp(-1))
    entropy = -heavy * math.log(heavy) - (1 - heavy) * math.log(1 - heavy)
    expected = [1, math.log1p(0.5), math.log1p(0.5), entropy, 1.0, heavy, math.log(3)]
    np.testing.assert_allclose(first, expected, rtol=1e-5)
    np.testing.assert_allclose(none, [0, 0, 0, 0, 0, 0, 0], atol=1e-6)
    assert neighbour_features(np.empty((2, 0)), np.empty((2, 0), int), 1.0).shape == (2, gate.NEIGHBOUR_FEATURES)


# ---------------------------------------------------------------- AdaptRet


def test_what_it_searches_is_mixed_with_the_lambda_that_the_network_says(model, cache):
    ours = score(fitted(AdaptRet, model, cache, foss=0.3), model)
    neural, alone = score(Lm(), model), score(fitted(KnnLm, model, cache, lambda_=1.0), model)
    seen = []
    for mixed, lm, knn in zip(ours, neural, alone, strict=True):
        p, p_lm, p_knn = (np.exp(one.log_probs) for one in (mixed, lm, knn))
        with np.errstate(divide="ignore", invalid="ignore"):
            lambdas = (p - p_lm) / (p_knn - p_lm)
        seen += lambdas[np.abs(p_knn - p_lm) > 1e-3].tolist()
    seen = np.array(seen)
    assert seen.min() > -1e-3 and seen.max() < 1.001
    left_out = np.abs(seen) < 1e-3
    assert 0.1 < left_out.mean() < 0.6 and np.ptp(seen[~left_out]) > 0.05  # not one lambda for all


def test_without_a_search_it_is_the_lm_and_with_all_better_than_one_lambda(model, cache):
    for one, two in zip(score(fitted(AdaptRet, model, cache, foss=1.0), model), score(Lm(), model), strict=True):
        np.testing.assert_allclose(one.log_probs, two.log_probs, rtol=0, atol=1e-6)
    tuned = {"lambda_": "tuned", "temperature": "tuned"}
    every, one = (perplexity(score(fitted(kind, model, cache, **tuned), model)) for kind in (AdaptRet, KnnLm))
    assert every < one


def test_it_leaves_out_about_as_many_searches_as_asked(model, cache):
    shares = [0.2, 0.5, 0.8]
    found = [foss(score(fitted(AdaptRet, model, cache, foss=share), model)) for share in shares]
    assert found == sorted(found)
    np.testing.assert_allclose(found, shares, atol=0.15)


def test_it_leaves_out_better_ones_than_chance(model, cache):
    ours = perplexity(score(fitted(AdaptRet, model, cache, foss=0.5), model))
    random = [perplexity(score(fitted(KnnLm, model, cache, foss=0.5, seed=seed), model)) for seed in range(5)]
    assert ours < min(random)


def test_shared_neighbours_give_the_same_answers(model, cache):
    for method in (fitted(AdaptRet, model, cache, foss=0.4), fitted(KnnLm, model, cache, lambda_="dynamic")):
        live = score(method, model)
        for one, other in zip(live, score(method, model, SharedResults(cache)), strict=True):
            np.testing.assert_allclose(one.log_probs, other.log_probs, rtol=0, atol=1e-6)
            assert one.counters.keys() - other.counters.keys() == {"bytes_read"}  # nothing is read for a shared result
            assert other.counters.items() <= one.counters.items()


# ---------------------------------------------------------------- lambda for each token


@pytest.mark.parametrize("kind", [KnnLm, RetoMaton])
def test_a_learned_lambda_is_better_than_one_for_all(model, cache, kind):
    given = {} if kind is KnnLm else {"tau": 2, "clusters": 60}
    fixed = fitted(kind, model, cache, **{**given, "lambda_": "tuned", "temperature": "tuned"})
    dynamic = fitted(kind, model, cache, **{**given, "lambda_": "dynamic", "temperature": "tuned"})
    assert perplexity(score(dynamic, model)) < perplexity(score(fixed, model))
    again = kind(**{**GIVEN, **given, "lambda_": "dynamic", "temperature": "tuned"})
    artifacts = CellArtifacts(cache)
    again.fit(model, REFERENCE, VALIDATION, artifacts)
    other = kind(**{**GIVEN, **given, "lambda_": "dynamic", "temperature": "tuned"})
    other.open(model, artifacts)
    for one, two in zip(score(again, model), score(other, model), strict=True):
        np.testing.assert_array_equal(one.log_probs, two.log_probs)


@pytest.mark.slow
def test_fits_search_the_validation_text_once(model, tmp_path, monkeypatch):
    asked = []

    def counting(self, queries, phases, search=DatastoreSearch.search):
        asked.append(len(queries))
        return search(self, queries, phases)

    monkeypatch.setattr(DatastoreSearch, "search", counting)
    cache, free = Cache(tmp_path), {"lambda_": "tuned", "temperature": "tuned"}
    fitted(KnnLm, model, cache, **free)
    assert sum(asked) == 2499
    fitted(KnnLm, model, cache, **{**free, "lambda_": "dynamic"})
    for seed in (0, 1):
        fitted(AdaptRet, model, cache, **free, seed=seed)
    for tau in ("inf", 1):
        fitted(RetoMaton, model, cache, **{**free, "lambda_": "dynamic"}, tau=tau, clusters=20)
    assert sum(asked) == 2499


def test_adaptret_with_a_learned_lambda_is_refused():
    with pytest.raises(RequestError, match="leave lambda as it is"):
        AdaptRet(lambda_="dynamic")
