"""Fidelity and counters of each contract, by cases worked out by hand."""

import itertools
import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from harness.contracts import Decoded, OutputLayer, TokenScores, TokenScoring, TopK, Trace
from harness.contracts.methods import Method
from harness.contracts.tasks import SoftmaxSetting
from harness.measure import steps
from harness.measure.drivers import DRIVERS
from harness.plan import registry
from tests.harness.rows import new_row, with_samples


def essence(contract, answers):
    return DRIVERS[contract].essence(answers)


def topk(*ids):
    return TopK(np.asarray(ids), np.zeros(len(ids), np.float32), math.log(len(ids)))


def timed(contract, method, setting):
    """The answers of one pass over all timed items, as a timing process gathers them."""
    driver, items = DRIVERS[contract], np.arange(len(setting.timed))
    ask = driver.asker(method, setting, NoPhases())
    return driver.gathered(method, setting, items, [ask(one) for one in driver.inputs(setting, items)])


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


def test_the_improvement_is_the_share_of_the_way_to_perplexity_1():
    """Table 2 of Liu et al., 2024: from 22.82 to 13.71 is 42 percent."""
    ours, theirs = ({"log_probs": -np.log([p] * 100)} for p in (13.71, 22.82))
    found = DRIVERS["token-scoring"].fidelity(ours, theirs)["improvement_pct"]
    assert found.value == pytest.approx(100 * (22.82 - 13.71) / 21.82) and round(found.value) == 42
    assert found.low == pytest.approx(found.value) == pytest.approx(found.high)
    assert DRIVERS["token-scoring"].fidelity(theirs, ours)["improvement_pct"].value < 0
    certain = {"log_probs": np.zeros(100)}
    assert "improvement_pct" not in DRIVERS["token-scoring"].fidelity(ours, certain)  # nothing left to save


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
    assert totals == {
        "searches": 3, "tokens": 4, "iterations": 2, "iterations_by_item": 1, "accepted_tokens": 2,
        "accepted_tokens_by_item": 2,
    }  # fmt: skip
    scores = [TokenScores(np.zeros(8), {"tokens": 8, "searches": 2}), TokenScores(np.zeros(2), {"tokens": 2})]
    assert DRIVERS["token-scoring"].counters(scores)["foss"] == pytest.approx(0.8)


def test_a_method_that_skips_a_token_is_refused():
    class Short:
        def score(self, model, streams, phases, shared=None):
            return [TokenScores(np.zeros(3))]

    setting = SimpleNamespace(model=None)
    with pytest.raises(RequestError, match="Short answered 3 of 4 tokens of a stream"):
        DRIVERS["token-scoring"].answer(Short(), setting, [np.arange(5)], None)
    with pytest.raises(RequestError, match="Short answered 1 of 2 streams"):
        DRIVERS["token-scoring"].answer(Short(), setting, [np.arange(4)] * 2, None)


def test_a_complaint_names_a_registered_method(monkeypatch):
    monkeypatch.setattr(registry, "_declared_at_run_time", {})

    @registry.method("too-short", contract="token-scoring")
    class Short(TokenScoring):
        def score(self, model, streams, phases, shared=None):
            return []

    with pytest.raises(RequestError, match=r"^method too-short answered 0 of 1 streams"):
        DRIVERS["token-scoring"].answer(Short(), SimpleNamespace(model=None), [np.arange(3)], NoPhases())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "not a number: nan"), (math.inf, "not a number: inf"), (-math.inf, "not a number: -inf"),
        (2.0, "above 0: 2"), (1e-5, "above 0: 1e-05"),
    ],
)  # fmt: skip
def test_a_score_that_cannot_be_is_refused(value, message):
    class Odd:
        def score(self, model, streams, phases, shared=None):
            return [TokenScores(np.asarray([-1.0, value]))]

    with pytest.raises(RequestError, match=f"Odd gives a log-probability .*{message}"):
        DRIVERS["token-scoring"].answer(Odd(), SimpleNamespace(model=None), [np.arange(3)], None)


def test_rounding_above_zero_is_no_fault():
    class Sure:
        def score(self, model, streams, phases, shared=None):
            return [TokenScores(np.asarray([0.0, 5e-7]))]

    assert DRIVERS["token-scoring"].answer(Sure(), SimpleNamespace(model=None), [np.arange(3)], None)


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
        return TopK(ids, 0 * ids.astype(np.float32) - 5, np.arange(len(contexts), dtype=np.float32))

    def log_prob(self, context, target):
        self.calls.append(("log_prob", 1, target))
        return -1.0


def softmax_setting(**known):
    contexts = np.zeros((5, 2), np.float32)
    layer = OutputLayer(np.zeros((9, 2), np.float32), np.zeros(9, np.float32))
    given = {"layer": layer, "contexts": contexts, "targets": np.zeros(5, np.int64), "evaluation": contexts}
    given |= {"evaluation_targets": np.zeros(5, np.int64), "timed": contexts, "sample": 5, "hashes": {}}
    return SoftmaxSetting(**(given | known))


