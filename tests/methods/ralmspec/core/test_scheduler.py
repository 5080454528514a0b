"""OS3's formulas, its decisions, and what they are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.ralmspec.core.scheduler import (
    BACK,
    CREDIT,
    FEW,
    FLOOR,
    GRID,
    OLD,
    OS3,
    RISK,
    STALE,
    Decision,
    Fixed,
    expected_matches,
    pipelined,
)

seconds = st.floats(1e-3, 10)


def os3(step: float, search: float, gamma: float = 1.0, **options) -> OS3:
    """After many requests; guesses take nothing."""
    strides = OS3(**{"asynchronous": False, "redo": False} | options)
    for _ in range(20):
        strides.took("step", step)
        strides.took("search", search)
    right = round(100 * gamma)
    for _ in range(2):
        for _ in range(20):  # spread evenly
            strides.guessed(right // 20, 5 - right // 20)
    return strides


def verified(strides: OS3, s: int, seconds: float) -> None:
    """As many verifications in this thread as count."""
    for _ in range(FEW):
        strides.verified(s, seconds, False)


@given(a=seconds, b=seconds, gamma=st.sampled_from([0.2, 0.4, 0.6, 0.8, 1.0]))
def test_the_stride_is_the_best_of_the_grid(a, b, gamma):
    strides = os3(a, b, gamma)
    strides.credit[False] = 1e9  # no bound by what a round risks
    verified(strides, 1, b)
    likely = min(strides.gamma, 0.98)

    def rate(s):
        return sum(likely**i for i in range(s)) / (s * a + b)

    chosen = strides.next(1 << 30)
    best = max(GRID[1:], key=rate)
    sums = sum(strides.gamma**i for i in range(best))
    assert chosen.s == best or sums / (best * a + b) <= 1.041 / (a + b)


def test_expected_matches_and_overlapping_rounds_are_sums_and_cases():
    assert expected_matches(0.5, 3) == pytest.approx(1 + 0.5 + 0.25)
    assert expected_matches(1.0, 4) == 4
    assert pipelined(1, 10, 1.0, 3) == 10 and pipelined(4, 10, 1.0, 3) == 12
    assert pipelined(1, 0.2, 0.0, 3) == 4


def test_nothing_is_speculated_before_a_search_is_known_or_where_searches_are_free():
    assert OS3(asynchronous=True, redo=True).next(100) == Decision(0)
    assert os3(1.0, 0.001).next(100) == Decision(0)
    assert os3(1.0, 1.0).next(100).s == 2  # the first round is a short one


def test_the_papers_bound_of_gamma_keeps_strides_short():
    chosen = []
    for gamma_max in (0.6, 0.98):
        strides = os3(0.1, 5.0, gamma_max=gamma_max)
        verified(strides, 2, 5.0)
        chosen.append(strides.next(1000).s)
    assert chosen[0] < 10 < chosen[1]


def test_the_faster_of_both_kinds_of_round_is_taken():
    for worker, expected in ((0.3, True), (1.5, False)):
        strides = os3(0.1, 0.3, asynchronous=True)
        for s in (1, 2, 4):
            strides.verified(s, worker, True)
            strides.verified(s, 0.3, False)
        assert strides.next(64).asynchronous is expected


def test_a_batch_that_costs_as_much_as_single_searches_ends_speculation():
    strides = os3(1.0, 3.0, redo=True)
    verified(strides, 2, 6.0)
    assert strides.verification(False) == pytest.approx((0.0, 3.0))
    assert strides.next(64) == Decision(0)
    for _ in range(STALE):  # then the measurement is out of date
        strides.asks()
    assert strides.next(64).s == 2


def test_a_first_verification_that_is_slow_by_accident_does_not_end_speculation():
    strides = os3(1.0, 3.0)
    strides.verified(2, 30.0, False)
    assert strides.verification(False) == (3.0, 0.0) and strides.next(64).s == 2
    verified(strides, 2, 3.0)
    assert strides.next(64).s > 2


def test_a_longer_batch_never_costs_less():
    strides = os3(1.0, 8.0)
    verified(strides, 6, 4.0)
    assert strides.verification(False) == (6.0, 0.0)


def test_what_is_left_is_shared_out_evenly():
    strides = os3(1.0, 20.0)
    verified(strides, 2, 20.0)
    strides.credit[False] = 3 * CREDIT
    best = strides.next(1000).s
    assert [strides.next(left).s for left in (1, 2, 2 * best, best + 2)] == [0, 2, best, best // 2 + 1]


def test_what_is_lost_comes_back_slowly_and_no_more_than_that():
    strides = os3(1.0, 3.0)
    strides.settled(1000.0, 0.0, 0, 0, False)
    waited = 0
    while strides.next(64).s == 0:
        strides.asks()
        waited += 1
    needed = (2 * 1.0 + 3.0 - (1.0 + 3.0)) / (RISK * (1.0 + 3.0))  # for a round of two
    assert waited * BACK == pytest.approx(needed - FLOOR, rel=0.02)
    for _ in range(round(2 * CREDIT / BACK)):
        strides.asks()
    assert strides.credit[False] == CREDIT
    for _ in range(10):
        strides.settled(0.0, 4.0, 0, 4, False)
    assert strides.credit[False] == 3 * CREDIT


@pytest.mark.parametrize("redo", [False, True])
def test_a_full_credit_allows_a_round_of_two_wherever_that_can_gain(redo):
    for search in (0.2, 0.25, 1.0, 10.0):
        assert os3(1.0, search, redo=redo).next(64).s >= 2


def test_a_round_may_lose_a_share_of_the_credit():
    strides = os3(1.0, 3.0)
    verified(strides, 2, 3.0)
    strides.credit[False] = 1.0
    s = strides.next(1000).s
    assert s >= 2 and s * 1.0 + 3.0 - (1.0 + 3.0) <= RISK * (1.0 + 3.0)


def test_a_slow_accident_ends_nothing():
    strides = os3(1.0, 6.0)
    strides.verified(2, 180.0, False)
    strides.took("guess", 1000.0)
    waited = 0
    while strides.next(64).s == 0 and waited < 2 * OLD:
        if asked := strides.asks():
            strides.took("guess", 0.01)
            strides.guessed(1, 0)
        strides.took("asked" if asked else "search", 6.0)
        waited += 1
    assert waited <= OLD


def test_guesses_are_asked_for_rarely_where_they_are_dear():
    asked = []
    for guess in (0.001, 1.0):
        strides = os3(1.0, 1.0)
        strides.took("guess", guess)
        asked.append(sum(strides.asks() for _ in range(300)))
    assert asked[0] > 200 and asked[1] == 1


def test_a_guess_costs_what_it_costs_the_next_search_each_time():
    asked = []
    for searches in ((1.0, 9.0), (9.0, 9.0)):  # after a guess: an accident, and a guess that the search suffers from
        strides = os3(1.0, 1.0)
        strides.took("guess", 0.001)
        for seconds in searches:
            strides.took("asked", seconds)
        asked.append(sum(strides.asks() for _ in range(300)))
    assert asked[0] > 200 and asked[1] == 0


def test_a_search_is_measured_again_in_the_long_run():
    strides = os3(1.0, 3.0)
    strides.settled(1.0, 0.0, 0, OLD, False)
    assert strides.next(64) == Decision(0)
    strides.took("asked", 9.0)
    assert strides.next(64) == Decision(0)
    strides.took("search", 3.0)
    assert strides.next(64).s == 2


def test_a_fixed_stride_hears_nothing():
    strides = Fixed(3, asynchronous=True)
    strides.verified(3, 1.0, False)
    strides.took("step", 1.0)
    assert strides.next(64) == Decision(3, asynchronous=True) and not strides.asks()
