"""The runner end to end on toy methods, in real processes: rows, faults, resume."""

import os
import signal
import statistics
import subprocess
import sys
import time

import pytest

from harness.common.errors import RequestError
from harness.measure.executors import Outcome, run_step
from harness.measure.runner import blocks, only_run_in
from harness.measure.store import RowStore
from harness.plan import expansion, recipe
from tests.harness import running

RECIPE = """
name: toy
title: a toy
paper: none
source: none
task: {{name: {task}}}
timing: {{processes: 2, pairs: 2, timeout: {timeout}}}
cells:
{cells}
"""


def run(registry, folder, task, lines, timeout=60.0, **options):
    loaded = recipe.parse(RECIPE.format(task=task, cells=lines, timeout=timeout), "toy.yaml")
    found = expansion.expand(loaded, "mini", registry)
    heard = running.Heard()
    return running.run(registry, folder, found, heard, **options), heard


def test_a_pair_becomes_a_row_with_quality_speed_and_evidence(toys, tmp_path):
    lines = """
  - {row: uniform, method: toy-uniform}
  - {row: unigram, method: toy-unigram, params: {pause: 0.01}, speed_baseline: toy-uniform,
     fidelity_baseline: toy-uniform, fidelity: {is: perplexity_difference below 0}}
"""
    result, heard = run(toys, tmp_path, "toy-text", lines)
    baseline, row = result.rows
    assert [row.status for row in result.rows] == ["ok", "ok"]
    assert baseline.value("perplexity") == pytest.approx(50)
    assert baseline.speedup is None and baseline.decision is None
    assert row.value("perplexity") < 50
    assert row.value("perplexity_difference") == pytest.approx(row.value("perplexity") - 50)
    assert row.is_faithful
    assert row.speedup < 0.5
    assert row.decision == "exploratory"
    assert 0 < row.value("memory_mib") < 4000
    processes = row.processes
    assert len(processes) == 2 and [process["process"] for process in processes] == [0, 1]
    assert row.value("latency_s") == pytest.approx(row.value("wall_clock_s") / 4)  # four streams a pass
    means = [statistics.mean(sum(pair["method_ns"]) / 4 for pair in process["pairs"]) for process in processes]
    assert row.value("latency_std_s") == pytest.approx(statistics.stdev(means) / 1e9)
    assert row.value("different_items") == row.value("timed_items") == 2 * 2 * 4  # no stream comes twice
    for process in processes:
        assert process["answers_sha256"]["method"] != process["answers_sha256"]["speed_baseline"]
        assert process["answers_sha256"]["fidelity_baseline"] == process["answers_sha256"]["speed_baseline"]
        assert process["fidelity"]["perplexity_difference"] < 0
        assert process["again"]["method_ns"] and process["quiet"]["seconds"] > 0.02
    assert processes[0]["phases"]["method"]["seconds"]["lookup"] >= 0.01
    kept = {file.name.rpartition("-")[2] for file in (tmp_path / "answers").iterdir()}
    assert kept == {
        "quality0.npz",
        "time0.npz",
        "time1.npz",
        "answers",
    }  # the last are the baseline's of the quality pass
    assert row.counters["tokens"] == 2999
    assert row.counters["reference_streams"] == 1
    assert row.hashes["model"] == "toy-1"
    stored = [one.as_json() for one in RowStore(tmp_path / "rows.jsonl").rows()]
    assert stored == [one.as_json() for one in result.rows] == [one.as_json() for one in heard.rows]


