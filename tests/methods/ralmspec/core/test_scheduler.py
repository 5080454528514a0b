"""OS3 against brute force over the paper's formulas, its decisions and its estimates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.ralmspec.core.estimates import Estimates
from methods.ralmspec.core.scheduler import OS3, Decision, Fixed, best_stride, expected_matches, latency

seconds = st.floats(1e-5, 10)


def os3(**options) -> OS3:
    return OS3(Estimates(), **{"asynchronous": False, "redo": True} | options)


def sequential(strides: OS3, search_s: float) -> None:
    """A step without speculation, as it goes on in a request; guesses take little and are right."""
    asked = strides.asks()
    if asked:
        strides.guessed(0.01)
    strides.searched(search_s, True if asked else None, undisturbed=not asked)


@given(a=seconds, b=seconds, gamma=st.floats(0, 1), asynchronous=st.booleans())
def test_the_stride_is_the_best_of_all(a, b, gamma, asynchronous):
    def rate(s):
        matched = sum(gamma**i for i in range(s))
        together = s * a + b
        hidden = (s - 1) * a + max(a, b)
        return matched / (gamma**s * hidden + (1 - gamma**s) * together if asynchronous else together)

    best = best_stride(a, b, gamma, asynchronous)
    assert rate(best) >= max(rate(s) for s in range(1, 65)) * (1 - 1e-12)


def test_expected_matches_and_latency_are_the_papers():
    assert expected_matches(0.5, 3) == pytest.approx(1 + 0.5 + 0.25)
    assert expected_matches(1.0, 4) == 4
    assert latency(1, 10, 0.9, 3, False) == 13
    assert latency(1, 10, 1.0, 3, True) == 12
    assert latency(3, 1, 1.0, 3, True) == 9


def test_the_stride_heeds_what_each_query_of_a_batch_costs():
    assert best_stride(1, 5, 0.9, slope=4) < best_stride(1, 5, 0.9)
    assert best_stride(1, 5, 0.9, True, slope=4) < best_stride(1, 5, 0.9, True)


def test_it_starts_at_one_and_grows_with_success():
    strides = os3(gamma_max=0.9)
    strides.searched(1.0, None)
    assert strides.next() == Decision(1)
    for _ in range(2):
        strides.searched(1.0, None)
    chosen = []
    for _ in range(12):
        s = strides.next().s
        chosen.append(s)
        for _ in range(s):
            strides.stepped(0.05, overlapped=False)
        strides.verified(s, s, 1.0, asynchronous=False)
        strides.settled(s * 0.05 + 1.0, s * 0.05, s)
    assert chosen[0] == 1 and chosen[-1] == best_stride(0.05, 1.0, 0.9)


def test_gamma_is_matches_over_matches_and_mismatches_of_the_window():
    strides = os3(redo=False, window=2, gamma_max=0.95)
    assert strides.gamma == 0.95
    strides.verified(3, 0, 1.0, False)
    assert strides.gamma == 0.0
    strides.verified(4, 4, 1.0, False)
    strides.verified(5, 2, 1.0, False)
    assert strides.gamma == pytest.approx(6 / 7)
    strides.verified(5, 5, 1.0, False)
    strides.verified(5, 5, 1.0, False)
    assert strides.gamma == 0.95


def test_it_gives_up_where_speculation_cannot_pay_and_tries_again_when_it_can():
    strides = os3(gamma_max=0.9)
    strides.searched(0.001, None)
    strides.stepped(1.0, overlapped=False)
    assert strides.next().s == 0  # a search costs next to nothing
    assert not strides.asks()
    for _ in range(20):
        strides.searched(50.0, True)
    assert strides.next().s > 3 and strides.asks()
    strides.settled(200.0, 40.0, 0)  # the credit is spent
    assert strides.next().s == 0
    for _ in range(600):
        sequential(strides, 50.0)
    assert strides.next().s > 3  # and refilled


def test_the_faster_of_synchronous_and_asynchronous_rounds_is_taken():
    for overlapped, asynchronous in ((1.0, False), (0.3, True)):
        strides = os3(asynchronous=True, gamma_max=0.9)
        for _ in range(3):
            strides.searched(0.3, True)
        strides.stepped(0.1, overlapped=False)
        for s in (1, 2, 4):
            strides.verified(s, s, overlapped, asynchronous=True)
            strides.verified(s, s, 0.3, asynchronous=False)
        assert strides.next().asynchronous is asynchronous


def test_one_slow_step_beside_the_worker_does_not_tell_but_many_do():
    strides = os3(asynchronous=True, redo=False, gamma_max=0.9)
    for _ in range(3):
        strides.searched(1.0, True)
    strides.stepped(1.0, overlapped=False)
    for s in (2, 4):
        strides.verified(s, s, 1.0 * s, asynchronous=False)  # batches gain nothing
    strides.verified(1, 1, 1.0, asynchronous=True)
    strides.settled(1.0, 0.0, 0)  # no credit for what does not pay
    chosen = []
    for _ in range(8):
        strides.stepped(3.0, overlapped=True)
        chosen.append(strides.next().asynchronous)
    assert chosen == [True] * 3 + [False] * 5


def test_what_is_left_is_shared_out_evenly():
    strides = os3(gamma_max=0.95)
    for _ in range(3):
        strides.searched(20.0, True)
    strides.stepped(1.0, overlapped=False)
    strides.estimates.credit = 10.0
    for _ in range(20):
        strides.verified(19, 19, 20.0, asynchronous=False)
    best = best_stride(1.0, 20.0, 0.95)
    assert {left: strides.next(left).s for left in (1, 2, best + 2, 2 * best, 2 * best + 2)} == {
        1: 0, 2: 2, best + 2: best + 2, 2 * best: best, 2 * best + 2: best + 1,
    }  # fmt: skip


def test_a_single_search_is_known_from_those_that_sequential_retrieval_would_make():
    known = Estimates()
    known.searched(9.0, undisturbed=False)
    assert known.single == 9.0 and known.unsure and known.disturbance == 0
    for seconds in (2.0, 3.0, 4.0):
        known.searched(seconds, undisturbed=True)
        known.searched(9.0, undisturbed=False)
        known.searched(5.0, undisturbed=False, asked=True)
    assert known.single == 3.0 and not known.unsure and known.disturbance == 2.0


def test_a_search_is_measured_again_when_that_costs_next_to_nothing():
    def until(seconds: float) -> int:
        """Steps until there is one without speculation."""
        strides = os3(gamma_max=0.9)
        for _ in range(3):
            strides.searched(seconds, True)
        strides.stepped(1.0, overlapped=False)
        strides.estimates.credit = 10.0
        for steps in range(0, 20000, 4):
            if strides.next().s == 0:
                return steps
            strides.verified(4, 4, seconds, asynchronous=False)
            strides.settled(0.0, 0.0, 4)
        return 20000

    assert 100 < until(2.0) < until(4.0) < until(16.0) < 20000


def test_a_fixed_stride_hears_nothing():
    strides = Fixed(3, asynchronous=True)
    strides.verified(3, 0, 1.0, False)
    strides.stepped(1.0, False)
    assert strides.next() == Decision(3, asynchronous=True)


def test_what_a_verification_costs_for_each_query_is_learnt_and_kept():
    known = Estimates()
    known.searched(5.0 + 0.5, undisturbed=True)
    assert known.verification(False) == pytest.approx((5.5, 0.0)) == known.verification(True)
    for s in (2, 6, 4, *[4] * 50):
        known.verified(s, 5.0 + 0.5 * s, asynchronous=False)
    assert known.verification(False) == pytest.approx((5.0, 0.5))
    flat = Estimates()
    for s in (2, 6):
        flat.verified(s, 10.0 - s, asynchronous=False)  # noise: a longer batch cannot cost less
    assert flat.verification(False) == pytest.approx((6.0, 0.0))


def test_a_hiccup_does_not_end_speculation():
    """A verification thirty times as slow as it should be, the first of its stride."""
    strides = os3(gamma_max=0.9)
    for _ in range(3):
        strides.searched(6.0, None)
    strides.stepped(1.0, overlapped=False)
    strides.verified(3, 3, 180.0, asynchronous=False)
    strides.settled(183.0, 3.0, 3)
    slow = 0
    while (s := strides.next().s) == 0 and slow < 2000:
        sequential(strides, 6.0)
        slow += 1
    assert s >= 2 and slow < 600


def test_a_slow_guess_does_not_end_speculation():
    """The first guess a thousand times as slow as it should be: with such there is nothing to win."""
    strides = os3(gamma_max=0.9)
    strides.searched(1.0, None)
    strides.stepped(1.0, overlapped=False)
    strides.guessed(10.0)
    slow = 0
    while strides.next().s == 0 and slow < 2000:
        sequential(strides, 1.0)
        slow += 1
    assert 100 < slow < 600


def test_a_full_credit_is_tried_against_the_estimates():
    strides = os3()
    for _ in range(3):
        strides.searched(1.0, None)
    strides.stepped(1.0, overlapped=False)
    strides.estimates.gamma = 0.0
    assert strides.next().s == 2
    strides.settled(3.0, 0.0, 0)
    assert strides.next().s == 0


def test_a_worker_that_wins_is_soon_tried_again_whatever_goes_on_between():
    known = Estimates()
    known.patience = 64
    for _ in range(5):  # requests
        known.searched(1.0, undisturbed=False)
        known.verified(4, 1.0, asynchronous=True)
        known.verified(4, 1.0, asynchronous=True)
    assert known.patience == 8


def test_in_the_long_run_steps_during_verifications_take_what_they_take():
    known = Estimates()
    known.stepped(1.0, overlapped=False)
    for _ in range(200):
        known.stepped(2.0, overlapped=True)
    assert known.step(True) == pytest.approx(2.0, rel=0.02)


def test_nothing_is_guessed_twice_before_a_step_is_known():
    strides = os3(asynchronous=True)
    assert strides.next() == Decision(1, asynchronous=True)
    strides.verified(1, 0, 1.0, asynchronous=True)
    assert strides.next() == Decision(0)


def test_a_worker_that_keeps_losing_is_tried_ever_less_often():
    known, trials = Estimates(), []
    known.verified(1, 9.0, True)
    for number in range(200):
        known.verified(4, 1.0, False)
        if not known.batches[True]:
            trials.append(number + 1)
            known.verified(4, 9.0, True)
    assert trials == [8, 24, 56, 120]
