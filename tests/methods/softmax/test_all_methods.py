"""What holds for every softmax method, the exact one included."""

from types import SimpleNamespace

import numpy as np
import pytest

from harness.common.cache import CellArtifacts
from harness.common.errors import RequestError
from harness.contracts import OutputLayer
from harness.measure.drivers import DRIVERS
from harness.plan.registry import Registry, construct
from methods.softmax.preview import Preview

from .conftest import EXACT, RIVALS, brute_force, fitted, precision

ALL = ["exact", "l2s", *RIVALS]
SMALL = {"l2s": {"clusters": 16, "budget": 40, "rounds": 2, "batches": 30},
         "spherical-kmeans": {"clusters": 16, "budget": 40}, "svd-softmax": {"width": 8, "refined": 40},
         "adaptive-softmax": {"head": 100}, "greedy-mips": {"budget": 100}, "pca-mips": {"depth": 3},
         "two-sided": {"clusters": 16, "row_probes": 2, "probes": 2, "common": 20}, "flashhead": {"row_probes": 4},
         "shortlist": {"common": 100}, "quantized": {"refined": 40},
         "pq": {"refined": 40}}  # fmt: skip


@pytest.fixture(scope="module", params=ALL)
def method(request, world, tmp_path_factory):
    from harness.common.cache import Cache

    artifacts = CellArtifacts(Cache(tmp_path_factory.mktemp(request.param)))
    return fitted(request.param, world, artifacts, **SMALL.get(request.param, {}))


@pytest.mark.parametrize("name", ALL)
def test_with_its_knob_at_the_accurate_end_a_method_is_exact(name, world, artifacts):
    method = fitted(name, world, artifacts, **EXACT[name])
    answers = [method.topk(context, 5) for context in world.test]
    found = precision(np.stack([a.ids for a in answers]), brute_force(world.layer, world.test, 5))
    assert found == 1 if name not in ("lsh-mips", "adaptive-softmax", "fgd") else found > 0.99


@pytest.mark.parametrize("parameters", [{"weighted": True}, {"numbers": "int8"}, {"weighted": True, "numbers": "int8"}])
def test_a_preview_with_options_finds_the_exact_words_too(parameters, world, artifacts):
    method = fitted("svd-softmax", world, artifacts, width=32, refined=50, **parameters)
    found = np.stack([method.topk(context, 5).ids for context in world.test])
    assert precision(found, brute_force(world.layer, world.test, 5)) == 1


def test_fgd_on_the_reduced_points_of_the_paper_finds_the_exact_words_too(world, artifacts):
    method = fitted("fgd", world, artifacts, ef_search=500, neighbours=20, space="reduced")
    found = np.stack([method.topk(context, 5).ids for context in world.test])
    assert precision(found, brute_force(world.layer, world.test, 5)) > 0.99


def test_answers_are_best_first_distinct_and_carry_exact_logits(method, world):
    for context in world.test[:50]:
        answer = method.topk(context, 7)
        assert answer.ids.dtype == np.int64
        assert answer.logits.dtype == np.float32
        assert len(set(answer.ids.tolist())) == 7
        assert (np.diff(answer.logits) <= 0).all()
        if type(method).__name__ != "AdaptiveSoftmax":  # its tails answer from low-rank rows
            exact = world.layer.weight[answer.ids] @ context + world.layer.bias[answer.ids]
            np.testing.assert_allclose(answer.logits, exact, rtol=1e-4, atol=1e-4)


