"""The driver of softmax screening: batches, answers that cannot be, probabilities."""

import itertools
import math

import numpy as np
import pytest

from harness.common.errors import RequestError
from harness.contracts import Decoded, TopK
from harness.measure.drivers import DRIVERS
from tests.harness.measure.test_drivers import Asked, essence, softmax_setting, timed, topk


def test_contexts_are_asked_in_batches_in_both_passes_where_the_setting_says_so():
    method, setting, driver = Asked(), softmax_setting(batch=2, k=3), DRIVERS["softmax-screening"]
    answers = driver.answer(method, setting, setting.evaluation, None)
    assert [a.ids.tolist() for a in answers] == [[0, 1, 2]] * 5
    assert [a.log_normalizer for a in answers] == [0, 1, 0, 1, 0]
    assert timed("softmax-screening", method, setting)[0].ids.tolist() == [0, 1, 2]
    assert method.calls == [("topk_many", 2, 3), ("topk_many", 2, 3), ("topk_many", 1, 3)] * 2


def test_the_timed_pass_asks_for_probabilities_where_the_setting_names_words():
    method, setting = Asked(), softmax_setting(timed_targets=np.arange(5))
    assert timed("softmax-screening", method, setting) == [-1.0] * 5
    assert method.calls == [("log_prob", 1, word) for word in range(5)]


class Fixed:
    """A softmax method with this answer to every context, or with these."""

    def __init__(self, *answers):
        self.answers = itertools.cycle(answers)

    def topk(self, context, k):
        return next(self.answers)

    def topk_many(self, contexts, k):
        return next(self.answers)

    def log_prob(self, context, target):
        return next(self.answers)


def many(*rows):
    return TopK(np.asarray(rows), np.zeros(np.shape(rows), np.float32), np.full(len(rows), 9, np.float32))


@pytest.mark.parametrize("way", ["answer", "timed"])
@pytest.mark.parametrize(
    ("answers", "batch", "message"),
    [
        ([topk(0, 1)], 1, "Fixed answered 2 of 3 words asked for"),
        ([topk(0, 1, 2), topk(0, 1)], 1, "Fixed answered 2 of 3 words asked for"),
        ([topk(0, 1, 2, 3)], 1, "Fixed answered 4 of 3 words asked for"),
        ([topk(0, 1, 9)], 1, "a word outside of 0 to 8"),
        ([topk(0, -1, 2)], 1, "a word outside of 0 to 8"),
        ([TopK(np.arange(3), np.asarray([1.0, math.nan, 0.0]), 0.0)], 1, "a logit that is not finite"),
        ([TopK(np.arange(3), np.asarray([math.inf, 1.0, 0.0]), 0.0)], 1, "a logit that is not finite"),
        ([TopK(np.arange(3), np.zeros(2), 0.0)], 1, "2 logits for 3 words"),
        ([many((0, 1, 2))], 2, "Fixed answered 3 of 5 contexts"),
        ([many((0, 1), (1, 2))], 2, "Fixed answered 2 of 3 words asked for"),
        ([many((0, 1, 2), (3, 4, 9))], 5, "Fixed answered 2 of 5 contexts"),
        ([many(*[(0, 1, 9)] * 5)], 5, "a word outside of 0 to 8"),
    ],
)
def test_words_that_cannot_be_are_refused_in_both_passes(way, answers, batch, message):
    setting, driver = softmax_setting(batch=batch, k=3), DRIVERS["softmax-screening"]
    with pytest.raises(RequestError, match=message):
        if way == "answer":
            driver.answer(Fixed(*answers), setting, setting.evaluation, None)
        else:
            timed("softmax-screening", Fixed(*answers), setting)


@pytest.mark.parametrize(("value", "message"), [(math.nan, "not a number: nan"), (math.inf, "inf"), (2.0, "above 0")])
def test_a_probability_that_cannot_be_is_refused(value, message):
    setting = softmax_setting(timed_targets=np.arange(5))
    with pytest.raises(RequestError, match=f"Fixed gives a log-probability .*{message}"):
        timed("softmax-screening", Fixed(-1.0, value), setting)


def test_a_single_word_may_have_no_probability():
    setting = softmax_setting(timed_targets=np.arange(5))
    assert timed("softmax-screening", Fixed(-1.0, -math.inf), setting) == [-1.0, -math.inf, -1.0, -math.inf, -1.0]


def test_a_word_given_twice_counts_once():
    exact = essence("softmax-screening", [topk(1, 2, 3)])
    fidelity = DRIVERS["softmax-screening"].fidelity(essence("softmax-screening", [topk(1, 1, 1)]), exact)
    assert fidelity["precision_at_3"].value == pytest.approx(1 / 3)


def test_a_perfect_sample_does_not_prove_that_there_is_no_miss():
    same = essence("softmax-screening", [topk(1, 2)] * 200)
    found = DRIVERS["softmax-screening"].fidelity(same, same)
    assert found.pop("logit_error").value == found.pop("normalizer_error").value == 0
    for precision in found.values():
        assert (precision.value, precision.high) == (1.0, 1.0)
        assert precision.low == pytest.approx(0.981, abs=5e-4)
    decoded = essence("sequence-decoding", [Decoded([1])] * 200)
    match = DRIVERS["sequence-decoding"].fidelity(decoded, decoded)["exact_match"]
    assert (match.low, match.high) == (pytest.approx(0.981, abs=5e-4), 1.0)


def test_the_ratio_of_perplexities_of_given_words():
    ours, theirs = ({"log_probs": np.full(2560, value)} for value in (-1.5, -1.0))
    ratio = DRIVERS["softmax-screening"].fidelity(ours, theirs)["perplexity_ratio"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((math.exp(0.5),) * 3)


def test_a_word_without_a_probability_leaves_the_ratio_without_an_interval():
    ours, theirs = np.full(2560, -1.5), np.full(2560, -1.0)
    ours[7] = -math.inf
    ratio = DRIVERS["softmax-screening"].fidelity({"log_probs": ours}, {"log_probs": theirs})["perplexity_ratio"]
    assert (ratio.value, ratio.low, ratio.high) == (math.inf, None, None)
