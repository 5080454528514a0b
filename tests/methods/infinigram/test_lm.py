"""The ∞-gram LM on random models, against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.infinigram.forest import Forest
from methods.infinigram.lm import InfinigramLm
from methods.infinigram.mixing import best_lambda, mixture
from methods.knnlm.lm import Lm
from tests.methods.infinigram.test_engine import following, longest
from tests.methods.knnlm.conftest import model, text

__all__ = ["model"]  # a fixture

REFERENCE, VALIDATION, EVALUATION = text(1, 300, 200), text(2, 900), text(3, 80, 45, 2, 1)
NO_PHASES = NoPhases()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache"))


def fitted(model, cache, **parameters):
    method = InfinigramLm(**parameters)
    method.fit(model, REFERENCE, VALIDATION, CellArtifacts(cache))
    return method


def perplexity(answers):
    return math.exp(-np.concatenate([a.log_probs for a in answers]).mean())


@pytest.mark.parametrize("most", [None, 4, 0])
def test_scores_agree_with_plain_python(model, cache, most):
    answers = fitted(model, cache, longest=most, sparse=0.6, other=0.2).score(model, EVALUATION, NO_PHASES)
    documents = [stream.tolist() for stream in REFERENCE]
    lm = Lm().score(model, EVALUATION, NO_PHASES)
    for stream, neural, answer in zip(EVALUATION, lm, answers, strict=True):
        ids, expected = stream.tolist(), []
        for at in range(1, len(ids)):
            size = longest(documents, ids[:at], most)
            counts = following(documents, ids[at - size : at])
            p = counts[ids[at]] / sum(counts.values())
            weight = 0.6 if len(counts) == 1 else 0.2
            expected.append(math.log(weight * p + (1 - weight) * math.exp(neural.log_probs[at - 1])))
        np.testing.assert_allclose(answer.log_probs, expected, rtol=0, atol=1e-9)


def test_tuned_and_learned_lambdas_help_more_and_more(model, cache):
    neural = perplexity(Lm().score(model, EVALUATION, NO_PHASES))
    tuned = perplexity(fitted(model, cache).score(model, EVALUATION, NO_PHASES))
    unbounded = fitted(model, cache)
    assert tuned < 0.9 * neural
    assert 0 < unbounded.counters()["lambda_sparse"] <= 0.999
    forest = perplexity(fitted(model, cache, forest=True).score(model, EVALUATION, NO_PHASES))
    assert forest < 1.05 * tuned


def test_another_process_answers_the_same(model, cache):
    for given in ({}, {"forest": True}):
        method, artifacts = InfinigramLm(**given), CellArtifacts(cache)
        method.fit(model, REFERENCE, VALIDATION, artifacts)
        other = InfinigramLm(**given)
        other.open(model, CellArtifacts(cache, **artifacts.manifest()))
        for one, two in zip(*(m.score(model, EVALUATION, NO_PHASES) for m in (method, other)), strict=True):
            np.testing.assert_array_equal(one.log_probs, two.log_probs)


def test_the_best_lambda_is_that_of_a_fine_grid():
    rng = np.random.default_rng(0)
    lm, other = rng.random(500) * 0.3 + 0.01, np.where(rng.random(500) < 0.4, rng.random(500), 0.0)
    grid = np.linspace(0, 0.999, 2000)
    losses = [-np.log(mixture(lm, other, value)).mean() for value in grid]
    assert best_lambda(lm, other) == pytest.approx(grid[int(np.argmin(losses))], abs=2e-3)
    assert best_lambda(np.empty(0), np.empty(0)) == 0.0


def test_a_forest_finds_where_counts_help():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(3000, 4))
    good = features[:, 1] > 0
    lm, other = np.full(3000, 0.1), np.where(good, 0.9, 0.0)
    weights = Forest.learned(features, lm, other, 0)(features)
    assert weights[good].mean() > 0.8 and weights[~good].mean() < 0.2
    with pytest.raises(RequestError, match="10 tokens of validation text are too few"):
        Forest.learned(features[:10], lm[:10], other[:10], 0)
