"""L2S: the properties its specification names."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from methods.softmax import clusters, knapsack, learning, screening
from methods.softmax.l2s import L2S
from methods.softmax.spherical_kmeans import SphericalKMeans

from .conftest import brute_force, fitted, make_world, precision

QUICK = {"clusters": 16, "rounds": 2, "batches": 40}


@st.composite
def assignments(draw):
    """(assigned [n], labels [n, 5] distinct in each row, clusters, words)."""
    number, words = draw(st.integers(1, 12)), draw(st.integers(5, 60))
    n = draw(st.integers(1, 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = np.argsort(rng.random((n, words)) / np.arange(1, words + 1), axis=1)[:, :5].astype(np.int32)
    return rng.integers(0, number, n), labels, number, words


@given(assignments(), st.floats(0.1, 1), st.floats(0, 0.2))
@settings(deadline=None, max_examples=150)
def test_the_knapsack_keeps_the_budget_and_no_item_of_negative_value(drawn, share, lambda_):
    assigned, labels, number, words = drawn
    budget = share * words
    sets = knapsack.candidate_sets(assigned, labels, number, words, budget, lambda_)
    if share == 1:
        assert sets.all()
        return
    assert knapsack.mean_size(assigned, sets) <= budget + 1e-9
    for t, s in np.argwhere(sets):
        members = labels[assigned == t]
        hits = (members == s).any(axis=1).sum()
        assert hits - lambda_ * (len(members) - hits) >= 0
        assert len(members)  # a cluster without contexts gets nothing


@given(assignments())
@settings(deadline=None, max_examples=60)
def test_the_greedy_knapsack_takes_the_best_ratio_first(drawn):
    assigned, labels, number, words = drawn
    sets = knapsack.candidate_sets(assigned, labels, number, words, 2.0, 0.0)
    counts = np.zeros((number, words))
    np.add.at(counts, (np.repeat(assigned, labels.shape[1]), labels.ravel()), 1)
    ratio = counts / np.maximum(np.bincount(assigned, minlength=number), 1)[:, None]
    if sets.any() and (~sets & (counts > 0)).any():
        assert ratio[sets].min() >= ratio[~sets & (counts > 0)].max() - 1e-12


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=4)
def test_the_budget_holds_on_the_training_contexts_for_any_seed(seed):
    world = make_world(seed % 1000, words=120, dimension=12, train=500)
    labels = brute_force(world.layer, world.contexts, 5).astype(np.int32)
    start = clusters.spherical_kmeans(world.contexts, 8, 5, 500, np.random.default_rng(seed))
    schedule = learning.Schedule(rounds=2, batches=10, batch=64)
    objective, rng = learning.Objective(15.0), np.random.default_rng(seed)
    learned = learning.learn(world.contexts, labels, 120, start, objective, schedule, rng)
    screen = screening.make_screen(learned, world.contexts, labels, 120, 15.0, 0.0003)
    assert screen["mean_candidates"] <= 15


@pytest.mark.parametrize("method", [L2S, SphericalKMeans])
def test_with_the_budget_of_the_whole_vocabulary_it_equals_the_exact_softmax(method, world, artifacts):
    exact = fitted("exact", world, artifacts)
    full = method(clusters=5, budget=500)
    full.fit(world.layer, world.contexts, world.targets, artifacts)
    full.open(world.layer, artifacts)
    for context in world.test[:100]:
        ours, theirs = full.topk(context, 10), exact.topk(context, 10)
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_allclose(ours.log_normalizer, theirs.log_normalizer, rtol=1e-6)


def test_the_normalizer_is_that_of_the_candidate_set(world, artifacts):
    method = fitted("l2s", world, artifacts, budget=30, **QUICK)
    for context in world.test[:50]:
        ids = method.words(context, 1)
        logits = world.layer.weight[ids].astype(np.float64) @ context + world.layer.bias[ids]
        assert method.topk(context, 1).log_normalizer == pytest.approx(np.log(np.exp(logits).sum()), abs=1e-5)
        log_probs = [method.log_prob(context, int(word)) for word in ids]
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-5)
        outside = np.setdiff1d(np.arange(500), ids)[0]
        assert method.log_prob(context, int(outside)) == -np.inf


def test_k_above_the_candidate_set_joins_the_sets_of_the_next_best_clusters(world, artifacts):
    method = fitted("l2s", world, artifacts, budget=20, **QUICK)
    context = world.test[0]
    own = method.words(context, 1)
    answer = method.topk(context, len(own) + 1)
    # the union of whole sets, the context's own first, and no more of them than k needs
    order = np.argsort(-(method._clusters @ context), kind="stable")
    sets = [set(method._members[method._starts[t] : method._starts[t + 1]].tolist()) for t in order]
    first = next(i for i, s in enumerate(sets) if s == set(own.tolist()))
    joined = set(sets[first])
    for i, one in enumerate(sets):
        if len(joined) > len(own):
            break
        if i != first:
            joined |= one
    assert set(answer.ids.tolist()) <= joined
    ids = np.array(sorted(joined))
    logits = world.layer.weight[ids] @ context + world.layer.bias[ids]
    assert answer.log_normalizer == pytest.approx(np.logaddexp.reduce(logits.astype(np.float64)), abs=1e-4)
    many = method.topk_many(world.test[:20], len(own) + 1)
    np.testing.assert_array_equal(many.ids[0], answer.ids)


def test_the_same_seed_gives_the_same_sets_and_another_seed_others(world, tmp_path):
    def screen(folder, seed):
        artifacts = CellArtifacts(Cache(tmp_path / folder))
        method = fitted("l2s", world, artifacts, budget=25, seed=seed, **QUICK)
        return method._clusters, method._members

    first, again, other = screen("a", 1), screen("b", 1), screen("c", 2)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


def test_learning_covers_more_labels_than_the_clusters_it_starts_from(world):
    labels = brute_force(world.layer, world.contexts, 5).astype(np.int32)
    start = clusters.spherical_kmeans(world.contexts, 8, 10, 3000, np.random.default_rng(0))
    objective, schedule = learning.Objective(12.0), learning.Schedule(rounds=4, batches=60, batch=256)
    learned = learning.learn(world.contexts, labels, 500, start, objective, schedule, np.random.default_rng(0))

    def covered(v):
        z = clusters.assign(world.contexts, v)
        return knapsack.recall(z, labels, knapsack.candidate_sets(z, labels, 8, 500, 12.0, 0.0003))

    assert covered(learned) > covered(start) + 0.005


def test_the_gradient_of_the_loss_is_that_of_equation_6():
    rng = np.random.default_rng(0)
    sets = rng.random((4, 12)) < 0.4
    labels = np.array([[0, 1, 2], [3, 4, 5]])
    chosen, lambda_, step = np.array([1, 3]), 0.1, 1e-5

    def loss(z):  # Eq. 6 with c_{z_i, s} = sum_t z_it c_ts
        c = z @ sets
        y = np.zeros((2, 12))
        np.put_along_axis(y, labels, 1, axis=1)
        return (y * (1 - c) ** 2 + lambda_ * (1 - y) * c**2).sum()

    z = np.eye(4)[chosen]
    numeric = np.zeros((2, 4))
    for index in np.ndindex(2, 4):
        up, down = z.copy(), z.copy()
        up[index] += step
        down[index] -= step
        numeric[index] = (loss(up) - loss(down)) / (2 * step)
    shared = sets.astype(np.float32) @ sets.T.astype(np.float32)
    analytic = learning.loss_gradient(sets.T[labels], chosen, shared, lambda_)
    np.testing.assert_allclose(analytic, numeric, atol=1e-4)


def test_learned_sets_find_what_test_contexts_need(world, artifacts):
    method = fitted("l2s", world, artifacts, budget=40, clusters=24, rounds=3, batches=60)
    exact = brute_force(world.layer, world.test, 5)
    ids = method.topk_many(world.test, 5).ids
    assert precision(ids[:, :1], exact[:, :1]) > 0.98
    assert precision(ids, exact) > 0.93


def test_quantised_assignment_rarely_differs_from_float(world):
    v = clusters.spherical_kmeans(world.contexts, 16, 10, 3000, np.random.default_rng(0))
    labels = brute_force(world.layer, world.contexts, 5).astype(np.int32)
    screen = screening.make_screen(v, world.contexts, labels, 500, 30, 0.0003)
    from methods.softmax import kernels

    quantised = np.empty(len(world.test), np.int64)
    kernels.assign_quantised(screen["clusters"], world.test, quantised)
    assert (quantised == clusters.assign(world.test, v)).mean() > 0.97


def test_empty_clusters_are_moved_to_contexts(world):
    far = np.tile(-np.abs(world.contexts).max(axis=0), (6, 1)).astype(np.float32)
    v = np.concatenate([clusters.unit(world.contexts[:2]), far * 0 - 1]).astype(np.float32)
    refreshed, assigned = learning._without_empty(world.contexts, v, np.random.default_rng(0))
    before = len(np.unique(clusters.assign(world.contexts, v)))
    assert len(np.unique(assigned)) > before
    assert refreshed.shape == v.shape


def test_zero_contexts_are_left_out_of_learning(world, tmp_path):
    padded = make_world()
    padded.contexts = np.concatenate([world.contexts, np.zeros((50, 32), np.float32)])
    padded.targets = np.concatenate([world.targets, np.zeros(50, np.int64)])
    one = fitted("l2s", world, CellArtifacts(Cache(tmp_path / "a")), budget=25, **QUICK)
    two = fitted("l2s", padded, CellArtifacts(Cache(tmp_path / "b")), budget=25, **QUICK)
    np.testing.assert_array_equal(one._members, two._members)


def test_opening_with_another_layer_is_refused(world, artifacts):
    method = fitted("l2s", world, artifacts, budget=25, **QUICK)
    other = make_world(words=400, dimension=20)
    with pytest.raises(RequestError, match="not learned for a layer"):
        method.open(other.layer, artifacts)