class Says:
    """A decoder with these ids for every source, and as many answers as given."""

    def __init__(self, *outputs):
        self.outputs = outputs

    def decode(self, model, sources, limit, phases):
        return [Decoded(list(ids)) for ids in self.outputs]

    def generate(self, model, prompt, limit, phases):
        return Decoded(list(self.outputs[0]))


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([[1], [2], [3]], "Says answered 3 of 2 sources"),
        ([[1]], "Says answered 1 of 2 sources"),
        ([[1], [10]], "an id outside of 0 to 9"),
        ([[-1], [1]], "an id outside of 0 to 9"),
        ([[1, 1, 1, 1], [1]], "Says gives 4 tokens where 3 are the limit"),
    ],
)
def test_outputs_that_cannot_be_are_refused(outputs, message):
    setting = SimpleNamespace(model=SimpleNamespace(vocabulary_size=10), limit=3, batch=2)
    with pytest.raises(RequestError, match=message):
        DRIVERS["sequence-decoding"].answer(Says(*outputs), setting, [[1], [2]], None)
    assert DRIVERS["sequence-decoding"].answer(Says([], [9]), setting, [[1], [2]], None) == [Decoded([]), Decoded([9])]


@pytest.mark.parametrize(("output", "message"), [([1, 2, 3, 4], "4 tokens where 3"), ([10], "an id outside")])
def test_continuations_that_cannot_be_are_refused(output, message):
    setting = SimpleNamespace(model=SimpleNamespace(vocabulary_size=10), limit=3)
    with pytest.raises(RequestError, match=message):
        DRIVERS["retrieval-generation"].answer(Says(output), setting, [[1]], None)


@pytest.mark.parametrize(
    ("contract", "answers"),
    [
        ("token-scoring", [TokenScores(-np.arange(3.0)), TokenScores(-np.arange(2.0)), TokenScores(-np.arange(4.0))]),
        ("softmax-screening", [topk(1, 2), topk(3, 4), topk(5, 6)]),
        ("softmax-screening", [-1.0, -2.0, -math.inf]),
        ("sequence-decoding", [Decoded([1, 2]), Decoded([]), Decoded([3])]),
        ("retrieval-generation", [Decoded([]), Decoded([1, 2]), Decoded([3, 4, 5])]),
    ],
)
def test_the_answers_of_several_processes_are_joined_in_order(contract, answers):
    driver = DRIVERS[contract]
    whole = driver.essence(answers)
    for cut in (1, 2):
        joined = driver.joined([driver.essence(answers[:cut]), driver.essence(answers[cut:])])
        assert joined.keys() == whole.keys()
        for name, array in whole.items():
            assert np.array_equal(joined[name], array) and joined[name].dtype == array.dtype


def test_every_contract_demands_a_fidelity_that_it_can_measure():
    demanded = {c: [(d.metric, d.is_, d.bound) for d in driver.demands] for c, driver in DRIVERS.items()}
    assert demanded == {
        "token-scoring": [("perplexity_difference", "at most", 0.5)],
        "softmax-screening": [("precision_at_1", "at least", 0.95), ("perplexity_ratio", "at most", 1.1)],
        "sequence-decoding": [("wide_differences", "at most", 0), ("exact_match", "at least", 0.98)],
        "retrieval-generation": [("wide_differences", "at most", 0), ("exact_match", "at least", 0.98)],
    }
    scores = [TokenScores(np.full(3, -1.0))]
    given = {"token-scoring": [scores], "softmax-screening": [[topk(1, 2)], [-1.0]],
             "sequence-decoding": [[Decoded([1])]], "retrieval-generation": [[Decoded([1])]]}  # fmt: skip
    for contract, examples in given.items():
        driver, found = DRIVERS[contract], set()
        for one in examples:
            pair = [essence(contract, one)] * 2
            found |= {*driver.fidelity(*pair), *driver.differences(None, None, one, *pair)}
        assert {metric for metric, _, _ in demanded[contract]} <= found


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


class Undecided(Method):
    """Names the gap of each pair of outputs by the source."""

    def gap(self, model, source, output, expected, limit):
        return source[0]


def test_differing_outputs_are_counted_and_near_ties_told_from_errors():
    ours = essence("sequence-decoding", [Decoded([1, 2]), Decoded([3]), Decoded([4])])
    theirs = essence("sequence-decoding", [Decoded([1, 2]), Decoded([5]), Decoded([6])])
    setting, items = SimpleNamespace(model=None, limit=2), [[0.5], [5e-5], [0.2]]
    driver = DRIVERS["sequence-decoding"]
    found = driver.differences(Undecided(), setting, items, ours, theirs)
    assert {name: m.value for name, m in found.items()} == {
        "differing": 2, "widest_gap": 0.2, "wide_differences": 1,
    }  # fmt: skip
    assert found["wide_differences"].low == found["wide_differences"].high == 1

    class Silent:
        def gap(self, *given):
            return None

    assert driver.differences(Silent(), setting, items, ours, theirs) == {}
    half = SimpleNamespace(model=SimpleNamespace(module=SimpleNamespace(dtype="torch.bfloat16")), limit=2)
    found = driver.differences(Undecided(), half, [[0.5], [0.3], [0.2]], ours, theirs)
    assert found["widest_gap"].value == 0.3 and found["wide_differences"].value == 1
    found = driver.differences(Undecided(), setting, [[0.5], [0.0], [math.nan]], ours, theirs)
    assert found["wide_differences"].value == 1 and math.isnan(found["widest_gap"].value)


