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
from harness.machine import describe, machine_id
from harness.measure import environment

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
        (("cores", "usable"), 999, "'usable': 999"),
        (("gpus",), None, "gpus: [] -> None"),
        (("memory", "available"), GIB, "available memory fell from 12.0 to 1.0 GiB"),
        (("gpu_processes",), [{"pid": 1, "name": "train", "memory_mib": 1.0}], "other processes on the GPU: train"),
        (("gpu_processes",), None, "cannot be seen"),
    ],
)
def test_each_disturbance_is_named(quiet, monkeypatch, path, value, words):
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


PROCESSOR = {
    "model": "AMD EPYC", "vendor": "AuthenticAMD", "family": "25", "number": "17", "stepping": "1",
    "instructions": ["avx2", "avx512f", "avx512_bf16", "avx512_vnni"],
    "caches": {"l1d_kib": 32, "l2_kib": 1024, "l3_kib": 32768}, "copy_gb_s": 14.2,
}  # fmt: skip
MACHINE = {"cores": {"usable": 2, "total": 2}, "memory": {"total": 24 * GIB}, "gpus": [], "os": "Linux x86_64"}


def test_processors_of_one_model_name_are_told_apart_by_what_they_can():
    one = {**MACHINE, "cpu": PROCESSOR}
    faster = {**MACHINE, "cpu": PROCESSOR | {"copy_gb_s": 15.0}}
    assert machine_id(one) == machine_id(faster)  # what was measured tells no machine apart
    others = [
        {"instructions": ["avx2"]}, {"caches": {"l3_kib": 1024}}, {"number": "1"}, {"family": "26"}, {"model": "Xeon"},
    ]  # fmt: skip
    assert len({machine_id({**MACHINE, "cpu": PROCESSOR | other}) for other in [{}, *others]}) == 6


def test_a_row_from_before_the_processor_was_named_has_the_id_it_had():
    assert machine_id({**MACHINE, "cpu": {"model": "AMD EPYC"}}) == "42ee5fb11321"  # of the committed rows


def test_a_machine_is_described_by_what_decides_its_speed():
    assert describe({**MACHINE, "cpu": PROCESSOR}) == (
        "AMD EPYC (family 25 model 17), AVX-512 BF16 VNNI, 32 MiB L3, 2 of 2 cores, 24 GiB, copies 14 GB/s"
    )
    assert describe({**MACHINE, "cpu": {"model": "AMD EPYC"}}) == "AMD EPYC, 2 of 2 cores, 24 GiB"
    arm = {"model": "Neoverse", "instructions": ["asimd", "sve", "bf16", "i8mm"]}
    assert describe({**MACHINE, "cpu": arm}).startswith("Neoverse, SVE BF16 I8MM, 2 of")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon  X\n"
            "stepping\t: 8\nflags\t\t: fpu avx2 avx512f amx_bf16\n\nprocessor\t: 1\nstepping\t: 9\n",
            {"model": "Xeon X", "vendor": "GenuineIntel", "family": "6", "number": "143", "stepping": "8",
             "instructions": ["avx2", "avx512f", "amx_bf16"]},
        ),
        (
            "processor\t: 0\nFeatures\t: fp asimd i8mm\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n",
            {"vendor": "0x41", "number": "0xd40", "instructions": ["asimd", "i8mm"]},
        ),
    ],
)  # fmt: skip
def test_the_processor_is_read_from_the_first_core(monkeypatch, tmp_path, text, expected):
    for name, kind, level, size in (("index0", "Data", 1, "48K"), ("index1", "Instruction", 1, "32K"),
                                    ("index2", "Unified", 2, "2048K")):  # fmt: skip
        (tmp_path / name).mkdir()
        for part, value in (("type", kind), ("level", level), ("size", size)):
            (tmp_path / name / part).write_text(f"{value}\n")
    read = environment.contents
    monkeypatch.setattr(environment, "CACHES", tmp_path)
    monkeypatch.setattr(environment, "contents", lambda path: text if path == "/proc/cpuinfo" else read(path))
    found = environment._processor.__wrapped__()
    assert found.items() >= expected.items() and found["caches"] == {"l1d_kib": 48, "l2_kib": 2048}


def test_copies_are_timed_once_and_compare_as_no_change(monkeypatch, quiet):
    monkeypatch.setattr(environment, "COPIED", 2**20)
    environment.bandwidth.cache_clear()
    try:
        first = environment.capture(copies=True)["cpu"]["copy_gb_s"]
        assert 0.1 < first < 10_000 and environment.capture(copies=True)["cpu"]["copy_gb_s"] == first
    finally:
        environment.bandwidth.cache_clear()
    measured = {**quiet, "cpu": {**quiet["cpu"], "copy_gb_s": first}}
    assert environment.changed(measured, quiet) == [] and "copy_gb_s" not in environment.capture()["cpu"]


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
