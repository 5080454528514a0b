"""The doctor names what is missing and what to do about it."""

import json
import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from harness import doctor
from harness.measure import environment


def test_the_report_covers_the_machine_without_importing_heavy_libraries(tmp_path):
    code = (
        "import sys; from harness import doctor; doctor.show(doctor.report(), as_json=True)\n"
        "assert not {'mlflow', 'faiss'} & set(sys.modules)"
    )
    variables = os.environ | {"HARNESS_DATA": "/does/not/exist", "HARNESS_CACHE": str(tmp_path / "cache")}
    answer = json.loads(subprocess.check_output([sys.executable, "-c", code], env=variables, text=True))
    checks = {check["name"]: check for check in answer}
    assert "GB/s" in checks["cpu"]["text"]
    assert {"python", "packages", "cpu", "memory", "threads", "gpu", "cache", "tracking"} <= set(checks)
    assert checks["data"]["state"] == "problem" and "/does/not/exist" in checks["data"]["text"]


@pytest.mark.parametrize(
    ("variables", "state", "words"),
    [
        ({}, "ok", "all 4 cores"),
        ({"OMP_NUM_THREADS": "1"}, "warn", "set NUMBA_NUM_THREADS=1 as well"),
        ({"OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}, "ok", "NUMBA_NUM_THREADS=2"),
        ({"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}, "warn", "different numbers"),
        ({"OMP_NUM_THREADS": "8", "NUMBA_NUM_THREADS": "8"}, "warn", "more threads than the 4"),
        ({"OMP_WAIT_POLICY": "passive"}, "warn", "unset it"),
        ({"OMP_WAIT_POLICY": "active"}, "ok", "OMP_WAIT_POLICY=active"),
    ],
)
def test_thread_settings_that_mislead_timings_are_named(variables, state, words):
    check = doctor._threads(variables, 4)
    assert check.state == state and words in check.text


def test_data_folders_are_listed_with_their_sets(tmp_path):
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "README.md").write_text("")
    (check,) = doctor._data([tmp_path])
    assert (check.state, check.text) == ("ok", f"{tmp_path}: wikitext-2")
    (unset,) = doctor._data([])
    assert "mini needs none" in unset.text


def test_absent_packages_and_other_versions_than_the_pinned_are_named():
    ours = environment.DISTRIBUTION
    needed = {doctor._name(line): "1" for line in requires(ours) or [] if "extra ==" not in line}
    (missing,) = doctor._packages({}, {})
    assert missing.state == "problem"
    assert "not installed" in missing.text and "numpy" in doctor._packages({ours: "1"}, {})[0].text
    complete = {ours: "1", **needed, "torch": "2.13.0+cpu"}
    assert [one.state for one in doctor._packages(complete, {"torch": "2.13.0", "elsewhere": "3"})] == ["ok"]
    (check,) = doctor._packages(complete, {"torch": "2.13.0", "numpy": "2.4"})
    assert check.state == "warn" and check.text.endswith(": numpy 1 (checked with 2.4)")


def test_an_absent_package_without_which_much_works_says_what_that_means():
    ours = environment.DISTRIBUTION
    needed = {doctor._name(line): "1" for line in requires(ours) or [] if "extra ==" not in line}
    fewer = {ours: "1", **needed}
    del fewer["mlflow"], fewer["faiss-cpu"]
    checks = {check.name: check for check in doctor._packages(fewer, {})}
    assert checks["packages"].state == "ok" and "exact search still works" in checks["faiss-cpu"].text
    assert checks["mlflow"].state == "warn" and "--tracking none" in checks["mlflow"].text
    assert "faiss-cpu" not in {check.name for check in doctor._packages(fewer | {"faiss-gpu": "1.9"}, {})}


def test_pins_are_read_from_constraints(tmp_path):
    file = tmp_path / "constraints.txt"
    file.write_text("# a comment\ntorch==2.13.0\nnumpy == 2.4.6  # note\n-e .\n")
    assert doctor._constraints(file) == {"torch": "2.13.0", "numpy": "2.4.6"}
    assert doctor._constraints(tmp_path / "absent") == {}


def test_the_size_of_a_cache_that_does_not_exist_is_nothing(tmp_path):
    check = doctor._cache(tmp_path / "not" / "there")
    assert check.text.startswith(f"{tmp_path}/not/there: 0 bytes used") and Path(tmp_path / "not").exists() is False