@pytest.mark.parametrize("contract", ["sequence-decoding", "retrieval-generation", "token-scoring"])
def test_a_row_has_what_an_item_of_each_side_reads_where_it_is_counted(contract):
    driver, method = DRIVERS[contract], SimpleNamespace(ratios={}, counters=dict)
    both = dict.fromkeys(("method", "speed_baseline"), method)

    def answers(*read):
        counters = [{} if one is None else {"bytes_read": one} for one in read]
        if contract == "token-scoring":
            return [TokenScores(np.zeros(3), one) for one in counters]
        return [Decoded([1, 2], Trace(counters=one)) for one in counters]

    assert driver.counters(answers(10.0, 30.0))["bytes_read"] == 20
    sums = driver.sums(both, None, {}, {"method": answers(10.0, 30.0), "speed_baseline": answers(100.0, 200.0)})
    tokens = {} if contract == "token-scoring" else {"method.tokens": 4, "speed_baseline.tokens": 4}
    assert sums == {"method.bytes_read": 20, "speed_baseline.bytes_read": 150} | tokens
    ratios = {name: asdict(ratio) for name, ratio in driver.ratios.items()}
    row = with_samples(new_row(ratios=ratios), 2.0)
    for process, read in zip(row.processes, itertools.cycle([20.0, 40.0])):
        process["sums"] = {"method.bytes_read": read, "speed_baseline.bytes_read": 150.0}
    assert (row.value("bytes_read"), row.value("baseline_bytes_read")) == (pytest.approx(30), pytest.approx(150))
    unknown = driver.sums(both, None, {}, {"method": answers(10.0, 30.0), "speed_baseline": answers(None, None)})
    assert unknown == {"method.bytes_read": 20} | tokens
    row = with_samples(new_row(ratios=ratios), 2.0)
    for process in row.processes:
        process["sums"] = unknown
    assert row.value("bytes_read") == 20 and row.value("baseline_bytes_read") is None
    if tokens:  # of each process's calls, however many passes it made
        seconds = sum(sum(pair["method_ns"]) for pair in row.processes[0]["pairs"]) / 1e9
        assert row.value("tokens_per_second") == pytest.approx(4 / seconds, rel=0.05)
        assert row.value("baseline_tokens_per_second") == pytest.approx(4 / seconds / 2, rel=0.05)


def test_what_a_softmax_method_counts_itself_is_told_of_both_sides_and_shared_by_the_time_that_it_takes():
    setting = SimpleNamespace(batch=1, timed_targets=None)
    method, baseline = (SimpleNamespace(ratios={}, counters=lambda n=n: {"bytes_read": n}) for n in (2e6, 8e6))
    driver = DRIVERS["softmax-screening"]
    roles = {"method": method, "speed_baseline": baseline}
    sums = driver.sums(roles, setting, {}, {role: [] for role in roles})
    assert sums == {"method.bytes_read": 2e6, "speed_baseline.bytes_read": 8e6}
    ratios = {name: asdict(ratio) for name, ratio in driver.ratios.items()}
    row = with_samples(new_row(ratios=ratios, environment={"before": {"cpu": {"copy_gb_s": 16.0}}}), 2.0, seconds=5e-3)
    for process in row.processes:
        process["sums"] = sums
    assert row.value("bandwidth_share") == pytest.approx(2e6 / 1e-3 / 16e9)  # five items a pass
    assert row.value("baseline_bandwidth_share") == pytest.approx(8e6 / 2e-3 / 16e9, rel=0.02)
    assert replace(row, device="cuda").value("bandwidth_share") is None
    assert replace(row, environment={}).value("bandwidth_share") is None
    silent = replace(row, processes=[{**process, "sums": {}} for process in row.processes])
    assert silent.value("bytes_read") is None and silent.value("bandwidth_share") is None
    assert replace(row, processes=[]).value("bandwidth_share") is None  # bytes without a time


def test_the_quality_pass_decodes_a_batch_at_a_time_and_says_how_far_it_is():
    setting, heard = SimpleNamespace(evaluation=[[7], [8], [9]], batch=2), []
    driver = DRIVERS["sequence-decoding"]
    assert driver.parts(setting) == [[[7], [8]], [[9]]] and DRIVERS["token-scoring"].parts(setting) == [[[7], [8], [9]]]
    answering = SimpleNamespace(parts=driver.parts, answer=lambda method, setting, items, *_: list(items))
    progress = SimpleNamespace(update=lambda stage, done, total, unit="": heard.append((done, total)))
    cell = SimpleNamespace(driver=answering, setting=setting, progress=progress)
    assert steps._quality(cell, None, None) == setting.evaluation
    assert heard == [(0, None), (2, 3), (3, 3)]