def test_a_row_without_a_baseline_keeps_its_answers_for_those_that_are_compared_with_it(toys, tmp_path):
    def kept():
        return [file.parent for file in (tmp_path / "answers" / "shared-answers").glob("*/key.json")]

    run(toys, tmp_path, "toy-text", "  - {row: uniform, method: toy-uniform, timed: false}")
    (first,) = kept()
    lines = "  - {row: unigram, method: toy-unigram, fidelity_baseline: toy-uniform, timed: false}"
    result, _ = run(toys, tmp_path, "toy-text", lines)
    (row,) = result.rows
    assert kept() == [first]
    assert row.value("perplexity_difference") == pytest.approx(row.value("perplexity") - 50)
    run(toys, tmp_path, "toy-text", "  - {row: alone, method: toy-unigram, fidelity_baseline: null, timed: false}")
    assert len(kept()) == 2  # other answers are kept apart


@pytest.mark.parametrize(
    ("task", "exact", "fast", "metric"),
    [
        ("toy-layer", "toy-exact", "toy-frequent", "precision_at_5"),
        ("toy-successors", "toy-greedy", "toy-blocks", "exact_match"),
        ("toy-questions", "toy-sequential", "toy-sequential", "exact_match"),
    ],
)
def test_the_other_contracts_run_the_same_way(toys, tmp_path, task, exact, fast, metric):
    lines = f"  - {{row: fast, method: {fast}, speed_baseline: {exact}, fidelity_baseline: {exact}}}"
    result, _ = run(toys, tmp_path, task, lines)
    row = result.rows[0]
    assert row.status == "ok", row.error
    assert 0.5 < row.value(metric) <= 1
    assert row.speedup > 0
    if task == "toy-layer":
        assert row.value("precision_at_1") == pytest.approx(1, abs=0.15)
        assert row.counters["multiply_adds"] > 0
    if task == "toy-questions":
        phases = [process["phases"]["speed_baseline"]["seconds"]["retrieve"] for process in row.processes]
        clocks = [
            sum(sum(pair["baseline_ns"]) for pair in process["pairs"]) / len(process["pairs"]) / 1e9
            for process in row.processes
        ]
        assert row.value("baseline_retrieval_share") == pytest.approx(sum(phases) / sum(clocks))
        assert 0 < row.value("baseline_retrieval_share") < 1
    if task == "toy-successors":
        assert row.counters["accepted_tokens"] == pytest.approx(2, rel=0.1)
        assert row.value("exact_match") == 1
        assert row.series["source"] == list(range(3, 25))  # what the task says of each item
        assert row.series["tokens"] == [*range(3, 20), *[20] * 5]  # what the driver says: cut at the limit
        assert row.examples == [{"source": "[3]", "output": "[2, 1, 0]"}]


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("error", "failed", "the reference text is no good: give another"),
        ("bug", "failed", "ZeroDivisionError: a fault of the method"),
        ("crash", "killed", "SIGKILL"),
        ("absent", "skipped", "the toy shop is not installed"),
    ],
)
def test_a_fault_becomes_a_row_and_the_rest_goes_on(toys, tmp_path, fault, status, message):
    lines = f"""
  - {{row: broken, method: toy-unigram, params: {{fault: {fault}}}}}
  - {{row: sound, method: toy-unigram, timed: false}}
"""
    result, _ = run(toys, tmp_path, "toy-text", lines)
    broken, sound = result.rows
    assert broken.status == status
    assert message in broken.error["message"]
    assert sound.status == "ok"
    assert result.exit_code == {"error": 2, "absent": 0}.get(fault, 1)


def test_two_runs_cannot_share_a_folder(toys, tmp_path):
    with only_run_in(tmp_path), pytest.raises(RequestError, match="another run is using"):
        run(toys, tmp_path, "toy-text", "  - {row: a, method: toy-uniform}")


def test_cells_of_equal_parameters_and_other_labels_are_measured_apart(toys, tmp_path):
    lines = "  - {row: a, method: toy-uniform, timed: false}\n  - {row: b, method: toy-uniform, timed: false}"
    result, _ = run(toys, tmp_path, "toy-text", lines)
    assert [row.row for row in result.rows] == ["a", "b"]
    assert not any(result.known)


