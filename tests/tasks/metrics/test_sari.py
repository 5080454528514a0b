"""SARI on cases worked by hand."""

from __future__ import annotations

import pytest

from harness.common.errors import RequestError
from tasks.metrics.sari import sari, sentence


def test_a_sentence_rewritten_as_the_reference():
    # order 1: keep a (1), delete b (1), add c (1); order 2: nothing to keep (0), delete ab (1), add ac (1); 3, 4: none
    assert sentence(["a", "b"], ["a", "c"], [["a", "c"]]) == pytest.approx((0.25, 0.5, 0.5))


def test_a_copy_is_judged_by_how_many_references_keep_each_n_gram():
    # order 1: precision (1 + 1/2) / 2, recall 1; order 2: precision 1/2, recall 1; nothing is deleted or added
    keep = (2 * 0.75 / 1.75 + 2 * 0.5 / 1.5) / 4
    assert sentence(["a", "b"], ["a", "b"], [["a", "b"], ["a"]]) == pytest.approx((keep, 0, 0))


def test_deleting_counts_by_precision_only():
    # order 1: b and c go, the references keep c; order 2: ab and bc go, rightly; order 3: abc goes, rightly
    delete = (1 / 2 + 1 + 1) / 4
    assert sentence(["a", "b", "c"], ["a"], [["a", "c"]])[1] == pytest.approx(delete)


def test_adding_what_no_reference_has_earns_nothing():
    assert sentence(["a"], ["a", "x"], [["a"]])[2] == 0


def test_scores_are_means_over_sentences_in_lower_case():
    result = sari([["A", "b"], ["A", "b"]], [["a", "C"], ["a", "b"]], [[["a", "c"]], [["a", "b"], ["a"]]])
    copy = (2 * 0.75 / 1.75 + 2 * 0.5 / 1.5) / 4
    assert result["sari_keep"].value == pytest.approx(50 * (0.25 + copy))
    assert result["sari"].value == pytest.approx(50 * ((0.25 + 0.5 + 0.5) / 3 + copy / 3))
    assert result["sari"].low is None  # two sentences give no interval


def test_unequal_numbers_and_missing_references_are_refused():
    with pytest.raises(RequestError, match="1 hypotheses"):
        sari([["a"], ["b"]], [["a"]], [[["a"]]])
    with pytest.raises(RequestError, match="at least one reference"):
        sari([["a"]], [["a"]], [[]])
