"""Fidelity and counters of each contract, by cases worked out by hand."""

import math

import numpy as np
import pytest

from harness.contracts import Decoded, TokenScores, TopK, Trace
from harness.drivers import DRIVERS
from harness.errors import RequestError
from harness.settings import SoftmaxSetting


def essence(contract, answers):
    return DRIVERS[contract].essence(answers)


def topk(*ids):
    return TopK(np.asarray(ids), np.zeros(len(ids), np.float32), 0.0)


def test_precision_counts_the_exact_words_found_in_any_order():
    exact = essence("softmax-screening", [topk(1, 2, 3), topk(4, 5, 6)])
    found = essence("softmax-screening", [topk(2, 1, 9), topk(4, 7, 8)])
    fidelity = DRIVERS["softmax-screening"].fidelity(found, exact)
    assert fidelity["precision_at_1"].value == 0.5  # only the second has the right first word
    assert fidelity["precision_at_3"].value == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert fidelity["precision_at_3"].low is None  # two contexts are too few for an interval


def test_precision_of_many_contexts_has_an_interval_around_it():
    exact = essence("softmax-screening", [topk(1, 2)] * 40)
    found = essence("softmax-screening", [topk(1, 2)] * 30 + [topk(3, 4)] * 10)
    precision = DRIVERS["softmax-screening"].fidelity(found, exact)["precision_at_1"]
    assert precision.value == 0.75
    assert 0.5 < precision.low < 0.75 < precision.high < 1.0


def test_exact_match_is_the_share_of_outputs_equal_token_for_token():
    ours = essence("sequence-decoding", [Decoded([1, 2]), Decoded([3]), Decoded([]), Decoded([4, 5])])
    theirs = essence("sequence-decoding", [Decoded([1, 2]), Decoded([3, 4]), Decoded([]), Decoded([5, 4])])
    assert DRIVERS["sequence-decoding"].fidelity(ours, theirs)["exact_match"].value == 0.5


def test_a_token_that_moved_to_the_next_output_is_no_match():
    ours = essence("retrieval-generation", [Decoded([1]), Decoded([2, 3])])
    theirs = essence("retrieval-generation", [Decoded([1, 2]), Decoded([3])])
    assert DRIVERS["retrieval-generation"].fidelity(ours, theirs)["exact_match"].value == 0.0


def test_perplexity_difference_is_in_points_and_negative_when_the_method_is_better():
    scores = [[TokenScores(np.log([p, p])), TokenScores(np.log([p]))] for p in (1 / 4, 1 / 10)]
    ours, theirs = (essence("token-scoring", one) for one in scores)
    difference = DRIVERS["token-scoring"].fidelity(ours, theirs)["perplexity_difference"]
    assert difference.value == pytest.approx(4 - 10)
    assert difference.low is None


def test_a_constant_difference_on_many_tokens_has_a_narrow_paired_interval():
    theirs = {"log_probs": np.random.default_rng(0).normal(-3, 1, 20_000)}
    ours = {"log_probs": theirs["log_probs"] + math.log(1.25)}
    difference = DRIVERS["token-scoring"].fidelity(ours, theirs)["perplexity_difference"]
    perplexity = math.exp(-theirs["log_probs"].mean())
    assert difference.value == pytest.approx(-0.2 * perplexity)
    assert difference.low < difference.value < difference.high
    assert difference.high - difference.low < 0.05 * abs(difference.value)


def test_counters_add_up_over_items():
    decoded = [Decoded([1, 2, 3], Trace(1, counters={"searches": 2})), Decoded([4], Trace(1, counters={"searches": 1}))]
    totals = DRIVERS["sequence-decoding"].counters(decoded)
    assert totals == {"searches": 3, "tokens": 4, "iterations": 2, "accepted_tokens": 2}
    scores = [TokenScores(np.zeros(8), {"tokens": 8, "searches": 2}), TokenScores(np.zeros(2), {"tokens": 2})]
    assert DRIVERS["token-scoring"].counters(scores)["foss"] == pytest.approx(0.8)


def test_a_method_that_skips_a_token_is_refused():
    class Short:
        def score(self, model, streams, phases, shared=None):
            return [TokenScores(np.zeros(3))]

    setting = type("Setting", (), {"model": None})()
    with pytest.raises(RequestError, match="Short scored 3 of 4 tokens"):
        DRIVERS["token-scoring"].answer(Short(), setting, [np.arange(5)], None)


