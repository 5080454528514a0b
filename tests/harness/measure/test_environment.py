"""The environment record names what rules out a speed claim, and nothing that names the machine's owner."""

import copy
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.common.cores import usable_cores
from harness.measure import environment
from harness.rows import machine_id

GIB = 2**30


@pytest.fixture
def quiet() -> dict:
    captured = copy.deepcopy(environment.capture())
    return {**captured, "load": [0.5, 0.5, 0.5], "memory": {"total": 16 * GIB, "available": 12 * GIB}}


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A program of that name that answers as the real one does; this machine need not have a GPU."""

    def install(processes: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(
            '#!/bin/sh\ncase "$1" in *compute-apps*) printf "%b" "' + processes + '";;\n'
            '*) echo "NVIDIA H200, 570.1, 143771";; esac\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def test_a_capture_is_json_cheap_and_anonymous():
    environment.capture()
    started = time.perf_counter()
    text = json.dumps(environment.capture())
    assert time.perf_counter() - started < 0.05
    assert socket.gethostname() not in text and str(Path.home()) not in text
    captured = json.loads(text)
    assert captured["cores"]["usable"] == usable_cores() >= 1
    assert captured["libraries"]["numpy"] and captured["memory"]["total"] > captured["memory"]["available"] > 0


def test_capturing_imports_no_measured_library():
    code = (
        "import sys; from harness.measure import environment; environment.capture()\n"
        "print({'torch', 'numpy'} & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_nothing_changed_between_two_quiet_captures(quiet):
    assert environment.changed(quiet, copy.deepcopy(quiet)) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("threads", "OMP_NUM_THREADS"), "7", "OMP_NUM_THREADS None -> 7"),
        (("cores", "usable"), 999, "usable"),
        (("libraries", "torch"), "0.1", "-> 0.1"),
        (("memory", "available"), GIB, "available memory fell from 12.0 to 1.0 GiB"),
        (("gpu_processes",), [{"pid": 1, "name": "train", "memory_mib": 1.0}], "other processes on the GPU: train"),
        (("gpu_processes",), None, "cannot be seen"),
        (("kernel",), "0.1", "kernel"),
    ],
)
def test_each_disturbance_is_named(quiet, monkeypatch, path, value, words):
    quiet["threads"] = {}
    after = copy.deepcopy(quiet)
    place = after
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (reason,) = environment.changed(quiet, after)
    assert words in reason


def test_a_gpu_process_that_was_there_all_along_still_counts(quiet):
    quiet["gpu_processes"] = [{"pid": 1, "name": "train", "memory_mib": 1.0}]
    assert environment.changed(quiet, copy.deepcopy(quiet)) == ["other processes on the GPU: train"]


def test_own_gpu_processes_are_told_from_foreign_ones(nvidia_smi):
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)  # a child: ours, whatever its session
    try:
        nvidia_smi(f"{os.getpid()}, python, 100\\n{stranger.pid}, python, 5\\n2, /opt/a,b/train, [N/A]\\n")
        captured = environment.capture("cuda")
    finally:
        stranger.kill()
        stranger.wait()
    assert captured["gpus"] == [{"name": "NVIDIA H200", "driver": "570.1", "memory_mib": 143771.0}]
    assert captured["gpu_processes"] == [{"pid": 2, "name": "train", "memory_mib": None}]


def test_a_gpu_that_cannot_be_asked_is_unknown_not_empty(monkeypatch):
    monkeypatch.setenv("PATH", "")
    captured = environment.capture("cuda:0")
    assert captured["gpus"] is None and captured["gpu_processes"] is None


def test_the_machine_id_follows_what_makes_timings_comparable(quiet):
    other = copy.deepcopy(quiet) | {"load": [9.0] * 3, "libraries": {}, "kernel": "x"}
    assert machine_id(other) == machine_id(quiet)
    other["cpu"] = {"model": "another"}
    assert machine_id(other) != machine_id(quiet)


def test_the_source_digest_follows_content_and_names_but_not_the_place(tmp_path):
    for place in ("here", "there"):
        (tmp_path / place / "pkg").mkdir(parents=True)
        (tmp_path / place / "pkg" / "a.py").write_text("x = 1\n")
    here, there = (environment.source_digest([tmp_path / place / "pkg"]) for place in ("here", "there"))
    assert here == there
    (tmp_path / "there" / "pkg" / "a.py").rename(tmp_path / "there" / "pkg" / "b.py")
    assert environment.source_digest([tmp_path / "there" / "pkg"]) != here
    (tmp_path / "here" / "pkg" / "a.py").write_text("x = 2\n")
    assert environment.source_digest([tmp_path / "here" / "pkg"]) != here


def test_dirty_means_that_sources_differ_from_the_revision(tmp_path):
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.check_output(["git", "-C", tmp_path, *identity, *arguments], text=True).strip()

    assert environment.code_version(tmp_path)["revision"] is None
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "a.py").write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "notes.txt").write_text("a note is no code")
    version = environment.code_version(tmp_path)
    assert version["revision"] == git("rev-parse", "HEAD") and version["dirty"] is False
    (tmp_path / "harness" / "new.py").write_text("")
    assert environment.code_version(tmp_path)["dirty"] is True


def test_an_installation_inside_another_repository_has_no_revision(tmp_path):
    subprocess.check_call(["git", "init", "-q", str(tmp_path)])
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.check_call(["git", "-C", str(tmp_path), *identity, "commit", "-q", "--allow-empty", "-m", "first"])
    inside = tmp_path / "site-packages"
    (inside / "harness").mkdir(parents=True)
    found = environment.code_version(inside)
    assert found["revision"] is None and found["dirty"] is None
    assert environment.code_version(tmp_path)["revision"]


def test_libraries_name_installed_versions_and_cannot_be_changed_by_a_caller():
    environment.libraries().clear()
    assert environment.libraries()["numpy"] == environment.capture()["libraries"]["numpy"]
