"""A step that hangs, dies or leaves children behind becomes an outcome and takes nothing with it."""

import os
import re
import time

import pytest

from harness.measure import environment, executors
from harness.measure.executors import TAIL, run_step

STEPS = '''
"""Analyses that misbehave, each in its own way."""

import os
import subprocess
import sys
import time
from pathlib import Path

from harness.common.errors import RequestError
from harness.plan.registry import analysis
from harness.contracts.tasks import Measure

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@analysis("good", summary="answers")
def good(setting, artifacts, progress):
    progress.update("working", 1, 2)
    return {"threads": Measure(float(os.environ.get("OMP_NUM_THREADS", 0)))}


@analysis("hanging", summary="starts a child and never ends")
def hanging(setting, artifacts, progress, *, pids: str):
    child = subprocess.Popen(SLEEP)
    Path(pids).write_text(f"{os.getpid()} {child.pid}")
    print("about to hang", flush=True)
    time.sleep(600)


@analysis("leaving", summary="ends while its child holds the pipe")
def leaving(setting, artifacts, progress, *, pids: str):
    child = subprocess.Popen(SLEEP, close_fds=False)
    Path(pids).write_text(f"{child.pid}")
    return {"value": Measure(1.0)}


@analysis("talking", summary="writes a long log, then fails")
def talking(setting, artifacts, progress):
    print("the beginning " + "x" * 10_000)
    raise ZeroDivisionError("the last line")


@analysis("dying", summary="is killed")
def dying(setting, artifacts, progress):
    os.kill(os.getpid(), 9)


@analysis("refusing", summary="an error of the request")
def refusing(setting, artifacts, progress):
    raise RequestError("no such data: give another")
'''


@pytest.fixture
def step(toys, tmp_path, monkeypatch):
    """Run an analysis of the package above as one step."""
    package = tmp_path / "plugin" / "steps"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STEPS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "plugin"), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("HARNESS_PLUGINS", "toys,steps")

    def run(name, *, timeout=60.0, **options):
        params = {"pids": str(tmp_path / "pids")} if name in ("hanging", "leaving") else {}
        request = {
            "scale": "mini", "device": "cpu", "seed": 1, "cache": str(tmp_path / "cache"),
            "libraries": environment.libraries(), "task": {"name": "toy-text", "params": {"tokens": 100}},
            "method": {"name": name, "params": params},
        }  # fmt: skip
        return run_step("analysis", request, tmp_path / "logs", name, timeout=timeout, **options)

    return run


def gone(pids):
    """Whether these processes end within a few seconds (a zombie that nobody has reaped yet has ended)."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(map(_runs, pids)):
            return True
        time.sleep(0.05)
    return False


def _runs(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_step_answers_reports_progress_and_gets_its_threads(step):
    updates = []
    outcome = step("good", threads=3, report=updates.append)
    assert (outcome.status, outcome.error, outcome.exit_code) == ("ok", "", 0)
    assert outcome.response["metrics"] == {"threads": 3.0}
    assert any("working" in update.values() for update in updates)


def test_a_timeout_ends_the_step_and_what_it_started(step, tmp_path):
    started = time.monotonic()
    outcome = step("hanging", timeout=4.0)
    assert outcome.status == "timeout" and "no answer within 4 s" in outcome.error
    assert 4.0 <= time.monotonic() - started < 15
    assert "about to hang" in outcome.log
    assert gone(map(int, (tmp_path / "pids").read_text().split()))


def test_a_child_that_holds_the_pipe_does_not_hold_the_run(step, tmp_path):
    started = time.monotonic()
    outcome = step("leaving")
    assert outcome.status == "ok" and outcome.response["metrics"] == {"value": 1.0}
    assert time.monotonic() - started < 30
    assert gone([int((tmp_path / "pids").read_text())])


def test_a_row_keeps_the_end_of_the_log(step):
    outcome = step("talking")
    assert (outcome.status, outcome.exit_code) == ("failed", 1)
    line = STEPS.splitlines().index('    raise ZeroDivisionError("the last line")') + 1
    assert re.fullmatch(rf"ZeroDivisionError: the last line \(\S*plugin/steps/__init__\.py:{line}\)", outcome.error)
    assert "the beginning" in outcome.log_file.read_text()
    assert len(outcome.log) <= TAIL and "the beginning" not in outcome.log and "Traceback" in outcome.log


def test_a_killed_step_says_by_what_and_what_it_may_mean(step):
    outcome = step("dying")
    assert outcome.status == "killed"
    assert outcome.error == "the process was ended by SIGKILL; the machine may be out of memory"


def test_an_error_of_the_request_keeps_its_exit_code(step):
    outcome = step("refusing")
    assert (outcome.status, outcome.error, outcome.exit_code) == ("failed", "no such data: give another", 2)


def test_threads_of_untimed_steps_spin_shortly_unless_the_user_says_how(tmp_path, monkeypatch):
    (tmp_path / "spinning.py").write_text(
        "import json, os, sys\nopen(sys.argv[3], 'w').write(json.dumps({'spin': os.environ.get('GOMP_SPINCOUNT')}))\n"
    )
    monkeypatch.setattr(executors, "WORKER", "spinning")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in executors.SPINNING:
        monkeypatch.delenv(name, raising=False)

    def spin(mode):
        return run_step(mode, {}, tmp_path, mode, timeout=60.0).response["spin"]

    assert {mode: spin(mode) for mode in ("prepare", "build", "fit", "time", "memory")} == {
        "prepare": "3000", "build": "3000", "fit": "3000", "time": None, "memory": None,
    }  # fmt: skip
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert spin("fit") is None


@pytest.mark.parametrize(
    ("given", "tunables", "torch"),
    [
        ({}, "glibc.malloc.hugetlb=1", "1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7"}, "glibc.malloc.tcache_count=7:glibc.malloc.hugetlb=1", "1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0", "THP_MEM_ALLOC_ENABLE": "0"}, "glibc.malloc.hugetlb=0", "0"),
    ],
)
def test_steps_ask_for_huge_pages_unless_the_user_says_otherwise(given, tunables, torch, tmp_path, monkeypatch):
    names = ("GLIBC_TUNABLES", "THP_MEM_ALLOC_ENABLE")
    found = f"{{'found': [os.environ[name] for name in {names}]}}"
    (tmp_path / "paging.py").write_text(f"import json, os, sys\nopen(sys.argv[3], 'w').write(json.dumps({found}))\n")
    monkeypatch.setattr(executors, "WORKER", "paging")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert run_step("time", {}, tmp_path, "time", timeout=60.0).response["found"] == [tunables, torch]