@pytest.mark.parametrize(("together", "expected"), [("false", [["a", "b"], ["c"]]), ("true", [["a", "b", "c"]])])
def test_cells_of_all_columns_share_processes_if_they_are_timed_together(toys, together, expected):
    lines = """
  - {row: a, column: one, method: toy-uniform}
  - {row: b, column: one, method: toy-unigram, speed_baseline: toy-uniform}
  - {row: c, column: two, method: toy-unigram, params: {pause: 0.01}, speed_baseline: toy-uniform}
"""
    text = RECIPE.format(task="toy-text", cells=lines, timeout=f"9, together: {together}")
    cells = expansion.expand(recipe.parse(text, "toy.yaml"), "mini", toys)
    assert [[cell.row for cell in block] for block in blocks(cells)] == expected


def test_cells_that_fail_together_are_timed_alone_and_a_line_says_so(toys, tmp_path, monkeypatch):
    def failing(mode, request, *rest, **options):
        if mode == "time" and len(request["block"]) > 1:
            return Outcome("killed", {}, "the process was ended by SIGKILL", "", tmp_path / "log", 1)
        return run_step(mode, request, *rest, **options)

    said = []
    monkeypatch.setattr("harness.measure.runner.run_step", failing)
    monkeypatch.setattr("harness.measure.display.Display.line", lambda self, text, style="": said.append(text))
    lines = """
  - {row: a, method: toy-unigram, speed_baseline: toy-uniform}
  - {row: b, method: toy-unigram, params: {pause: 0.01}, speed_baseline: toy-uniform}
"""
    result, _ = run(toys, tmp_path, "toy-text", lines)
    assert [row.status for row in result.rows] == ["ok", "ok"]
    assert [len(row.processes) for row in result.rows] == [2, 2]
    assert "timing 2 cells together failed (the process was ended by SIGKILL); timing each alone" in said


def test_a_run_that_waits_does_so_before_each_block_that_it_times(toys, tmp_path, monkeypatch):
    waited = []
    monkeypatch.setattr("harness.measure.runner.wait_until_quiet", waited.append)
    lines = "  - {row: timed, method: toy-uniform}\n  - {row: not timed, method: toy-uniform, timed: false}"
    run(toys, tmp_path, "toy-text", lines, wait=True)
    assert len(waited) == 1


def test_a_hanging_cell_times_out(toys, tmp_path):
    lines = "  - {row: hanging, method: toy-unigram, params: {fault: hang}}"
    started = time.monotonic()
    result, _ = run(toys, tmp_path, "toy-text", lines, timeout=3.0)
    assert result.rows[0].status == "timeout"
    assert time.monotonic() - started < 15


def test_missing_data_ends_the_run_with_one_line(toys, tmp_path):
    with pytest.raises(RequestError, match="no data"):
        run(toys, tmp_path, "toy-text", "  - {row: a, method: toy-uniform, task: {missing: true}}")


def test_a_task_without_data_fails_its_cells_where_others_have_theirs(toys, tmp_path):
    lines = """
  - {row: a, method: toy-uniform, timed: false}
  - {row: b, method: toy-uniform, task: {missing: true}, timed: false}
  - {row: c, method: toy-uniform, task: {tokens: 2000}, timed: false}
"""
    result, _ = run(toys, tmp_path, "toy-text", lines)
    assert [row.status for row in result.rows] == ["ok", "failed", "ok"] and result.exit_code == 2
    assert "no data at data/toy" in result.rows[1].error["message"]


def test_finished_cells_are_not_run_again_until_something_changes(toys, tmp_path):
    lines = """
  - {row: a, method: toy-unigram, timed: false}
  - {row: b, method: toy-unigram, params: {lambda: 0.5}, timed: false}
"""
    first, _ = run(toys, tmp_path, "toy-text", lines)
    again, heard = run(toys, tmp_path, "toy-text", lines)
    assert (first.known, again.known) == ([False] * 2, [True] * 2)
    assert heard.rows == [] and heard.known == again.rows
    assert [row.started for row in again.rows] == [row.started for row in first.rows]
    changed, _ = run(toys, tmp_path, "toy-text", lines.replace("0.5", "0.6"))
    assert changed.known == [True, False]
    forced, _ = run(toys, tmp_path, "toy-text", lines, fresh=True)
    assert forced.known == [False] * 2


