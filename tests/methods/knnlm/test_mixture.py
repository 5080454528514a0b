"""Eq. 2 and 3 against plain Python, and the tuning of their two weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.knnlm.mixture import interpolate, knn_distribution, log_knn
from methods.knnlm.tuning import tune, tune_lambda

V = 7
rows = st.lists(
    st.tuples(st.floats(0, 3000, width=32), st.integers(0, V - 1)), min_size=1, max_size=12
)  # (distance, value)


@given(rows, st.floats(0.1, 1e4))
@settings(max_examples=80, deadline=None)
def test_knn_distribution_sums_to_one_and_agrees_with_plain_python(neighbours, temperature):
    distances = np.asarray([[d for d, _ in neighbours]], np.float32)
    values = np.asarray([[v for _, v in neighbours]])
    p = knn_distribution(distances, values, temperature, V)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    nearest = min(d for d, _ in neighbours)
    weights = [(math.exp(-(d - nearest) / temperature), v) for d, v in neighbours]
    total = math.fsum(w for w, _ in weights)
    for word in range(V):
        expected = math.fsum(w for w, v in weights if v == word) / total
        assert p[0, word] == pytest.approx(expected, abs=1e-12)
        found = log_knn(distances, values == word, temperature)[0]
        assert math.exp(found) == pytest.approx(expected, abs=1e-12)


@given(rows, st.floats(0, 1), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_mixture_sums_to_one_over_the_vocabulary(neighbours, lambda_, seed):
    lm = np.random.default_rng(seed).dirichlet(np.ones(V))
    distances = np.asarray([[d for d, _ in neighbours]] * V, np.float32)
    values = np.asarray([[v for _, v in neighbours]] * V)
    found = log_knn(distances, values == np.arange(V)[:, None], 10.0)
    assert np.exp(interpolate(np.log(lm), found, lambda_)).sum() == pytest.approx(1, abs=1e-12)


def test_an_entry_listed_twice_counts_twice():
    p = knn_distribution(np.zeros((1, 3), np.float32), np.asarray([[1, 1, 2]]), 1.0, V)
    assert p[0, 1] == pytest.approx(2 / 3)


def test_missing_neighbours_weigh_nothing_and_none_at_all_leaves_the_lm():
    distances = np.asarray([[1.0, np.inf], [np.inf, np.inf]], np.float32)
    hits = np.asarray([[False, True], [False, False]])
    found = log_knn(distances, hits, 1.0)
    assert found[0] == -np.inf and np.isnan(found[1])
    lm = np.log([0.5, 0.25])
    np.testing.assert_allclose(np.exp(interpolate(lm, found, 0.2)), [0.4, 0.25])
    np.testing.assert_allclose(np.exp(interpolate(lm, found, np.asarray([0.6, 0.2]))), [0.2, 0.25])  # a weight each
    assert np.isnan(log_knn(np.empty((2, 0), np.float32), np.empty((2, 0), bool), 1.0)).all()


def test_a_hopeless_distance_keeps_its_digits_in_log_space():
    found = log_knn(np.asarray([[0.0, 5000.0]], np.float32), np.asarray([[False, True]]), 10.0)
    assert math.exp(found[0]) == pytest.approx(math.exp(-500), rel=1e-9)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    distances = np.sort(rng.gamma(8, 20, (600, 24)).astype(np.float32), axis=1)
    hits = rng.random((600, 24)) < 0.9 * np.exp(-distances / 90)
    return np.log(rng.uniform(0.001, 0.6, 600)), distances, hits


def loss(log_lm, distances, hits, lambda_, temperature):
    return -interpolate(log_lm, log_knn(distances, hits, temperature), lambda_).mean()


def test_tuning_is_no_worse_than_a_fine_grid(problem):
    tuned = tune(*problem)
    grid = [loss(*problem, m, t) for m in np.linspace(0, 0.95, 20) for t in np.geomspace(1, 2000, 25)]
    assert tuned.loss <= min(grid) + 1e-5
    assert tuned.loss == pytest.approx(loss(*problem, tuned.lambda_, tuned.temperature), abs=1e-6)
    assert tuned.lm_loss == pytest.approx(-problem[0].mean())
    assert tuned.loss < tuned.lm_loss


def test_given_weights_are_kept(problem):
    assert tune(*problem, lambda_=0.3).lambda_ == 0.3
    assert tune(*problem, temperature=50.0).temperature == 50.0
    both = tune(*problem, lambda_=0.3, temperature=50.0)
    assert both.loss == pytest.approx(loss(*problem, 0.3, 50.0))


def test_useless_neighbours_get_no_weight(problem):
    log_lm, distances, hits = problem
    assert tune(log_lm, distances, np.zeros_like(hits)).lambda_ == 0
    assert tune_lambda(log_lm, np.full(len(log_lm), np.nan))[0] == pytest.approx(-log_lm.mean())
