"""A claim finds its cell, or its point of a curve, by what ran."""

from dataclasses import replace

import pytest

from harness.common.errors import RequestError
from harness.plan import matching
from harness.plan.schema import CellOf
from tests.harness.rows import new_row, processes
from tests.harness.show.test_claims import ALIKE, cell, judge, perplexities


def test_a_claim_finds_its_cell_by_what_ran_whatever_its_labels_are():
    cells = [
        cell(("A", "1"), "iad", baseline="beam"), cell(("A", "2"), "iad", baseline="greedy"),
        cell(("B", "1"), "l2s", {"budget": 5.0}, threads=1), cell(("B", "2"), "l2s", {"budget": 5.0}, threads=2),
        cell(("C", ""), "l2s", {"budget": 7.0}, threads=2),
    ]  # fmt: skip
    for wanted, name in (
        ({"method": "iad", "speed_baseline": "greedy"}, "A / 2"),
        ({"method": "l2s", "params": {"budget": 7}}, "C"),
        ({"method": "l2s", "params": {"budget": 5}, "threads": 2, "task": {"size": [1, 2]}}, "B / 2"),
    ):
        assert [found.name for found in matching.find(CellOf(**wanted), cells)] == [name]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"method": "l2s"}, r"l2s names 2 cells \(A; B\): say what tells them apart"),
        (
            {"method": "l2s", "params": {"budget": 3}},
            "no cell runs l2s .budget=3.; the nearest is A, whose budget is 5",
        ),
        ({"method": "l2s", "params": {"budjet": 7}}, "the nearest is A, which has no budjet"),
        ({"method": "l2s", "threads": 2, "params": {"budget": 7}}, "the nearest is B, whose threads are 1"),
        ({"method": "l2s", "task": {"size": [2, 2]}, "params": {"budget": 7}}, "the nearest is B, whose task.size is"),
        ({"method": "l2s", "speed_baseline": "beam", "params": {"budget": 7}}, "B, whose speed baseline is None"),
    ],
)
def test_a_claim_on_no_cell_or_on_several_names_what_is_near(wanted, words):
    cells = [cell(("A", ""), "l2s", {"budget": 5.0}, 1), cell(("B", ""), "l2s", {"budget": 7.0}, 1)]
    with pytest.raises(RequestError, match=words):
        matching.find(CellOf(**wanted), cells)


def test_a_row_of_other_parameters_under_the_same_labels_is_not_judged():
    claim = "of: {method: knnlm, params: {foss: 0}}, is: perplexity below 90"
    assert judge(claim, perplexities(80.0, 81.0)).holds
    knn, lm = perplexities(80.0, 81.0)
    verdict = judge(claim, [replace(knn, params={**knn.params, "method": {"foss": 0.5}}), lm])
    assert verdict.outcome == "not tested" and "whose foss is 0.5 instead of knnlm (foss=0)" in verdict.detail


CURVE = [cell(("R", f"tau={tau}"), "retomaton", {"tau": tau}) for tau in (16, 4, 1)]
AT = "of: {method: retomaton, at: {foss: %s}}, is: perplexity_difference at most 0"


def curve(*points):
    """Rows of `CURVE`, from (foss, perplexity difference, half its interval)."""
    return [
        new_row(
            recipe="demo", row="R", column=f"tau={tau}", method="retomaton",
            params={"method": {"tau": tau}, "task": {}}, metrics={"foss": foss, "perplexity_difference": difference},
            intervals={"perplexity_difference": [difference - half, difference + half]},
        )
        for tau, (foss, difference, half) in zip((16, 4, 1), points, strict=True)
    ]  # fmt: skip


def test_a_claim_on_a_point_of_a_curve_takes_the_line_between_the_rows_on_either_side():
    rows = curve((0.4, -1.0, 0.1), (0.8, 1.0, 0.3), (0.9, 4.0, 0.1))
    halfway = judge(AT % 0.5, rows, cells=CURVE)  # -0.5, and the interval's half 0.15
    assert halfway.outcome == "holds"
    assert halfway.detail == "perplexity difference -0.500 [-0.650, -0.350] (R / tau=16 to R / tau=4) against 0"
    assert judge(AT % 0.6, rows, cells=CURVE).outcome == "no difference shown"
    assert judge(AT % 0.8, rows, cells=CURVE).outcome == "does not hold"
    assert judge(AT % 0.85, rows[::-1], cells=CURVE[::-1]).detail.startswith("perplexity difference 2.50 [2.30, 2.70]")


def test_a_point_beyond_the_rows_or_on_an_unfinished_curve_is_not_judged():
    rows = curve((0.4, -1.0, 0.1), (0.8, 1.0, 0.3), (0.9, 4.0, 0.1))
    beyond = judge(AT % 0.95, rows, cells=CURVE)
    assert (beyond.outcome, "reach from 0.4" in beyond.detail) == ("not tested", True)
    assert judge(AT % 0.5, rows[:2], cells=CURVE).outcome == "not tested"
    assert judge(AT % 0.5, [*rows[:2], replace(rows[2], status="failed")], cells=CURVE).outcome == "not tested"
    with pytest.raises(RequestError, match="a point of a curve needs two"):
        matching.find(CellOf(method="retomaton", params={"tau": 4}, at={"foss": 0.5}), CURVE)


def test_a_point_of_a_curve_has_no_speed():
    points = curve((0.4, -1.0, 0.1), (0.8, 1.0, 0.3), (0.9, 4.0, 0.1))
    rows = [replace(one, processes=processes(2.0), fidelity=ALIKE) for one in points]
    faster = "of: {method: retomaton, at: {foss: 0.5}}, is: speedup above 1"
    assert judge(faster, rows, cells=CURVE).outcome == "not tested"
