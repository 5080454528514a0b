"""Toys that only look fast get no claim, through the whole path from recipe to row."""

import os
import re
from pathlib import Path
from statistics import median

import pytest

from harness.plan import expansion, recipe
from tests.harness import running

RECIPE = """
name: toy
title: a toy
paper: none
source: none
task: {{name: {task}, params: {of_task}}}
timing: {{processes: {processes}, pairs: 4}}
scales: {{small: {{}}}}
cells:
  - {line}
"""


def run(registry, folder, task, line, of_task="{}", processes=6, scale="small"):
    text = RECIPE.format(task=task, line=line, of_task=of_task, processes=processes)
    found = expansion.expand(recipe.parse(text, "toy.yaml"), scale, registry)
    return running.run(registry, folder, found).rows[0]


EXPLORATORY = {"processes": 1, "scale": "mini"}  # "no claim" is said of an objection alone


def against(method, baseline):
    return f"{{row: a, method: {method}, speed_baseline: {baseline}}}"


def test_a_method_that_remembers_answers_gains_nothing_and_is_found_out(toys, tmp_path):
    # ten processes: a single disturbed one of six would leave no interval that shows it
    line = against("toy-remembers", "toy-slow").replace("{row: a", "{row: a, timing: {processes: 10, pairs: 3}")
    row = run(toys, tmp_path, "toy-successors", line)
    assert row.decision == "no claim" and "remember" in row.reason
    repeat = float(re.search(r"([\d.]+) times as fast on items that it has seen", row.reason)[1])
    assert repeat > 5
    assert row.speedup < repeat / 2  # no item comes twice in a pair


def test_a_method_that_is_lazy_when_timed_gets_no_claim(toys, tmp_path):
    row = run(toys, tmp_path, "toy-successors", against("toy-lazy", "toy-slow"), **EXPLORATORY)
    assert row.value("exact_match") == 1  # the quality pass shows nothing
    assert row.is_faithful
    assert row.speedup > 3
    assert row.decision == "no claim" and "timed answers" in row.reason
    hashes = [process["answers_sha256"] for process in row.processes]
    assert all(one["method"] != one["speed_baseline"] for one in hashes)


def test_answers_unlike_the_baselines_get_no_claim_without_a_stated_bound(toys, tmp_path):
    row = run(toys, tmp_path, "toy-layer", against("toy-forgetful", "toy-exact"), **EXPLORATORY)
    assert row.status == "ok", row.error
    assert row.is_faithful is False
    assert (row.fidelity["metric"], row.fidelity["bound"]) == ("precision_at_1", 0.95)
    assert row.decision == "no claim"


@pytest.mark.parametrize("value", ["2.0", "nan", "inf"])
def test_scores_that_cannot_be_are_refused(toys, tmp_path, value):
    line = f"{{row: a, method: toy-certain, params: {{value: '{value}'}}, speed_baseline: toy-uniform}}"
    row = run(toys, tmp_path, "toy-text", line)
    assert row.status == "failed"
    assert "method toy-certain gives a log-probability" in row.error["message"]
    assert not row.processes and not row.numbers


def test_probabilities_that_sum_to_more_than_one_are_refused(toys, tmp_path):
    row = run(toys, tmp_path, "toy-text", against("toy-oracle", "toy-uniform"), "{distributions: true}")
    assert row.status == "failed"
    assert "toy-oracle gives 50 words at one place probabilities that sum to 1.051" in row.error["message"]


def test_wrong_answers_weigh_by_the_time_that_they_save(toys, tmp_path):
    row = run(toys, tmp_path, "toy-successors", against("toy-skips", "toy-steps"), "{batch: 1}")
    assert row.value("exact_match") == 1 and row.speedup > 1.2
    assert row.decision == "no claim" and "weighted by the time that each answer saved" in row.reason


def test_a_method_that_slows_the_shared_model_gets_no_claim(toys, tmp_path):
    row = run(toys, tmp_path, "toy-successors", against("toy-mutant", "toy-slow"))
    assert row.value("exact_match") == 1 and row.speedup > 1.5
    assert row.decision == "no claim" and "times as long next to the method as alone" in row.reason


SLOW = pytest.mark.slow


@pytest.mark.parametrize("how", ["open", pytest.param("thread", marks=SLOW), pytest.param("disk", marks=SLOW)])
def test_answers_that_are_prepared_are_not_there_for_varied_items(toys, tmp_path, how):
    line = f"{{row: a, method: toy-prepared, params: {{how: {how}, file: {tmp_path}/known}}, speed_baseline: toy-slow}}"
    row = run(toys, tmp_path / "run", "toy-successors", line, "{same: true, batch: 1}")
    assert row.value("exact_match") == 1 and row.speedup > 2
    assert row.decision == "no claim" and "it may have prepared answers" in row.reason
    assert row.value("open_s") > 0


def test_a_clock_that_is_replaced_changes_nothing(toys, tmp_path):
    row = run(toys, tmp_path, "toy-successors", against("toy-clockmaker", "toy-slow"), processes=2)
    assert row.status == "ok", row.error
    pairs = [pair for process in row.processes for pair in process["pairs"]]
    ratios = [sum(pair["baseline_ns"]) / sum(pair["method_ns"]) for pair in pairs]
    assert median(ratios) == pytest.approx(1, abs=0.3)  # 2 by the replaced clock; one disturbed pass moves the mean


def test_logits_are_compared_and_a_normaliser_below_them_is_refused(toys, tmp_path):
    line = against("toy-words-only", "toy-exact")
    zero = run(toys, tmp_path / "zero", "toy-layer", line)
    assert zero.status == "failed" and "log_normalizer below that of the words" in zero.error["message"]
    wrong = run(
        toys, tmp_path / "wrong", "toy-layer",
        line.replace("toy-words-only", "toy-words-only, params: {logits: wrong}"), **EXPLORATORY,
    )  # fmt: skip
    assert wrong.value("precision_at_1") == 1 and wrong.value("logit_error") == pytest.approx(0.5, abs=1e-5)
    assert wrong.decision == "no claim" and "logit_error of 0.5 is not at most 0.1" in wrong.reason


def test_the_answers_of_the_quality_pass_are_not_where_methods_keep_artifacts(toys, tmp_path):
    row = run(toys, tmp_path / "run", "toy-questions", against("toy-sequential", "toy-sequential"), **EXPLORATORY)
    assert row.status == "ok", row.error
    kept = {path.relative_to(tmp_path / "run").parts[0] for path in (tmp_path / "run").rglob("ids.npy")}
    assert kept == {"answers"}
    assert not list(Path(os.environ["HARNESS_CACHE"]).rglob("ids.npy"))


def test_an_honest_method_gets_its_claim(toys, tmp_path):
    row = run(toys, tmp_path, "toy-successors", against("toy-greedy", "toy-slow"))
    assert row.decision == "faster", row.reason
    assert row.value("timed_items") == sum(pair["count"] for process in row.processes for pair in process["pairs"])
