"""Artifacts are built once, whole or not at all, whoever asks at the same time and however the build ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.common import sources
from harness.common.cache import Cache, CellArtifacts, SharedResults
from harness.common.errors import MachineError, RequestError
from harness.common.files import digest, write_atomically

BUILDER = """
import os, sys, time
from pathlib import Path
from harness.common.cache import Cache

root, log = map(Path, sys.argv[1:])

def build(folder):
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")
    (folder / "first").write_text("1")
    time.sleep(0.5)
    (folder / "second").write_text("2")

path = Cache(root).build("index", {"k": 1}, build)
print(sorted(p.name for p in path.iterdir()))
"""
full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")


def fill(folder):
    (folder / "part").write_text("whole")


def test_two_processes_that_ask_at_once_share_one_build(tmp_path):
    (tmp_path / "builder.py").write_text(BUILDER)
    command = [sys.executable, str(tmp_path / "builder.py"), str(tmp_path / "cache"), str(tmp_path / "log")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert answers == ["['first', 'key.json', 'second']\n"] * 2
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_a_build_that_fails_leaves_nothing_that_looks_whole_and_can_be_taken_up(tmp_path):
    cache = Cache(tmp_path)

    def failing(folder):
        fill(folder)
        raise ValueError("half-way")

    with pytest.raises(ValueError, match="half-way"):
        cache.build("index", {"k": 1}, failing)
    assert not list(tmp_path.glob("index/*/key.json"))
    found = []
    path = cache.build("index", {"k": 1}, lambda folder: found.append((folder / "part").exists()))
    assert found == [True] and (path / "part").read_text() == "whole"


def test_a_process_killed_while_building_leaves_nothing_that_looks_whole(tmp_path):
    code = BUILDER.replace("time.sleep(0.5)", "os.kill(os.getpid(), 9)")
    (tmp_path / "builder.py").write_text(code)
    command = [sys.executable, str(tmp_path / "builder.py"), str(tmp_path), str(tmp_path / "log")]
    done = subprocess.run(command, check=False)
    assert done.returncode == -9
    path = Cache(tmp_path).build("index", {"k": 1}, fill)
    assert (path / "part").read_text() == "whole"


def test_another_key_is_another_folder_and_the_order_of_a_key_does_not_matter(tmp_path):
    cache = Cache(tmp_path)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    path = cache.build("a", {"k": 1}, fill)
    assert cache.build("a", {"k": 2}, fill) != path
    assert json.loads((path / "key.json").read_text())["key"] == {"k": 1}


def test_a_value_is_made_once_by_the_code_that_makes_it(tmp_path):
    calls = []

    def made():
        calls.append(1)
        return {"hash": "abc", "sizes": [1, 2]}

    assert [Cache(tmp_path).value("facts", {"k": 1}, made) for _ in range(2)] == [{"hash": "abc", "sizes": [1, 2]}] * 2
    assert len(calls) == 1
    [record] = (json.loads(file.read_text()) for file in tmp_path.glob("facts/*/key.json"))
    assert record["code"] == sources.built_by(made)


@full_disk
def test_a_full_disk_is_one_line_that_says_what_to_do(tmp_path):
    def build(folder):
        (folder / "large").symlink_to("/dev/full")
        (folder / "large").write_text("x")

    with pytest.raises(MachineError, match="No space left on device; free space or set HARNESS_CACHE"):
        Cache(tmp_path).build("index", {"k": 1}, build)
    assert not list(tmp_path.glob("index/*/key.json"))


@full_disk
def test_a_text_that_does_not_fit_on_the_disk_leaves_the_old_one(tmp_path):
    file = tmp_path / "table.md"
    write_atomically(file, "old")
    file.with_name(f"table.md.{os.getpid()}.partial").symlink_to("/dev/full")
    with pytest.raises(MachineError, match="No space left on device"):
        write_atomically(file, "new")
    assert file.read_text() == "old"


def test_a_cache_that_is_a_file_is_the_machines_fault(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(MachineError, match="set HARNESS_CACHE"):
        Cache(tmp_path / "cache").build("index", {"k": 1}, fill)


def test_a_manifest_opens_what_was_built_without_building(tmp_path):
    fitted = CellArtifacts(Cache(tmp_path))
    built = fitted.build("index", {"k": 1}, fill)
    fitted.values["tau"] = 0.5
    opened = CellArtifacts(Cache(tmp_path), **json.loads(json.dumps(fitted.manifest())))
    assert opened.path("index") == built and opened.values == {"tau": 0.5}
    with pytest.raises(RequestError, match="no artifact 'store' was built by fit; built: index"):
        opened.path("store")


def test_the_cost_of_an_artifact_from_the_cache_is_that_of_building_it(tmp_path):
    first, second = CellArtifacts(Cache(tmp_path)), CellArtifacts(Cache(tmp_path))
    for artifacts in (first, second):
        artifacts.build("index", {"k": 1}, fill)
    assert second.cost == first.cost > 0


def test_shared_arrays_are_computed_once_and_mapped(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"ids": np.arange(6).reshape(2, 3)}

    for _ in range(2):
        arrays = SharedResults(Cache(tmp_path)).arrays("neighbours", {"k": 3}, compute)
    assert len(calls) == 1
    assert isinstance(arrays["ids"], np.memmap) and arrays["ids"].tolist() == [[0, 1, 2], [3, 4, 5]]
