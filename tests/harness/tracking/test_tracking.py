"""Every row reaches MLflow, at once or when it is sent later, and a run never ends because of tracking."""

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.cli import main
from harness.common.errors import RequestError
from harness.machine import describe
from harness.measure import environment
from harness.measure.store import RowStore
from harness.plan.recipe import parse
from harness.plan.schema import Claim, Recipe
from harness.rows import Row
from harness.show.claims import Verdict, Verdicts
from harness.tracking.mlflow import Tracker, _locked, open_tracker, send_missing
from tests.harness.rows import new_row, processes

ENVIRONMENT = environment.capture()
CELLS = "cells: [{row: LM, method: lm}]"


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    text = f"name: demo\ntitle: a demo\npaper: none\nsource: here\ntask: {{name: toy}}\n{CELLS}\n"
    return parse(text, "demo.yaml")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("results") / "runs"


@pytest.fixture(scope="module")
def tracker(root) -> Tracker:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        return open_tracker(None, root)


def row(name: str = "kNN-LM", **known) -> Row:
    values = {
        "recipe": "demo", "row": name, "column": "FoSS=0", "scale": "mini", "method": "knnlm", "task": "toy",
        "params": {"method": {"k": 8}, "task": {"model": "tiny"}}, "seed": 1, "device": "cpu",
        "metrics": {"perplexity": 12.5, "broken": float("nan")}, "counters": {"searches": 7.0},
        "speed_baseline": {"method": "lm", "params": {}}, "environment": {"before": ENVIRONMENT, "after": ENVIRONMENT},
        "hashes": {"data": "d" * 64, "model": "m" * 20, "key": "k"}, "facts": {"corpus": "wiki", "tokens": 10},
        "code": {"revision": "abc"}, "series": {"edit_ratio": [0.1, 0.3]},
        "started": "2026-01-01T00:00:00+00:00", "seconds": 3.0, "timing_counters": {"rollbacks": 3.0},
        "disturbed": "other processes took 0.30 of a core",
        "processes": [
            {**process, "phases": {"method": {"seconds": {"search": 0.5}}}}
            for process in processes(2.5, shape=(6, 4), spread=0.2, noise=1.1, seconds=2.0)
        ],
    }  # fmt: skip
    return new_row(**(values | known))


def test_an_invocation_reads_back_as_a_parent_with_one_nested_run_per_cell(tracker, recipe, root, tmp_path):
    table = tmp_path / "table.md"
    table.write_text("# table")
    with tracker.invocation(recipe, "mini", "cpu") as invocation:
        invocation.row(row())
        invocation.row(row("AdaptRet", status="killed", error={"message": "out of memory", "log": "the end"}))
        invocation.files([table, tmp_path / "absent.svg"])
    experiment = tracker.client.get_experiment_by_name("demo")
    runs = {run.info.run_name: run for run in tracker.client.search_runs([experiment.experiment_id])}
    parent, good, bad = (
        runs.pop(next(n for n in runs if n.startswith("mini cpu"))),
        *map(runs.get, ("kNN-LM / FoSS=0", "AdaptRet / FoSS=0")),
    )
    assert (parent.info.status, good.info.status, bad.info.status) == ("FAILED", "FINISHED", "KILLED")
    assert {run.data.tags["mlflow.parentRunId"] for run in (good, bad)} == {parent.info.run_id}
    low, high = row().interval_of("speedup")
    assert low < row().speedup < high
    expected = {
        "perplexity": 12.5, "speedup": row().speedup, "speedup_low": low, "speedup_high": high, "searches": 7.0,
        "phase.method.search_s": 0.5, "cell_s": 3.0, "noise_floor": 1.1,
        "different_items": 120, "timed_items": 120, "outliers": 0, "timing.rollbacks": 3,
    }  # fmt: skip
    assert {name: good.data.metrics.get(name) for name in expected} == pytest.approx(expected)
    assert "broken" not in good.data.metrics
    assert {"method.k": "8", "task.model": "tiny", "row": "kNN-LM"}.items() <= good.data.params.items()
    told = {
        "decision": "faster", "status": "ok", "revision": "abc", "processes x pairs": "6 x 4",
        "disturbed": "other processes took 0.30 of a core", "machine": describe(ENVIRONMENT),
    }  # fmt: skip
    assert told.items() <= good.data.tags.items() and "above the noise floor" in good.data.tags["reason"]
    assert json.loads(good.data.tags["environment"]) == ENVIRONMENT
    history = tracker.client.get_metric_history(good.info.run_id, "process_speedup")
    ratios = [2.5 * (0.8 + 0.08 * number) for number in range(6)]
    assert [(point.step, point.value) for point in history] == [(n, pytest.approx(r)) for n, r in enumerate(ratios)]
    history = tracker.client.get_metric_history(good.info.run_id, "pair_speedup")
    assert [point.value for point in history] == pytest.approx([ratio for ratio in ratios for _ in range(4)])
    history = tracker.client.get_metric_history(good.info.run_id, "process_wall_clock_s")
    assert [point.value for point in history] == pytest.approx([2.0] * 6)
    history = tracker.client.get_metric_history(good.info.run_id, "series.edit_ratio")
    assert [(point.step, point.value) for point in history] == [(0, 0.1), (1, 0.3)]
    inputs = tracker.client.get_run(good.info.run_id).inputs
    assert [d.dataset.name for d in inputs.dataset_inputs] == ["wiki"] and len(inputs.model_inputs) == 1
    assert [f.path for f in tracker.client.list_artifacts(parent.info.run_id)] == ["table.md"]
    assert bad.data.tags["error"] == "out of memory" and [
        f.path for f in tracker.client.list_artifacts(bad.info.run_id)
    ] == ["error.txt"]
    assert (root / "mlartifacts" / "demo").is_dir()


