"""`harness regressions`: a revision and the working tree, measured in turns and compared as `harness compare` does.

Every round starts a new process of each side, in turns which first. The rounds of a side are repeats of one row, and
both sides draw the same items in the same round, so that the comparison pairs them. A slowdown of a method and of its
baseline alike cancels out: the benchmarks of single parts in `tests/benchmarks` find it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import yaml

from harness.common.errors import RequestError
from harness.common.sources import ROOT
from harness.measure import environment
from harness.measure.store import RowStore
from harness.plan.expansion import single_name
from harness.plan.registry import Registry
from harness.show.compare import compare

PAIRS = Path(__file__).parent / "plan" / "regressions.yaml"
PASSES = 9  # of each side in a process: three of a fast softmax layer are over in a hundredth of a second
LEAST_ROUNDS = 6  # for an interval
Pair = tuple[str, str]  # method, task


def pairs(named: Sequence[str], registry: Registry) -> list[Pair]:
    """`METHOD:TASK`, or all of `regressions.yaml` where nothing is named. Raises `RequestError` for unknown names."""
    found: list[Pair] = [(method, task) for method, _, task in (name.partition(":") for name in named)]
    if not found:
        found = [(one["method"], one["task"]) for one in yaml.safe_load(PAIRS.read_text(encoding="utf-8"))]
    for method, task in found:
        registry.entry("method", method)
        registry.entry("task", task)
    return found


def run(against: str, wanted: Sequence[Pair], rounds: int) -> pd.DataFrame:
    """Measure a revision and the working tree in turns and compare them (`harness.show.compare.compare`).

    Raises `RequestError` for an unknown revision, too few rounds or a cell that failed.
    """
    if rounds < LEAST_ROUNDS:
        raise RequestError(f"{rounds} rounds have no interval: {LEAST_ROUNDS} at least")
    with tempfile.TemporaryDirectory() as folder:
        unpack(against, before := Path(folder) / "before")
        trees = {against: before, "working tree": ROOT}
        results = {side: Path(folder) / f"results-{number}" for number, side in enumerate(trees)}
        for number in range(rounds):
            for pair in wanted:
                for side in list(trees) if number % 2 == 0 else reversed(trees):
                    print(f"round {number + 1}/{rounds}: {pair[0]} on {pair[1]}, {side}", file=sys.stderr, flush=True)
                    _measure(pair, trees[side], results[side])
        return compare(*results.values())


def unpack(revision: str, folder: Path) -> None:
    """Write a revision's files to a folder."""
    if environment.code_version(ROOT)["revision"] is None:  # also without git
        raise RequestError(f"{ROOT} is not the top of a git checkout: run this from a clone of the bench, with git")
    archive = folder.with_suffix(".zip")
    commit = f"{revision}^{{commit}}"  # not a folder of one
    command = ["git", "archive", f"--output={archive}", "--", commit]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RequestError(f"{revision!r} cannot be unpacked: {' '.join(ended.stderr.split())}")
    shutil.unpack_archive(archive, folder)


def _measure(pair: Pair, tree: Path, results: Path) -> None:
    """Add one process of a pair, with the code of one tree, to its rows."""
    command = [
        sys.executable, "-m", "harness", "run", *pair, "--processes", "1", "--pairs", str(PASSES),
        "--fresh", "--tracking", "none", "--results", str(results),
    ]  # fmt: skip
    paths = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run(
        command, cwd=tree, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    try:
        rows = RowStore(results / "runs" / single_name(*pair) / "mini" / "rows.jsonl").rows()
    except RequestError as error:
        raise RequestError(f"rows of {tree} cannot be compared with today's: {error}") from None
    if ended.returncode or not rows or any(row.status != "ok" for row in rows):
        told = [row.error["message"] for row in rows if row.error] or ended.stderr.strip().splitlines()[-1:]
        raise RequestError(f"{' on '.join(pair)} did not run in {tree}: {'; '.join(told) or 'it said nothing'}")
