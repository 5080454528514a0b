"""What the harness itself costs: time in the runner and not in the method, and listing."""

import os
import subprocess
import sys

import pytest
from rich.console import Console

from harness import cells, recipe
from harness.display import Display
from harness.runner import Runner

RECIPE = """
name: toy
title: a toy
paper: none
source: none
task: {{name: toy-text}}
timing: {{processes: {processes}, pairs: {pairs}, noise_pairs: 1, min_sample_ms: 1}}
cells:
  - {{row: pausing, method: toy-unigram, params: {{pause: {pause}}}, speed_baseline: {{method: toy-unigram}}}}
"""


class Quiet:
    def row(self, row):
        pass


def overhead(registry, folder, processes, pairs, pause):
    """(seconds not spent in steps, seconds of the cell): what the runner adds around its worker processes."""
    text = RECIPE.format(processes=processes, pairs=pairs, pause=pause)
    found = cells.expand(recipe.parse(text, "toy.yaml"), "mini", registry)
    spent = []
    with Display(Console(file=open(os.devnull, "w")), "toy", 1) as display:
        runner = Runner(folder, "cpu", registry, display, Quiet(), fresh=True)
        step = runner._step

        def timed(*arguments, **named):
            outcome = step(*arguments, **named)
            spent.append(outcome.seconds)
            return outcome

        runner._step = timed
        row = runner.run(found).rows[0]
    assert row["status"] == "ok", row["error"]
    return row["seconds"] - sum(spent[1:]), row["seconds"]  # the first step prepares the task, before the cell


@pytest.mark.benchmark(group="harness")
def test_the_runner_adds_less_than_two_percent_of_thirty_seconds(benchmark, toys, tmp_path):
    added, total = benchmark.pedantic(overhead, args=(toys, tmp_path, 6, 2, 0.05), rounds=1)
    benchmark.extra_info.update(runner_s=added, cell_s=total)
    assert added < 0.02 * 30


@pytest.mark.slow
@pytest.mark.benchmark(group="harness")
def test_a_thirty_second_cell_spends_less_than_two_percent_in_the_runner(benchmark, toys, tmp_path):
    added, total = benchmark.pedantic(overhead, args=(toys, tmp_path, 6, 4, 0.9), rounds=1)
    benchmark.extra_info.update(runner_s=added, cell_s=total, share=added / total)
    assert total > 25
    assert added < 0.02 * total


@pytest.mark.benchmark(group="harness")
def test_listing_methods(benchmark):
    command = [sys.executable, "-m", "harness", "list", "methods"]
    benchmark.pedantic(subprocess.run, args=(command,), kwargs={"capture_output": True, "check": True}, rounds=5)
    assert benchmark.stats.stats.min < 0.5