def parent_of(tracker, scale):
    experiment = tracker.client.get_experiment_by_name("demo").experiment_id
    found = tracker.client.search_runs([experiment], filter_string=f"run_name LIKE '{scale} cpu%'")
    return found[0]  # the newest


def test_the_parent_of_a_resumed_run_names_the_runs_of_the_rows_it_did_not_measure(tracker, recipe, tmp_path):
    rows = [row(name, hashes={"key": f"key of {name}"}) for name in ("twice (a)", "once", "elsewhere")]
    rows.append(row("failed", hashes={"key": "key of failed"}, status="failed"))
    with tracker.invocation(recipe, "mini", "cpu") as invocation:
        for number in (0, 0, 1, 3):  # the first cell was measured twice
            invocation.row(rows[number])
    with tracker.invocation(recipe, "mini", "cpu") as invocation:
        for one in rows:
            invocation.finished(one)
    experiment = tracker.client.get_experiment_by_name("demo").experiment_id
    runs = tracker.client.search_runs([experiment], order_by=["attributes.start_time ASC"])
    sent = {
        name: [r.info.run_id for r in runs if r.info.run_name == f"{name} / FoSS=0"] for name in ("twice (a)", "once")
    }
    tags = parent_of(tracker, "mini").data.tags
    assert sorted(tags["finished.twice _a_ / FoSS_0"].split(", ")) == sorted(sent["twice (a)"])
    assert len(sent["twice (a)"]) == 2 and [tags["finished.once / FoSS_0"]] == sent["once"]
    assert tags["finished.elsewhere / FoSS_0"] == "no run in this store, key key of elsewhere"
    assert tags["finished.failed / FoSS_0"] == "no run in this store, key key of failed"


