"""Toys that only look fast get no claim, through the whole path from recipe to row."""

import pytest

from harness.plan import expansion, recipe
from tests.harness import running

RECIPE = """
name: toy
title: a toy
paper: none
source: none
task: {{name: {task}}}
timing: {{processes: 6, pairs: 4}}
scales: {{small: {{}}}}
cells:
  - {line}
"""


def run(registry, folder, task, line):
    found = expansion.expand(recipe.parse(RECIPE.format(task=task, line=line), "toy.yaml"), "small", registry)
    return running.run(registry, folder, found).rows[0]


def against(method, baseline):
    return f"{{row: a, method: {method}, speed_baseline: {baseline}}}"


def test_a_method_that_remembers_answers_gains_nothing_and_is_found_out(toys, tmp_path):
    # ten processes: a single disturbed one of six would leave no interval that shows it
    line = against("toy-remembers", "toy-slow").replace("{row: a", "{row: a, timing: {processes: 10, pairs: 3}")
    row = run(toys, tmp_path, "toy-successors", line)
    assert row.summary.repeat > 5
    assert row.speedup < row.summary.repeat / 2  # no item comes twice in a pair
    assert row.decision == "no claim" and "remember" in row.reason


def test_a_method_that_is_lazy_when_timed_gets_no_claim(toys, tmp_path):
    row = run(toys, tmp_path, "toy-successors", against("toy-lazy", "toy-slow"))
    assert row.value("exact_match") == 1  # the quality pass shows nothing
    assert row.is_faithful
    assert row.speedup > 3
    assert row.decision == "no claim" and "timed answers" in row.reason
    hashes = [process["answers_sha256"] for process in row.processes]
    assert all(one["method"] != one["speed_baseline"] for one in hashes)


def test_answers_unlike_the_baselines_get_no_claim_without_a_stated_bound(toys, tmp_path):
    row = run(toys, tmp_path, "toy-layer", against("toy-forgetful", "toy-exact"))
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


def test_an_honest_method_gets_its_claim(toys, tmp_path):
    row = run(toys, tmp_path, "toy-successors", against("toy-greedy", "toy-slow"))
    assert row.decision == "faster", row.reason
    assert row.value("timed_items") == sum(pair["count"] for process in row.processes for pair in process["pairs"])
