"""OS3 against brute force over the paper's formulas, and its estimates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.ralmspec.scheduler import OS3, Fixed, best_stride, expected_matches, latency

seconds = st.floats(1e-5, 10)


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


def test_it_starts_at_one_and_grows_with_success():
    strides = OS3(asynchronous=False, redo=True, gamma_max=0.9)
    strides.searched(1.0, None)
    assert strides.next() == 1
    chosen = []
    for _ in range(6):
        s = strides.next()
        chosen.append(s)
        for _ in range(s):
            strides.stepped(0.05)
        strides.verified(s, s, 1.0)
    assert chosen[0] == 1 and chosen[-1] == best_stride(0.05, 1.0, 0.9)


def test_gamma_is_matches_over_matches_and_mismatches_of_the_window():
    strides = OS3(asynchronous=False, redo=False, window=2, gamma_max=0.95)
    assert strides.gamma == 0.95
    strides.verified(3, 0, 1.0)
    assert strides.gamma == 0.0
    strides.verified(4, 4, 1.0)
    strides.verified(5, 2, 1.0)
    assert strides.gamma == pytest.approx(6 / 7)
    strides.verified(5, 5, 1.0)
    strides.verified(5, 5, 1.0)
    assert strides.gamma == 0.95


def test_it_gives_up_where_speculation_cannot_pay_and_tries_again_when_it_can():
    strides = OS3(asynchronous=False, redo=True, gamma_max=0.9)
    strides.searched(0.001, None)
    strides.stepped(1.0)
    assert strides.next() == 0  # a search costs next to nothing
    for _ in range(20):
        strides.searched(50.0, True)
    assert strides.next() == 1
    strides.verified(1, 1, 50.0)
    assert strides.next() > 3
    for _ in range(20):
        strides.searched(50.0, False)  # the cache is never right
    assert strides.next() == 0


def test_a_fixed_stride_hears_nothing():
    strides = Fixed(3)
    strides.verified(3, 0, 1.0)
    strides.stepped(1.0)
    assert strides.next() == 3


def test_what_a_verification_costs_for_each_query_is_charged_to_the_step():
    strides = OS3(asynchronous=False, redo=False)
    strides.stepped(1.0)
    strides.searched(5.0 + 0.5, None)
    for s in (2, 6, 4):
        strides.verified(s, s, 5.0 + 0.5 * s)
    assert strides.costs() == pytest.approx((1.5, 5.0))
    flat = OS3(asynchronous=False, redo=False)
    flat.stepped(1.0)
    for s in (2, 6):
        flat.verified(s, s, 10.0 - s)  # noise: a longer batch cannot cost less
    assert flat.costs() == pytest.approx((1.0, 6.0))