def test_a_run_and_its_resumption_are_tracked_from_the_command_line(tracker, root, toys, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    text = """
name: tracked-toy
title: a toy
paper: none
source: none
task: {name: toy-text}
timing: {processes: 1, pairs: 1}
cells: [{row: uniform, method: toy-uniform}, {row: unigram, method: toy-unigram, speed_baseline: toy-uniform}]
claims:
  - {text: it counts, source: s, of: {method: toy-unigram}, is: perplexity below, than: {method: toy-uniform}}
"""
    file = tmp_path / "tracked-toy.yaml"
    file.write_text(text)
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            main(["reproduce", str(file), "--results", str(root.parent)])
        assert end.value.code == 0
    experiment = tracker.client.get_experiment_by_name("tracked-toy").experiment_id
    runs = tracker.client.search_runs([experiment], order_by=["attributes.start_time ASC"])
    cells = {run.info.run_name: run for run in runs if "mlflow.parentRunId" in run.data.tags}
    first, resumed = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert set(cells) == {"unigram", "uniform"} and len(runs) == 4
    links = {name: value for name, value in resumed.data.tags.items() if name.startswith("finished.")}
    assert links == {f"finished.{name}": run.info.run_id for name, run in cells.items()}
    assert not any(name.startswith("finished.") for name in first.data.tags)
    for parent in (first, resumed):
        assert parent.data.metrics["claims.holds"] == 1
        table = Path(tracker.client.download_artifacts(parent.info.run_id, "table.md")).read_text()
        assert "it counts" in table


def test_verdicts_are_logged_as_counts(tracker, recipe, tmp_path):
    def verdict(text, outcome):
        condition = {"text": text, "source": "section 4", "of": {"method": "knnlm"}, "is": "bleu below 1"}
        return Verdict(Claim.model_validate(condition), "mini", outcome, f"{text}, in numbers")

    verdicts = Verdicts([verdict("a", "holds"), verdict("b", "not settled"), verdict("c", "holds")])
    with tracker.invocation(recipe, "small", "cpu") as invocation:
        invocation.verdicts(verdicts)
    parent = parent_of(tracker, "small")
    counted = {"holds": 2, "does_not_hold": 0, "no_difference_shown": 0, "not_settled": 1, "not_tested": 0}
    assert parent.data.metrics == {f"claims.{name}": number for name, number in counted.items()}
    with tracker.invocation(recipe, "small", "cpu") as invocation:
        invocation.verdicts(Verdicts(targets=[verdict("d", "does not hold")]))
    metrics = parent_of(tracker, "small").data.metrics
    assert len(metrics) == 5 and metrics["targets.does_not_hold"] == 1


def test_a_model_is_registered_once_per_experiment(tracker, recipe, tmp_path):
    for _ in range(2):
        with tracker.invocation(recipe, "mini", "cpu") as invocation:
            invocation.row(row(hashes={"model": "one"}))
    experiment = tracker.client.get_experiment_by_name("demo").experiment_id
    assert len(tracker.client.search_logged_models([experiment], filter_string="tags.hash = 'one'")) == 1


def test_rows_go_on_when_the_store_dies_in_the_middle_and_are_sent_later(tmp_path, tracker, recipe, capsys):
    """The store is a database whose folder disappears under a tracker of its own."""
    import shutil

    store = RowStore(tmp_path / "results" / "demo" / "mini" / "rows.jsonl")
    shutil.copytree(Path(tracker.uri.removeprefix("sqlite:///")).parent, tmp_path / "store")
    dying = Tracker(f"sqlite:///{tmp_path}/store/mlflow.db", tmp_path / "store" / "artifacts")
    rows = {name: row(name, started=f"2026-02-01T00:00:0{place}+00:00") for place, name in enumerate(("1", "2", "3"))}
    for one in rows.values():
        store.append(one)
    with dying.invocation(recipe, "mini", "cpu") as invocation:
        invocation.row(rows["1"])
        (tmp_path / "store" / "mlflow.db").write_bytes(b"not a database any more" * 1000)
        for name in ("2", "3"):
            invocation.row(rows[name])
        invocation.finished(row("fourth"))
        invocation.verdicts(Verdicts())
        invocation.files([tmp_path])
    warning = capsys.readouterr().err
    assert warning.count("warning: tracking to") == 1 and "harness sync" in warning

    with pytest.raises(RequestError, match="failed again"):
        send_missing(tmp_path / "results", dying)

    with tracker.invocation(recipe, "mini", "cpu") as invocation:
        invocation.row(rows["1"])
    experiment = tracker.client.get_experiment_by_name("demo").experiment_id
    begun = tracker.client.create_run(experiment, start_time=1769904001000, run_name="2 / FoSS=0")  # never ended
    assert send_missing(tmp_path / "results", tracker) == 2
    assert send_missing(tmp_path / "results", tracker) == 0
    sent = [run.info for run in tracker.client.search_runs([experiment]) if run.info.run_id != begun.info.run_id]
    assert [[info.run_name for info in sent].count(f"{name} / FoSS=0") for name in rows] == [1, 1, 1]


def test_trackers_that_start_together_make_one_experiment(tracker, monkeypatch):
    others = [Tracker(tracker.uri, tracker._artifacts) for _ in range(2)]
    for other in others:
        find = other.client.get_experiment_by_name
        monkeypatch.setattr(
            other.client, "get_experiment_by_name", lambda name, find=find: (find(name), time.sleep(0.3))[0]
        )
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda other: other.experiment("together", "a title"), others)
    assert first == second