def test_a_call_reads_the_weights_that_it_multiplies_by(world, artifacts):
    """Of a layer [500, 32] in float32, by hand."""
    row = 4 * (32 + 1)  # of a word, with its bias

    def read(name, **parameters):
        method = fitted(name, world, artifacts, **SMALL.get(name, {}), **parameters)
        found = method.counters()
        return found, found["bytes_read"]

    assert read("exact")[1] == 500 * row
    assert read("svd-softmax")[1] == 4 * (8 * 32 + 8 * 500 + 500) + 40 * row  # directions, previews, biases; refined
    int8 = 4 * (8 * 32 + 500) + 8 * 500 + 4 * 500  # directions, biases; previews, scales
    assert read("svd-softmax", numbers="int8")[1] == int8 + 40 * row
    assert read("quantized")[1] == 500 * (32 + 4 + 4) + 40 * row  # int8, scales, biases; refined
    assert read("quantized", numbers="bfloat16")[1] == 500 * (2 * 32 + 4 + 4) + 40 * row
    assert read("greedy-mips")[1] == 100 * row
    found, total = read("l2s")
    assert total == pytest.approx(16 * 32 + found["mean_candidates"] * row)  # clusters in int8
    found, total = read("pca-mips")
    assert total == pytest.approx(3 * 34 * 4 + found["mean_candidates"] * row)
    found, total = read("lsh-mips")
    assert total == pytest.approx(16 * 8 * 33 * 4 + found["mean_candidates"] * row)
    found, total = read("adaptive-softmax", tails=1, divisor=1)
    assert 101 * row <= total <= 501 * row  # the head of 100 words and a tail's, and the tail where it is opened
    assert total == pytest.approx(4 * (found["multiply_adds"] + found["mean_candidates"]))
    found, total = read("fgd", completion_rank=8)
    assert total == pytest.approx(4 * (found["multiply_adds"] + found["mean_candidates"] + 500))


def test_in_a_batch_the_layer_is_read_once_and_what_is_unknown_is_left_out(world, artifacts):
    driver, batched = DRIVERS["softmax-screening"], SimpleNamespace(batch=32, timed_targets=None)
    exact, screen = (fitted(name, world, artifacts, **SMALL.get(name, {})) for name in ("exact", "l2s"))
    assert driver.costs(exact, batched)["bytes_read"] == 500 * 33 * 4 / 32
    assert "bytes_read" not in driver.costs(screen, batched)
    one = SimpleNamespace(batch=1, timed_targets=None)
    assert driver.costs(exact, one)["bytes_read"] == 500 * 33 * 4 and "batch_bytes_read" not in driver.costs(exact, one)