def test_a_repeat_times_other_items_and_all_processes_count(toys, tmp_path):
    lines = "  - {row: a, method: toy-unigram, speed_baseline: toy-uniform, fidelity_baseline: toy-uniform}"
    first, _ = run(toys, tmp_path, "toy-text", lines)
    repeated, heard = run(toys, tmp_path, "toy-text", lines, fresh=True)
    (both,), (own,) = repeated.rows, heard.rows
    assert [process["process"] for process in own.processes] == [2, 3]
    assert [process["process"] for process in both.processes] == [0, 1, 2, 3]
    assert both.value("different_items") == 4 * 2 * 4  # streams that no other process had
    assert all(row.value("memory_mib") > 0 for row in (first.rows[0], own, both))
    again, _ = run(toys, tmp_path, "toy-text", lines)
    assert again.known == [True] and again.rows == [both]
    assert len(RowStore(tmp_path / "rows.jsonl").rows()) == 2


def test_the_same_seed_gives_the_same_numbers(toys, tmp_path):
    lines = "  - {row: a, method: toy-unigram, fidelity_baseline: toy-uniform, timed: false}"
    first, _ = run(toys, tmp_path / "1", "toy-text", lines)
    second, _ = run(toys, tmp_path / "2", "toy-text", lines, fresh=True)
    measured = [{k: v for k, v in r.rows[0].metrics.items() if not k.startswith("fit_")} for r in (first, second)]
    assert measured[0] == measured[1]
    assert first.rows[0].counters == second.rows[0].counters


def workers_on(folder):
    """Command lines of live worker processes whose requests lie under this folder."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "harness.measure.worker" in line and str(folder) in line]


def eventually(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_a_run_killed_half_way_goes_on_without_repeating_finished_cells(toys, tmp_path):
    text = RECIPE.format(
        task="toy-text",
        timeout=60,
        cells="  - {row: a, method: toy-unigram}\n  - {row: b, method: toy-unigram, column: c, params: {pause: 0.05}}",
    )
    (tmp_path / "toy.yaml").write_text(text)
    command = [sys.executable, "-m", "harness", "reproduce", str(tmp_path / "toy.yaml")]
    command += ["--results", str(tmp_path / "results"), "--tracking", "none"]
    rows = tmp_path / "results" / "runs" / "toy" / "mini" / "rows.jsonl"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (rows.exists() and rows.read_bytes().count(b"\n") >= 1):
        assert time.monotonic() < deadline and process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert eventually(lambda: not workers_on(tmp_path)), "a worker outlived its runner"
    before = RowStore(rows).rows()
    assert [row.row for row in before] == ["a"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "finished before" in done.stdout
    after = RowStore(rows).rows()
    assert [row.row for row in after] == ["a", "b"]
    assert after[0] == before[0]


def test_a_demanded_fidelity_that_was_not_measured_does_not_hold(toys, tmp_path):
    lines = """
  - {row: a, method: toy-unigram, speed_baseline: toy-uniform,
     fidelity: {is: exact_match at least 1}}
"""
    result, _ = run(toys, tmp_path, "toy-text", lines)
    assert result.rows[0].is_faithful is False


def test_a_pass_shorter_than_a_batch_fails_the_cell(toys, tmp_path):
    """Otherwise a row would time smaller batches than it names."""
    line = "  - {row: a, method: toy-greedy, task: {batch: 64}, speed_baseline: toy-greedy}"
    row = run(toys, tmp_path, "toy-successors", line)[0].rows[0]
    assert row.status == "failed" and "less than a batch of 64" in row.error["message"]
