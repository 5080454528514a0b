"""Verdicts by hand-computed cases; above all, what must never hold does not."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.plan.cell import Named
from harness.plan.schema import Timing
from harness.show.claims import Verdicts, told, verdicts
from tests.harness.made import cell_of, stored_of
from tests.harness.rows import new_row, with_samples

LM, KNN = ("LM", ""), ("kNN-LM", "FoSS=0")
ALIKE = {"metric": "exact_match", "is": "at least", "bound": 1.0}


def cell(labels, method, params=None, threads=None, baseline=None):
    return cell_of(
        method, Named("t", {"size": (1, 2)}), params, row=labels[0], column=labels[1],
        speed_baseline=Named(baseline) if baseline else None, timing=Timing(threads=threads),
    )  # fmt: skip


CELLS = [cell(LM, "lm"), cell(KNN, "knnlm", {"foss": 0})]


def recipe(claim: str, extra: str = "") -> str:
    return f"""
name: demo
title: a demo
paper: p
source: s
task: {{name: t}}
cells: [{{row: LM, method: lm}}]
{extra}
claims:
  - {{text: the claim, source: section 4, {claim}}}
"""


def row(labels=KNN, metrics=None, intervals=None, scale="small", **known):
    return new_row(
        recipe="demo", row=labels[0], column=labels[1], scale=scale, method="knnlm" if labels == KNN else "lm",
        params={"method": {"foss": 0} if labels == KNN else {}, "task": {"size": [1, 2]}},
        metrics={"exact_match": 1.0, **(metrics or {})}, intervals=intervals or {}, fidelity=ALIKE,
        speed_baseline={"method": "lm", "params": {}}, **known,
    )  # fmt: skip


def timed(low, high, labels=KNN, known=None, shape=(6, 4), **details):
    """A row with a speedup whose interval is [low, high]."""
    ratios = np.linspace(low, high, shape[0]).tolist()
    return with_samples(row(labels, **(known or {})), ratios, shape=shape, **details)


def judge(claim, rows, scale="small", extra="", cells=CELLS):
    (verdict,) = verdicts(stored_of(recipe(claim, extra), rows, scale=scale, cells=cells)).claims
    return verdict


BELOW_LM = "of: {method: knnlm}, is: perplexity below, than: {method: lm}"
FASTER = "of: {method: knnlm}, is: speedup above 1"


def perplexities(low, high, lm_low=90.0, lm_high=94.0):
    return [
        row(KNN, {"perplexity": (low + high) / 2}, {"perplexity": [low, high]}),
        row(LM, {"perplexity": 92.0}, {"perplexity": [lm_low, lm_high]}),
    ]


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((80.0, 89.9), "holds"),
        ((80.0, 90.0), "no difference shown"),  # touches the LM's interval
        ((85.0, 95.0), "no difference shown"),
        ((94.0, 95.0), "does not hold"),
        ((93.0, 95.0), "no difference shown"),
    ],
)
def test_a_claim_on_two_rows_needs_the_whole_intervals(interval, outcome):
    assert judge(BELOW_LM, perplexities(*interval)).outcome == outcome


@pytest.mark.parametrize(
    ("comparison", "interval", "outcome"),
    [
        ("below", (1.0, 2.0), "no difference shown"),
        ("at most", (1.0, 2.0), "holds"),
        ("at most", (1.0, 2.1), "no difference shown"),
        ("at most", (2.1, 2.2), "does not hold"),
        ("above", (2.0, 3.0), "no difference shown"),
        ("above", (2.01, 3.0), "holds"),
        ("above", (1.0, 2.0), "does not hold"),
        ("at least", (2.0, 3.0), "holds"),
        ("at least", (1.0, 1.9), "does not hold"),
    ],
)
def test_comparisons_with_a_number(comparison, interval, outcome):
    rows = [row(KNN, {"bleu": sum(interval) / 2}, {"bleu": list(interval)})]
    assert judge(f"of: {{method: knnlm}}, is: bleu {comparison} 2", rows).outcome == outcome


def test_an_exact_metric_needs_no_interval():
    rows = [row(KNN, {}, counters={"foss": 0.81})]
    assert judge("of: {method: knnlm}, is: foss at least 0.8", rows).outcome == "holds"
    assert judge("of: {method: knnlm}, is: foss at least 0.82", rows).outcome == "does not hold"


def test_a_paired_difference_decides_where_separate_intervals_cannot():
    knn, lm = perplexities(88.0, 92.0)
    assert judge(BELOW_LM, [knn, lm]).outcome == "no difference shown"

    def paired(low, high, params):
        return replace(
            knn, metrics={**knn.metrics, "perplexity_difference": -2.0},
            intervals={**knn.intervals, "perplexity_difference": [low, high]},
            fidelity_baseline={"method": "lm", "params": params},
        )  # fmt: skip

    assert judge(BELOW_LM, [paired(-2.2, -1.8, {}), lm]).outcome == "holds"
    assert judge(BELOW_LM, [paired(-2.2, 0.1, {}), lm]).outcome == "no difference shown"
    another = paired(-2.2, -1.8, {"window": 8})  # another LM than the row's
    assert judge(BELOW_LM, [another, lm]).outcome == "no difference shown"


def test_equal_outputs_have_the_same_quality_exactly_and_not_the_same_counters():
    def scored(labels, **known):
        return row(labels, {"bleu": 30.0, "differing": 0.0}, {"bleu": [28.0, 32.0]}, **known)

    lm = scored(LM, counters={"iterations": 9})
    knn = replace(scored(KNN, counters={"iterations": 5}), fidelity_baseline={"method": "lm", "params": {}})
    for comparison, outcome in (("at least", "holds"), ("at most", "holds"), ("above", "does not hold")):
        claim = f"of: {{method: knnlm}}, is: bleu {comparison}, than: {{method: lm}}"
        assert judge(claim, [knn, lm]).outcome == outcome
        other = replace(knn, metrics={**knn.metrics, "differing": 1.0})
        assert judge(claim, [other, lm]).outcome == "no difference shown"
    fewer = "of: {method: knnlm}, is: iterations below, than: {method: lm}"
    assert judge(fewer, [knn, lm]).outcome == "holds"


@pytest.mark.parametrize(
    ("made", "decision", "outcome"),
    [
        (timed(1.2, 1.5), "faster", "holds"),
        (timed(0.9, 1.5), "no difference shown", "no difference shown"),
        (timed(1.01, 1.03, noise=1.05), "no difference shown", "no difference shown"),  # within the noise floor
        (timed(0.5, 0.6), "slower", "does not hold"),
        (timed(1.2, 1.5, objections=["the environment changed"]), "no claim", "not settled"),
        (timed(1.2, 1.5, shape=(5, 40)), "no claim", "not settled"),  # without an interval
        (timed(1.2, 1.5, shape=(2, 2), known={"scale": "mini"}), "exploratory", "not settled"),
        (row(KNN, {"speedup": 1.3}, {"speedup": [1.2, 1.5]}), None, "not tested"),  # no sample says so
    ],
)
def test_speed_follows_the_decision_of_the_timing(made, decision, outcome):
    assert made.decision == decision
    assert judge(FASTER, [made], made.scale).outcome == outcome


def test_a_speedup_claim_with_a_larger_factor_or_the_other_way_round():
    rows = [timed(2.8, 3.2)]
    for comparison, outcome in (
        ("above 2.5", "holds"), ("at least 5", "does not hold"), ("at most 4", "holds"),
        ("below 1", "does not hold"),
    ):  # fmt: skip
        assert judge(f"of: {{method: knnlm}}, is: speedup {comparison}", rows).outcome == outcome


@pytest.mark.parametrize(
    ("hot", "details", "outcomes"),
    [
        (3.0, {}, ("holds", "holds", "does not hold")),
        (
            3.0,
            {"noise": 3.1},
            ("no difference shown", "no difference shown", "does not hold"),
        ),  # within the noise floor
        (1.0, {}, ("does not hold",) * 3),
        (0.5, {}, ("does not hold", "does not hold", "holds")),
        (3.0, {"objections": ["the environment changed"]}, ("not settled",) * 3),
        (None, {}, ("not tested",) * 3),
    ],
)
@pytest.mark.parametrize("in_use", [0.8, 1.0, 2.0])
def test_a_loop_of_calls_is_judged_by_its_own_interval_whatever_the_speedup_in_use_is(in_use, hot, details, outcomes):
    made = timed(in_use * 0.99, in_use * 1.01, hot=hot, **details)
    loops = ("above 1", "at least 2.5", "below 1")
    claims = [f"of: {{method: knnlm}}, is: hot_loop_speedup {loop}" for loop in loops]
    assert tuple(judge(claim, [made]).outcome for claim in claims) == outcomes


def test_a_speedup_that_is_equal_within_two_percent_is_decided():
    made = timed(0.999, 1.001)
    assert made.decision == "equal within 2%"
    assert judge(FASTER, [made]).outcome == "no difference shown"
    assert judge("of: {method: knnlm}, is: speedup at least 0.98", [made]).outcome == "holds"


def test_no_speed_claim_without_fidelity():
    made = timed(2.8, 3.2)
    assert judge(FASTER, [made]).outcome == "holds"
    for shown in ("0.9", "not measured,"):
        reason = f"fidelity: exact_match {shown} is not at least 1"
        verdict = judge(FASTER, [replace(made, objections=[reason])])
        assert verdict.outcome == "not settled" and reason in verdict.detail


def together(row, block="b"):
    """The row, with processes that it shares with others of this block."""
    return replace(row, processes=[{**one, "block": f"{block}{n}"} for n, one in enumerate(row.processes)])


def test_two_methods_are_compared_by_their_own_times_in_the_processes_that_they_share():
    claim = "of: {method: knnlm}, is: speedup above, than: {method: lm}"
    ours, theirs = together(timed(3.0, 3.0)), together(timed(3.0, 3.0, LM))

    def slow(factor, again):
        def by(factor, one):
            return {**one, "method_ns": [factor * ns for ns in one["method_ns"]]}

        return replace(theirs, processes=[
            {**one, "pairs": [by(factor, pair) for pair in one["pairs"]], "again": by(again, one["again"])}
            for one in theirs.processes
        ])  # fmt: skip

    slower = slow(1.27, 1.27)
    verdict = judge(claim, [ours, slower])
    assert verdict.outcome == "holds" and verdict.detail.startswith("1.27 times as fast as LM")
    assert judge(claim.replace("above", "above 1.3 times"), [ours, slower]).outcome == "does not hold"
    apart = judge(claim, [ours, together(slower, "c")])
    assert apart.outcome == "not settled" and "not timed in the same processes" in apart.detail
    assert apart.command.endswith("--fresh")
    # that the other method was slower on items it had seen is nothing that ours remembers
    assert judge(claim, [ours, slow(3.0, 4.2)]).outcome == "holds"


def test_speedups_against_different_baselines_are_not_compared():
    claim = "of: {method: knnlm}, is: speedup above, than: {method: lm}"
    beam = replace(timed(2.0, 2.0, LM), speed_baseline={"method": "beam", "params": {}})
    assert judge(claim, [timed(3.0, 3.0), beam]).outcome == "not tested"


def test_an_exploratory_time_names_the_command_that_would_settle_it():
    few = timed(2.0, 2.0, shape=(1, 2), known={"scale": "mini"})
    verdict = judge(FASTER, [few], "mini")
    assert (verdict.outcome, verdict.command) == ("not settled", "harness reproduce demo --scale small")
    verdict = judge(FASTER, [replace(few, scale="small")])
    assert verdict.command == "harness reproduce demo --scale small --processes 10 --pairs 3"
    assert "too few for a claim" in verdict.sentence


@pytest.mark.parametrize(
    ("claim", "rows", "words", "command"),
    [
        (BELOW_LM, [], "no row kNN-LM / FoSS=0", "--scale small"),
        (BELOW_LM, perplexities(80, 85)[:1], "no row LM", "--scale small"),
        ("of: {method: beam}, is: x above 1", [], "no cell runs beam; the nearest is LM", None),
        (f"{FASTER}, scales: [paper]", [], "stands at scale paper only", "--scale paper"),
        (BELOW_LM, [row(KNN, status="killed", error={"message": "out of memory"})], "killed out of memory", "small"),
        (BELOW_LM, [row(KNN, {"perplexity": None}), row(LM)], "no finite perplexity", None),
        (BELOW_LM, perplexities(80, 85, math.nan, math.nan), "broken", None),
    ],
)
def test_what_cannot_be_judged_says_why_and_what_to_do(claim, rows, words, command):
    verdict = judge(claim, rows)
    assert verdict.outcome in ("not tested", "not settled") and words in verdict.detail
    assert verdict.command is None if command is None else command in verdict.command


def test_a_later_failure_of_a_cell_takes_its_verdict_back():
    rows = perplexities(80.0, 85.0)
    assert judge(BELOW_LM, rows).holds
    assert not judge(BELOW_LM, [*rows, row(KNN, status="failed")]).holds


def test_rows_of_different_data_are_not_compared():
    rows = [replace(one, hashes={"data": data}) for one, data in zip(perplexities(80.0, 85.0), "ab", strict=True)]
    assert judge(BELOW_LM, rows).outcome == "not settled"


@settings(deadline=None, max_examples=200)
@given(
    low=st.floats(0.01, 4),
    width=st.floats(0, 2),
    bound=st.floats(1, 3),
    noise=st.floats(1, 3),
    shape=st.sampled_from([(6, 4), (6, 3), (1, 2)]),
    objections=st.sampled_from([[], ["fidelity"]]),
    comparison=st.sampled_from(["above", "at least"]),
)
def test_without_the_decision_faster_no_claim_of_a_speedup_ever_holds(
    low, width, bound, noise, shape, objections, comparison
):
    made = timed(low, low + width, shape=shape, noise=noise, objections=objections)
    claim = f"of: {{method: knnlm}}, is: speedup {comparison} {bound}"
    assert made.decision == "faster" or not judge(claim, [made]).holds


@settings(deadline=None, max_examples=200)
@given(
    values=st.tuples(*[st.floats(-5, 5)] * 4),
    comparison=st.sampled_from([("below", "at least"), ("above", "at most")]),
)
def test_a_claim_and_its_contrary_never_both_hold(values, comparison):
    ours, theirs = sorted(values[:2]), sorted(values[2:])
    rows = [row(KNN, {"x": sum(ours) / 2}, {"x": ours}), row(LM, {"x": sum(theirs) / 2}, {"x": theirs})]
    claims = [f"of: {{method: knnlm}}, is: x {c}, than: {{method: lm}}" for c in comparison]
    outcomes = [judge(claim, rows).outcome for claim in claims]
    assert outcomes.count("holds") <= 1
    if outcomes[0] == "holds":
        assert outcomes[1] == "does not hold"


@pytest.mark.parametrize(
    ("metric", "command"), [("bleu", "harness reproduce demo --scale paper"), ("fit_s", None), ("wall_clock_s", None)]
)
def test_a_metric_without_an_interval_settles_nothing(metric, command):
    claim = f"of: {{method: knnlm}}, is: {metric} above 0, scales: [small, paper]"
    verdict = judge(claim, [timed(1.2, 1.5, known={"metrics": {metric: 30.0}})])
    assert verdict.outcome == "not settled"
    assert verdict.detail == f"{metric} of kNN-LM / FoSS=0 was stored without an interval"
    assert verdict.command == command


def test_a_row_compared_with_one_that_has_no_interval_settles_nothing():
    rows = [row(KNN, {"perplexity": 5.0}, {"perplexity": [4.0, 6.0]}), row(LM, {"perplexity": 92.0})]
    assert judge(BELOW_LM, rows).outcome == "not settled"


def test_a_counter_is_exact_and_needs_no_interval():
    assert judge("of: {method: knnlm}, is: searches below 10", [row(KNN, counters={"searches": 9})]).holds


def test_targets_of_the_bench_are_judged_apart_from_the_claims_of_the_paper():
    target = "targets: [{text: ours, of: {method: knnlm}, is: perplexity below 10}]"
    judged = verdicts(stored_of(recipe(BELOW_LM, target), perplexities(80.0, 81.0), cells=CELLS))
    assert [v.outcome for v in judged.claims] == ["holds"]
    assert [(v.outcome, v.claim.source) for v in judged.targets] == [("does not hold", "set by the bench")]


def test_claims_of_other_scales_are_counted_and_bind_no_one_here():
    claims = [judge(BELOW_LM + other, perplexities(80.0, 89.9)) for other in ("", ", scales: [mini, paper]")]
    here, elsewhere = told(claims)
    assert here == claims[:1] and elsewhere == "1 more stands at other scales only (mini, paper)."
    assert told(claims[:1]) == (claims[:1], "") and told(claims[1:]) == ([], elsewhere.replace("more ", ""))
    assert Verdicts(claims).met and Verdicts(claims[1:]).met
    assert not Verdicts([judge(BELOW_LM, perplexities(85.0, 95.0))]).met
