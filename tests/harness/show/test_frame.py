"""One tidy table: a line for each row and number, with all that views need to know of it."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

from harness.common.sources import ROOT
from harness.contracts.metrics import Metric, described
from harness.measure.store import RowStore
from harness.results import frame
from harness.show.frame import COLUMNS, exported
from harness.show.published import Number
from tests.harness.made import numbers_of, stored_of
from tests.harness.rows import new_row, processes

RECIPE = """
name: demo
title: a demo
paper: retomaton
source: here
task: {name: t}
cells: [{row: a, method: lm}]
"""
LM = {"method": "lm", "params": {}}


def row(label="a", **known):
    given = {
        "method": "knnlm", "column": "c", "published": ("A", "C"), "metrics": {"perplexity": 85.0, "fit_s": 2.0},
        "intervals": {"perplexity": [84.0, 86.0]}, "counters": {"searches": 7}, "speed_baseline": LM,
        "described": described(Metric("perplexity", "surprise", "bits", "lower")), "processes": processes(2.0),
        "params": {"method": {"k": 8, "foss": 0.5}, "task": {}}, "facts": {"width": "other"},
    }  # fmt: skip
    return new_row(row=label, **given | known)


def lines(*rows, recipe=RECIPE, numbers=(), **options):
    return numbers_of(stored_of(recipe, rows, numbers=numbers, **options))


def printed(metric, value, unit=""):
    return Number("f.csv", "Table 1", "A", "C", metric, str(value), float(value), unit, "")


def test_a_row_has_a_line_for_each_number_in_its_order():
    found = lines(row(), row("b", processes=(), counters={}))
    assert found[found.row == "a"].metric.tolist() == list(row().numbers)
    assert found[found.row == "b"].metric.tolist() == ["perplexity", "fit_s"]
    assert set(found.cell) == {"a / c", "b / c"} and (found.apart == "").all()


def test_a_line_says_what_its_number_is_and_what_its_row_is():
    by_metric = lines(row()).set_index("metric")
    perplexity, speedup, searches = (by_metric.loc[name] for name in ("perplexity", "speedup", "searches"))
    wanted = ["value", "low", "high", "label", "unit", "kind", "better"]
    assert perplexity[wanted].tolist() == [85.0, 84.0, 86.0, "surprise", "bits", "quality", "lower"]
    assert searches[["value", "kind", "better"]].tolist() == [7, "counter", "lower"] and pd.isna(searches.low)
    assert speedup.low < 2 < speedup.high and speedup.value == pytest.approx(2) and speedup.kind == "speed"
    assert by_metric.decision.eq("faster").all() and by_metric.baseline.eq("lm").all()
    assert by_metric.contract.notna().all() and by_metric.reference.isna().all()


def test_a_row_without_numbers_has_one_line():
    failed = new_row(status="failed", error={"message": "out of memory", "log": ""})
    (line,) = lines(failed).itertuples()
    assert (line.status, line.error) == ("failed", "out of memory") and pd.isna(line.metric) and pd.isna(line.value)


def test_published_numbers_are_in_the_unit_of_the_measured_ones_with_a_ratio_where_it_means_something():
    numbers = [printed("perplexity", 17), printed("speedup", 4, "x"), printed("latency_ms", 100, "ms")]
    found = lines(row(), numbers=numbers).set_index("metric")
    assert found.loc[["perplexity", "speedup", "latency_s"], "paper"].tolist() == [17, 4, pytest.approx(0.1)]
    assert found.loc["speedup", "ratio"] == pytest.approx(0.5) and found.ratio.count() == 1  # on other data
    assert found.loc["speedup", "setting"] == "Table 1, A, C" and found.paper.count() == 3
    same = lines(row(), recipe=RECIPE + "data_of_paper: [small]\n", numbers=numbers).set_index("metric")
    assert same.loc["perplexity", "ratio"] == pytest.approx(5)


def test_published_numbers_hold_where_the_facts_are_those_of_the_paper():
    where = RECIPE + "published_where: {width: [narrow, wide]}\n"
    assert lines(row(), recipe=where, numbers=[printed("perplexity", 17)]).paper.count() == 0
    narrow = row(facts={"width": "narrow"})
    assert lines(narrow, recipe=where, numbers=[printed("perplexity", 17)]).paper.count() == 1


def test_variants_are_named_by_declared_parameters_and_by_those_in_which_a_baseline_of_the_same_method_differs():
    def variant(baseline, method="knnlm", **params):
        made = row(method=method, params={"method": params, "task": {}}, speed_baseline=baseline)
        return lines(made).variant.iloc[0]

    assert variant(LM, k=8, foss=0.5) == ""
    assert variant({"method": "knnlm", "params": {"k": 8, "foss": 0.0}}, k=8, foss=0.5) == "foss=0.5"
    assert variant(LM, "ctranslate2", beam=1, compute="int8", intra_threads=2) == "beam=1, compute=int8"


def test_a_folder_of_results_is_a_frame_with_parameters_as_json(tmp_path):
    for place, recipe in (("measured", "l2s-table1"), ("runs", "iad-table1")):
        store = RowStore(tmp_path / place / recipe / "small" / "rows.jsonl")
        store.append(row(recipe=recipe))
    found = frame(tmp_path)
    assert list(found.columns) == list(COLUMNS) and len(found) == 2 * len(row().numbers)
    assert set(found.recipe) == {"l2s-table1", "iad-table1"}
    assert json.loads(found.params.iloc[0]) == {"method": {"foss": 0.5, "k": 8}, "task": {}}
    assert set(frame(tmp_path, kinds=["runs"]).recipe) == {"iad-table1"}
    assert frame(tmp_path / "nothing").empty and exported(lines()).empty


def test_committed_rows_are_a_frame_next_to_the_papers(tmp_path):
    name = "knnlm-wikitext"
    shutil.copytree(ROOT / "results" / "measured" / name, tmp_path / "measured" / name)
    found = frame(tmp_path).set_index(["recipe", "scale", "row", "column", "metric"]).sort_index()
    exact = found.loc[(name, "small", "kNN-LM", "FoSS=0", "word_perplexity")]
    assert exact.value == pytest.approx(198.5, abs=0.05) and exact.low < exact.value < exact.high
    assert exact.paper == 16.65 and exact.decision == "slower"