class Asked:
    """A softmax method that remembers how it was asked and answers 0, 1, ..."""

    def __init__(self):
        self.calls = []

    def topk(self, context, k):
        self.calls.append(("topk", 1, k))
        return topk(*range(k))

    def topk_many(self, contexts, k):
        self.calls.append(("topk_many", len(contexts), k))
        ids = np.tile(np.arange(k), (len(contexts), 1))
        return TopK(ids, ids.astype(np.float32), np.arange(len(contexts), dtype=np.float32))

    def log_prob(self, context, target):
        self.calls.append(("log_prob", 1, target))
        return -1.0


def softmax_setting(**known):
    contexts = np.zeros((5, 2), np.float32)
    given = {"layer": None, "contexts": contexts, "targets": np.zeros(5, np.int64), "evaluation": contexts}
    given |= {"evaluation_targets": np.zeros(5, np.int64), "timed": contexts, "sample": 5, "hashes": {}}
    return SoftmaxSetting(**(given | known))


def test_contexts_are_asked_in_batches_in_both_passes_where_the_setting_says_so():
    method, setting, driver = Asked(), softmax_setting(batch=2, k=3), DRIVERS["softmax-screening"]
    answers = driver.answer(method, setting, setting.evaluation, None)
    assert [a.ids.tolist() for a in answers] == [[0, 1, 2]] * 5
    assert [a.log_normalizer for a in answers] == [0, 1, 0, 1, 0]
    driver.timed(method, setting, None)
    assert method.calls == [("topk_many", 2, 3), ("topk_many", 2, 3), ("topk_many", 1, 3)] * 2


def test_the_timed_pass_asks_for_probabilities_where_the_setting_names_words():
    method, setting = Asked(), softmax_setting(timed_targets=np.arange(5))
    assert DRIVERS["softmax-screening"].timed(method, setting, None) == [-1.0] * 5
    assert method.calls == [("log_prob", 1, word) for word in range(5)]


def test_costs_are_those_of_the_call_that_is_timed():
    class Counting:
        def counters(self):
            return {"multiply_adds": 10.0, "extra_bytes": 4.0, "log_prob_multiply_adds": 3.0}

    costs = DRIVERS["softmax-screening"].costs
    assert costs(Counting(), softmax_setting()) == {"multiply_adds": 10, "extra_bytes": 4}
    probability = softmax_setting(timed_targets=np.arange(5))
    assert costs(Counting(), probability) == {"multiply_adds": 3, "extra_bytes": 4}


def test_long_series_are_thinned_to_means_of_equal_stretches():
    scores = [TokenScores(np.zeros(1), series={"lambda": np.arange(2000.0)})] * 2
    series = DRIVERS["token-scoring"].series(scores)["lambda"]
    assert len(series) == 1000 and series[:2] == [1.5, 5.5]
    decoded = [Decoded([1, 2], Trace(1, series={"strides": [1.0, 3.0]})), Decoded([4], Trace(1))]
    assert DRIVERS["sequence-decoding"].series(decoded) == {
        "tokens": [2, 1], "iterations": [1, 1], "strides": [1, 3],
    }  # fmt: skip


class Undecided:
    """Names the gap of each pair of outputs by the source."""

    def gap(self, model, source, output, expected):
        return source[0]


def test_differing_outputs_are_counted_and_near_ties_told_from_errors():
    ours = essence("sequence-decoding", [Decoded([1, 2]), Decoded([3]), Decoded([4])])
    theirs = essence("sequence-decoding", [Decoded([1, 2]), Decoded([5]), Decoded([6])])
    setting = type("Setting", (), {"model": None, "evaluation": [[0.5], [5e-5], [0.2]]})()
    driver = DRIVERS["sequence-decoding"]
    found = driver.differences(Undecided(), setting, ours, theirs)
    assert {name: m.value for name, m in found.items()} == {
        "differing": 2, "widest_gap": 0.2, "wide_differences": 1,
    }  # fmt: skip
    assert found["wide_differences"].low == found["wide_differences"].high == 1

    class Silent:
        def gap(self, *given):
            return None

    assert driver.differences(Silent(), setting, ours, theirs) == {}
