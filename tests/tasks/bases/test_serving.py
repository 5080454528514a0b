"""What is drawn of prompts, and what is said of served requests."""

from __future__ import annotations

import numpy as np
import pytest

from harness.contracts import Decoded, Trace
from tasks.bases.serving import drawn, serving_metrics


def test_items_are_drawn_by_seed():
    items = list(range(50))
    assert drawn(items, 5, 1) == drawn(items, 5, 1) != drawn(items, 5, 2)
    assert sorted(drawn(items, 99, 1)) == items
    assert np.unique(drawn(items, 20, 3)).size == 20


def test_what_is_for_tuning_is_never_drawn_from_a_large_set():
    order = np.random.default_rng(4).permutation(300).tolist()
    assert drawn(range(300), 20, 4) == order[100:120]
    assert sorted(drawn(range(300), 999, 4)) == sorted(order[100:])
    assert drawn(range(299), 20, 4) == np.random.default_rng(4).permutation(299)[:20].tolist()


def answer(matched, verified, seconds, strides=(3.0, 0.0), sequential=1.0, by_time=False):
    counts = {
        "searches": 2.0, "matched": matched, "verified": verified, "rollbacks": 1.0, "sequential": sequential,
        "speculated": sum(strides),
    }  # fmt: skip
    placed = {"timing_counters": seconds | counts} if by_time else {"timing_counters": seconds, "counters": counts}
    return Decoded([1, 2], Trace(series={"strides": list(strides)}, **placed))


@pytest.mark.parametrize("by_time", [False, True])
def test_metrics_of_answers(by_time):
    metrics = serving_metrics([
        answer(3.0, 4.0, {"generation_s": 90.0, "retrieval_s": 90.0}, by_time=by_time),
        answer(3.0, 4.0, {"generation_s": 1.0, "retrieval_s": 3.0}, by_time=by_time),
        answer(0.0, 1.0, {"generation_s": 2.0, "retrieval_s": 4.0}, (2.0,), 0.0, by_time),
    ])  # fmt: skip
    assert metrics["generation_s"].value == 1.5 and metrics["retrieval_s"].value == 3.5  # the first one warms up
    assert metrics["retrieval_share"].value == pytest.approx(0.7)
    assert metrics["speculation_accuracy"].value == pytest.approx(6 / 9)
    assert metrics["mean_stride"].value == pytest.approx(8 / 5)
    assert metrics["sequential_share"].value == pytest.approx(2 / 10)
    assert metrics["retrieval_share"].low is None
    never = serving_metrics([answer(0.0, 0.0, {}, (0.0, 0.0), 2.0)])
    assert never["sequential_share"].value == 1 and never["mean_stride"].value == 0
    for nothing in (never, serving_metrics([Decoded([1])])):
        assert "speculation_accuracy" not in nothing


def test_what_is_right_without_retrieval_is_counted_over_tokens():
    counted = [Decoded([1] * n, Trace(counters={"unaided": u})) for n, u in ((4, 3.0), (16, 1.0))]
    assert serving_metrics(counted)["right_without_retrieval"].value == pytest.approx(4 / 20)
    assert serving_metrics([Decoded([1, 2], Trace(counters={"unaided": 0.0}))])["right_without_retrieval"].value == 0
    assert "right_without_retrieval" not in serving_metrics([answer(3.0, 4.0, {})])


def test_ratios_have_intervals_over_requests():
    rng = np.random.default_rng(0)
    shares = rng.uniform(0.6, 0.8, 40)
    answers = [answer(3.0, 4.0, {"generation_s": 1 - x, "retrieval_s": x}) for x in shares]
    share = serving_metrics(answers)["retrieval_share"]
    assert share.value == pytest.approx(shares[1:].mean())
    error = 1.96 * shares[1:].std() / 39**0.5
    assert share.low == pytest.approx(share.value - error, abs=0.3 * error)
    assert share.high == pytest.approx(share.value + error, abs=0.3 * error)
    equal = serving_metrics(answers)
    assert (equal["speculation_accuracy"].low, equal["mean_stride"].high) == (0.75, 1.5)


def test_a_ratio_that_a_resample_may_not_have_has_no_interval():
    rare = [answer(0.0, 0.0, {"generation_s": 1.0}, (0.0,)) for _ in range(11)]
    accuracy = serving_metrics([*rare, answer(1.0, 2.0, {})])["speculation_accuracy"]
    assert (accuracy.value, accuracy.low, accuracy.high) == (0.5, None, None)