def test_only_a_database_file_has_a_lock_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for uri in ("sqlite:///:memory:", "sqlite://", "http://localhost:5000"):
        with _locked(uri):
            assert not list(tmp_path.iterdir())
    for number, prefix in enumerate(("sqlite:///", "sqlite+pysqlite:///")):
        with _locked(f"{prefix}{tmp_path}/{number}.db?timeout=5"):
            assert (tmp_path / f"{number}.db.lock").exists()


def test_an_error_of_the_run_itself_passes_through_and_marks_the_parent(tracker, recipe, tmp_path):
    with pytest.raises(KeyboardInterrupt), tracker.invocation(recipe, "mini", "cuda"):
        raise KeyboardInterrupt
    experiment = tracker.client.get_experiment_by_name("demo").experiment_id
    (parent,) = tracker.client.search_runs([experiment], filter_string="tags.device = 'cuda'")
    assert parent.info.status == "KILLED"


def test_none_records_nothing_and_imports_no_mlflow(tmp_path):
    code = (
        "import sys; from pathlib import Path; from harness.tracking.mlflow import open_tracker\n"
        f"t = open_tracker('none', Path({str(tmp_path)!r}))\n"
        "with t.invocation(None, 'mini', 'cpu') as i:\n"
        "    i.row({}); i.finished({}); i.verdicts(None); i.files([])\n"
        "print(sorted({'mlflow', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
    assert not any(tmp_path.iterdir())
    assert open_tracker("none", tmp_path).client is None


def test_without_mlflow_the_error_says_how_to_go_on(tmp_path):
    code = (
        "import sys; sys.modules['mlflow'] = None\n"
        "from pathlib import Path; from harness.common.errors import RequestError\n"
        "from harness.tracking.mlflow import open_tracker\n"
        f"try: open_tracker(None, Path({str(tmp_path)!r}))\n"
        "except RequestError as error: print(error)"
    )
    assert "--tracking none" in subprocess.check_output([sys.executable, "-c", code], text=True)


GONE = "http://user:secret@127.0.0.1:9/"  # port 9: nobody listens there


def test_a_run_goes_on_when_the_server_is_away_from_the_start_and_sync_sends_its_rows_later(
    tracker, root, toys, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    files = []
    for name in ("away-one", "away-two"):
        cells = "cells: [{row: uniform, method: toy-uniform, timed: false}]"
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(f"name: {name}\ntitle: t\npaper: none\nsource: s\ntask: {{name: toy-text}}\n{cells}\n")
    results = ["--results", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *map(str, files), *results, "--tracking", GONE])
    assert ended.value.code == 0
    said = capsys.readouterr().err
    assert said.count("warning: tracking to") == 1 and "secret" not in said and "harness sync" in said
    for name in ("away-one", "away-two"):
        folder = tmp_path / "runs" / name / "mini"
        assert [one.row for one in RowStore(folder / "rows.jsonl").rows()] == ["uniform"]

    with pytest.raises(SystemExit) as ended:
        main(["sync", *results, "--tracking", GONE])
    assert ended.value.code == 2
    for number in (2, 0):
        with pytest.raises(SystemExit) as ended:
            main(["sync", *results, "--tracking", tracker.store])
        assert ended.value.code == 0 and f"{number} rows sent" in capsys.readouterr().out


def test_a_store_that_does_not_answer_is_named_without_its_password(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(RequestError, match="does not answer") as caught:
        open_tracker(GONE, tmp_path).answering()
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_uri_that_no_store_can_be_made_of_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(RequestError, match="no-such-store://host cannot be opened"):
        open_tracker("no-such-store://host", tmp_path)


def test_runs_that_begin_at_once_open_a_new_database_one_after_the_other(tmp_path, monkeypatch):
    opened = []

    class Client:
        def __init__(self, tracking_uri):
            opened.append("begins")
            time.sleep(0.05)  # the tables are created
            opened.append("done")

    monkeypatch.setattr("mlflow.tracking.MlflowClient", Client)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    several = [threading.Thread(target=open_tracker, args=(None, tmp_path / "runs")) for _ in range(3)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert opened == ["begins", "done"] * 3