def test_topk_many_agrees_with_topk(method, world):
    many = method.topk_many(world.test[:40], 3)
    for row, context in enumerate(world.test[:40]):
        one = method.topk(context, 3)
        np.testing.assert_array_equal(many.ids[row], one.ids)
        np.testing.assert_allclose(many.logits[row], one.logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(many.log_normalizer[row], one.log_normalizer, rtol=1e-5)
    assert method.topk_many(world.test[:0], 3).ids.shape == (0, 3)


def test_the_normalizer_turns_logits_into_the_log_probabilities_of_log_prob(method, world):
    for context in world.test[:10]:
        answer = method.topk(context, 1)
        if isinstance(method, Preview):  # its softmax has all previews, its top-k only refined words
            continue
        for word, logit in zip(answer.ids, answer.logits, strict=True):
            assert method.log_prob(context, int(word)) == pytest.approx(logit - answer.log_normalizer, abs=1e-4)


def test_probabilities_of_all_words_sum_to_one(method, world):
    total = sum(np.exp(method.log_prob(world.test[0], word)) for word in range(500))
    assert total == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", ["l2s", "spherical-kmeans", "fgd"])
def test_a_completion_of_full_rank_gives_every_word_its_exact_probability(name, world, artifacts):
    method = fitted(name, world, artifacts, **SMALL.get(name, {}), completion_rank=32)
    for context in world.test[:20]:
        logits = world.layer.weight.astype(float) @ context + world.layer.bias
        expected = logits - np.logaddexp.reduce(logits)
        found = [method.log_prob(context, word) for word in range(500)]
        np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("name", ["l2s", "fgd"])
def test_a_low_rank_completion_is_exact_inside_the_set_and_low_rank_outside(name, world, artifacts):
    method = fitted(name, world, artifacts, **SMALL.get(name, {}), completion_rank=4)
    _, _, right = np.linalg.svd(world.layer.weight.astype(float), full_matrices=False)
    reduced = world.layer.weight @ right[:4].T @ right[:4]
    for context in world.test[:5]:
        exact, logits = (weight @ context + world.layer.bias for weight in (world.layer.weight, reduced))
        inside = method.words(context, 1)
        logits[inside] = exact[inside]
        found = [method.log_prob(context, word) for word in range(500)]
        np.testing.assert_allclose(found, logits - np.logaddexp.reduce(logits), atol=2e-4)


def test_a_preview_weighted_by_contexts_has_the_least_error_on_their_logits(world, artifacts):
    def error(**parameters) -> float:
        method = fitted("svd-softmax", world, artifacts, width=8, refined=1, **parameters)
        missed = world.contexts @ (world.layer.weight - (method._directions.T @ method._previews).T).T
        return float((missed.astype(float) ** 2).mean())

    root = np.linalg.cholesky(world.contexts.T.astype(float) @ world.contexts / len(world.contexts))
    least = (np.linalg.svd(world.layer.weight @ root, compute_uv=False)[8:] ** 2).sum() / 500  # Eckart and Young
    assert error(weighted=True) == pytest.approx(least, rel=1e-3)
    assert error() > 1.05 * least


def test_a_preview_in_int8_is_off_by_half_a_step_of_each_number(world, artifacts):
    exact, rounded = (
        fitted("svd-softmax", world, artifacts, width=8, numbers=numbers, weighted=True)
        for numbers in ("float32", "int8")
    )
    step = np.abs(exact._previews).max(axis=0) / 127
    out, other = np.empty(500, np.float32), np.empty(500, np.float32)
    for context in world.test[:20]:
        exact._preview(context, out)
        rounded._preview(context, other)
        assert (np.abs(out - other) <= 0.51 * step * np.abs(exact._directions @ context).sum() + 1e-4).all()
    assert rounded.counters()["extra_bytes"] < 0.45 * exact.counters()["extra_bytes"]


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", ["l2s", "spherical-kmeans", "fgd"])
def test_a_completion_gives_no_probability_for_a_context_that_is_not_finite(name, world, artifacts):
    method = fitted(name, world, artifacts, **SMALL.get(name, {}), completion_rank=4)
    broken = world.test[0].copy()
    for broken[3] in (np.nan, np.inf):
        with pytest.raises(RequestError, match="NaN or infinity"):
            method.log_prob(broken, 5)


def test_every_k_up_to_the_vocabulary_gives_k_distinct_words(method, world):
    for k in (1, 60, 499, 500):
        ids = method.topk(world.test[0], k).ids
        assert len(np.unique(ids)) == k


def test_counters_say_what_a_call_costs(method):
    counters = method.counters()
    assert counters["multiply_adds"] > 0
    assert 0 < counters["mean_candidates"] <= 500 + 2
    assert (counters["extra_bytes"] > 0) == (type(method).__name__ != "Exact")


def test_adaptive_softmax_counts_the_tails_that_a_probability_opens_apart_from_those_of_a_top_five(world, artifacts):
    method = fitted("adaptive-softmax", world, artifacts, head=20)
    first, second, end = method._cut
    assert (first, end) == (20, 500)
    frequent = np.argsort(-np.bincount(world.targets, minlength=500), kind="stable")
    shares = [np.isin(world.targets, frequent[start:stop]).mean() for start, stop in ((first, second), (second, end))]
    assert min(shares) > 0
    counters, head = method.counters(), 22 * 32
    # the tails have rank 32 / 4 and 32 / 16
    tails = [(second - first) * 8 + 8 * 32, (end - second) * 2 + 2 * 32]
    assert counters["log_prob_multiply_adds"] == pytest.approx(head + np.dot(shares, tails))
    assert counters["multiply_adds"] > counters["log_prob_multiply_adds"]  # five words open more than one


@pytest.mark.parametrize("k", [0, -1, 501])
def test_k_outside_the_vocabulary_is_refused(method, world, k):
    with pytest.raises(RequestError, match=r"k must lie in 1\.\.500"):
        method.topk(world.test[0], k)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_context_that_is_not_finite_is_refused(method, world, value):
    broken = world.test[0].copy()
    broken[3] = value
    for ask in (method.topk, method.log_prob):
        with pytest.raises(RequestError, match="NaN or infinity"):
            ask(broken, 5)
    assert method.topk(world.test[0], 5).ids.shape == (5,)  # and the next call is unharmed


def test_a_context_of_another_width_or_type_and_a_target_that_is_no_word_are_refused(method, world):
    with pytest.raises(RequestError, match="context must be"):
        method.topk(world.test[0][:-1], 5)
    with pytest.raises(RequestError, match="context must be"):
        method.topk(world.test[0].astype(np.int64), 5)
    with pytest.raises(RequestError, match=r"target must lie in 0\.\.499"):
        method.log_prob(world.test[0], 500)


def test_zero_float64_and_strided_contexts_are_answered(method, world):
    assert len(method.topk(np.zeros(32, np.float32), 5).ids) == 5
    plain = method.topk(world.test[0], 5).ids
    strided = np.repeat(world.test[0], 2)[::2]
    assert not strided.flags.c_contiguous
    np.testing.assert_array_equal(method.topk(strided, 5).ids, plain)
    np.testing.assert_array_equal(method.topk(world.test[0].astype(np.float64), 5).ids, plain)


@pytest.mark.parametrize("name", ["l2s", *RIVALS])
def test_broken_training_material_is_refused_in_one_line(name, world, artifacts):
    target = Registry().resolve("method", name)

    def refused(match, layer=world.layer, contexts=world.contexts, targets=world.targets):
        with pytest.raises(RequestError, match=match) as error:
            target(**SMALL.get(name, {})).fit(layer, contexts, targets, artifacts)
        assert "\n" not in str(error.value)

    refused("weight must be", layer=OutputLayer(world.layer.weight[0], world.layer.bias))
    refused("bias must be", layer=OutputLayer(world.layer.weight, world.layer.bias[:-1]))
    broken = world.layer.weight.copy()
    broken[0, 0] = np.inf
    refused("weight holds NaN or infinity", layer=OutputLayer(broken, world.layer.bias))
    if name in ("svd-softmax", "quantized", "pq"):  # learn from the layer alone
        return
    refused("training contexts must be", contexts=world.contexts[:, :-1])
    refused("training targets must be", targets=world.targets[:-1])
    refused("targets must lie in", targets=world.targets + 500)
    nan = world.contexts.copy()
    nan[7, 0] = np.nan
    refused("training context 7 holds NaN", contexts=nan)
    refused("other than zero, given 0", contexts=np.zeros_like(world.contexts))


KNOBS_THAT_CANNOT_BE = [
    ("l2s", {"clusters": 3001}, "needs at least 3001 training contexts other than zero, given 3000"),
    ("spherical-kmeans", {"clusters": 3001}, "needs at least 3001 training contexts other than zero, given 3000"),
    ("l2s", {"clusters": 0}, "'clusters' of method l2s should be at least 1"),
    ("l2s", {"completion_rank": 33}, "above the layer's dimension 32"),
    ("spherical-kmeans", {"budget": 0}, "'budget' of method spherical-kmeans should be above 0"),
    ("l2s", {"budget": 501}, "budget 501 is above the vocabulary's 500 words"),
    ("spherical-kmeans", {"budget": 501}, "budget 501 is above the vocabulary's 500 words"),
    ("greedy-mips", {"budget": 0}, "should be at least 1"),
    ("greedy-mips", {"budget": 501}, "budget 501 is above the vocabulary's 500 words"),
    ("svd-softmax", {"width": 0}, "should be at least 1"),
    ("svd-softmax", {"refined": 0}, "should be at least 1"),
    ("svd-softmax", {"width": 33}, "width 33 is above the layer's dimension 32"),
    ("adaptive-softmax", {"head": 0}, "should be at least 1"),
    ("adaptive-softmax", {"head": 500}, "exceed 500 words"),
    ("fgd", {"ef_search": 0}, "should be at least 1"),
    ("fgd", {"neighbours": 0}, "should be at least 1"),
    ("fgd", {"completion_rank": 33}, "above the layer's dimension 32"),
    ("pca-mips", {"depth": 0}, "should be at least 1"),
    ("pca-mips", {"depth": 40}, "depth 40 is too deep for 500 words"),
    ("lsh-mips", {"tables": 0}, "should be at least 1"),
    ("pq", {"width": 0}, "should be at least 1"),
]


@pytest.mark.parametrize(("name", "parameters", "message"), KNOBS_THAT_CANNOT_BE)
def test_a_knob_that_is_nothing_or_more_than_there_is_is_refused(name, parameters, message, world, artifacts):
    with pytest.raises(RequestError, match=message):
        method = construct(Registry().resolve("method", name), parameters)
        method.fit(world.layer, world.contexts, world.targets, artifacts)


@pytest.mark.parametrize("numbers", ["int8", "bfloat16"])
def test_a_quantized_preview_is_off_by_the_rounding_of_its_weights(numbers, world, artifacts):
    method = fitted("quantized", world, artifacts, numbers=numbers, refined=5)
    size, found = np.abs(world.layer.weight.astype(float)), np.empty(500, np.float32)
    step = size.max(axis=1, keepdims=True) / 127 if numbers == "int8" else size / 2**7
    held = method._weight if numbers == "int8" else (method._weight.astype(np.uint32) << 16).view(np.float32)
    held = held.astype(float) * method._scale[:, None]
    assert (np.abs(held - world.layer.weight) <= 0.501 * step).all()
    assert np.abs(held - world.layer.weight).max() > 1e-5
    for context in world.test[:50]:
        method._preview(context, found)
        np.testing.assert_allclose(found, held @ context + world.layer.bias, atol=1e-4)


@pytest.mark.parametrize(("name", "parameters"), [("quantized", {}), ("svd-softmax", {"width": 1})])
def test_a_word_above_the_bound_is_refined_though_earlier_words_tie_at_it(name, parameters, artifacts):
    layer = OutputLayer(np.array([[0], [0], [0], [1]], np.float32), np.zeros(4, np.float32))
    method = construct(Registry().resolve("method", name), {"refined": 2, **parameters})
    method.fit(layer, np.ones((64, 1), np.float32), np.full(64, 3), artifacts)
    method.open(layer, artifacts)
    assert method.topk(np.ones(1, np.float32), 1).ids.tolist() == [3]


def test_product_quantisation_of_a_context_of_zeros_gives_distinct_words(world, artifacts):
    method = fitted("pq", world, artifacts, width=5, refined=3)  # 5 does not divide 32 + 1
    for context in (np.zeros(32, np.float32), world.test[0]):
        for k in (1, 5):  # below and above `refined`
            assert len(set(method.topk(context, k).ids.tolist())) == k
            assert len(set(method.words(context, k).tolist())) == max(k, 3)
    assert method.counters()["multiply_adds"] == 16 * 35 + 500 * 7 + 3 * 32


def test_product_quantisation_needs_as_many_words_as_a_part_has_centres(world, artifacts):
    few = OutputLayer(world.layer.weight[:15], world.layer.bias[:15])
    with pytest.raises(RequestError, match="at least 16 words, given 15"):
        Registry().resolve("method", "pq")().fit(few, world.contexts, world.targets % 15, artifacts)


def test_narrower_parts_of_product_quantisation_find_more(world, artifacts):
    def found(width: int) -> float:
        method = fitted("pq", world, artifacts, width=width, refined=20)
        ids = np.stack([method.topk(context, 1).ids for context in world.test])
        return precision(ids, brute_force(world.layer, world.test, 1))

    assert found(1) > found(8) + 0.02


@pytest.mark.parametrize(("name", "parameters"), [("svd-softmax", {"refined": 501}), ("fgd", {"neighbours": 501})])
def test_asking_for_more_words_than_there_are_scores_all_of_them(name, parameters, world, artifacts):
    method = fitted(name, world, artifacts, **parameters)
    ids = np.stack([method.topk(context, 5).ids for context in world.test[:50]])
    assert precision(ids, brute_force(world.layer, world.test[:50], 5)) > 0.99


@pytest.mark.parametrize("name", ["l2s", *RIVALS])
def test_some_zero_contexts_among_the_training_ones_do_no_harm(name, world, artifacts):
    contexts = world.contexts.copy()
    contexts[::50] = 0
    method = Registry().resolve("method", name)(**EXACT[name])
    method.fit(world.layer, contexts, world.targets, artifacts)
    method.open(world.layer, artifacts)
    ids = np.stack([method.topk(context, 1).ids for context in world.test])
    assert precision(ids, brute_force(world.layer, world.test, 1)) > 0.99


@pytest.mark.parametrize("name", ALL)
def test_float16_weights_and_a_missing_bias_become_float32_and_zeros(name, world, artifacts):
    half = OutputLayer(world.layer.weight.astype(np.float16), None)
    target = Registry().resolve("method", name)
    method = target(**EXACT[name])
    method.fit(half, world.contexts.astype(np.float16), world.targets, artifacts)
    method.open(half, artifacts)
    same = OutputLayer(world.layer.weight.astype(np.float16).astype(np.float32), np.zeros(500, np.float32))
    ids = np.stack([method.topk(context, 1).ids for context in world.test])
    assert precision(ids, brute_force(same, world.test, 1)) > 0.99
