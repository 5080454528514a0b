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
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import yaml

from harness.common.errors import MachineError, RequestError
from harness.common.sources import ROOT
from harness.measure.store import RowStore
from harness.plan.expansion import single_name
from harness.plan.registry import Registry
from harness.show.compare import compare

PAIRS = Path(__file__).parent / "plan" / "regressions.yaml"
PASSES = 9  # of each side in a process: three of a fast softmax layer are over in a hundredth of a second
LEAST_ROUNDS = 6  # for an interval
Pair = tuple[str, str]  # method, task
Say = Callable[[str], None]


def pairs(named: Sequence[str], registry: Registry) -> list[Pair]:
    """`METHOD:TASK`, or all of `regressions.yaml` where nothing is named. Raises `RequestError` for unknown names."""
    found: list[Pair] = [(method, task) for method, _, task in (name.partition(":") for name in named)]
    if not found:
        found = [(one["method"], one["task"]) for one in yaml.safe_load(PAIRS.read_text(encoding="utf-8"))]
    for method, task in found:
        registry.entry("method", method)
        registry.entry("task", task)
    return found


def run(against: str, wanted: Sequence[Pair], rounds: int, say: Say) -> pd.DataFrame:
    """Measure a revision and the working tree in turns and compare them (`harness.show.compare.compare`).

    Raises `RequestError` for an unknown revision, too few rounds or a cell that failed, `MachineError` where git is
    missing.
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
                    say(f"round {number + 1}/{rounds}: {pair[0]} on {pair[1]}, {side}")
                    _measure(pair, trees[side], results[side])
        return compare(*results.values())


def unpack(revision: str, folder: Path) -> None:
    """Write a revision's files to a folder."""
    top = _git("rev-parse", "--show-toplevel", said=f"{ROOT} is no checkout: a revision cannot be taken from it")
    if Path(top).resolve() != ROOT:
        raise RequestError(f"{ROOT} is not the top of a checkout, but in {top}: run this from a clone of the bench")
    _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", said=f"{revision!r} is no revision of {ROOT}")
    archive = folder.with_suffix(".zip")
    _git("archive", f"--output={archive}", revision, said=f"{revision} cannot be unpacked")
    shutil.unpack_archive(archive, folder)


def _git(*arguments: str, said: str) -> str:
    """What git prints. Raises `RequestError` with what was tried where it fails."""
    try:
        ended = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
        return ended.stdout.strip()
    except FileNotFoundError:
        raise MachineError("git is not installed: a revision cannot be unpacked") from None
    except subprocess.CalledProcessError as error:
        raise RequestError(f"{said}: {' '.join(error.stderr.split()) or 'git says no more'}") from error


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
