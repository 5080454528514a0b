"""The wheel, in an environment of its own and an empty folder, has all that a command needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from harness.common.sources import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The `bin` folder of a new environment with the wheel in it. The packages that it requires are this environment's:
    they are gigabytes, and how they are installed is not what is tested."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, tracked.split("\0")):
        if name.startswith(("harness/", "methods/", "tasks/", "results/published/")) or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    python = folder / "env" / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    # a folder named in a .pth file is searched, but its own .pth files, such as an editable install's, are not read
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "required.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def call(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HARNESS_PLUGINS")}
    return subprocess.run(
        [str(installed / "harness"), *arguments], cwd=folder, env=known, capture_output=True, text=True, check=False
    )


def test_the_wheel_carries_recipes_published_numbers_and_the_reports_template(installed, tmp_path):
    where = [str(installed / "python"), "-c", "import harness; print(harness.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(installed.parent))  # the wheel's, and not the checkout's
    ended = call(installed, tmp_path, "reproduce", "knnlm-wikitext", "--dry-run", "--json")
    assert ended.returncode == 0, ended.stderr
    assert len(json.loads(ended.stdout)) > 3
    numbers = "from harness.show.published import load; print(len(load(['retomaton/figure3'])))"
    found = subprocess.run(
        [installed / "python", "-c", numbers], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(found.stdout) == 7
    ended = call(installed, tmp_path, "report")
    assert ended.returncode == 0 and "results/report.html" in ended.stdout, ended.stderr


@pytest.mark.slow
def test_a_recipe_runs_from_the_wheel_in_an_empty_folder(installed, tmp_path):
    ended = call(installed, tmp_path, "reproduce", "knnlm-wikitext", "--tracking", "none")
    assert ended.returncode == 0, ended.stderr
    assert "16.65" in ended.stdout and (tmp_path / "results/runs/knnlm-wikitext/mini/table.md").exists()
