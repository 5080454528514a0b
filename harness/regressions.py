"""`harness regressions`: a revision and the working tree, interleaved in one job; what got slower or worse by how much.

Every round starts a new process of each side, in turns which first, and all time the same items: the ratio of two
passes over the same items cancels what they cost. A round's slowdown is the median of its passes' ratios, that of the
pair the median over rounds; its interval covers processes and not items; it counts as one where the lower end passes
the threshold. Counters and qualities need no rounds: they are exact, or have intervals. What cannot be compared (other
data, another model, other items, a cell that one side lacks) is said, and counts as a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from harness.common.errors import HarnessError, MachineError, RequestError
from harness.common.sources import ROOT
from harness.common.statistics import order_statistic_interval
from harness.contracts.rows import Row
from harness.measure.store import RowStore
from harness.plan.expansion import single_name
from harness.plan.registry import Registry
from harness.show.compare import SAME_HASHES, Change, quality
from harness.show.report.formats import with_interval

PAIRS = Path(__file__).parent / "plan" / "regressions.yaml"
PASSES = 9  # of each side in a process: three of a fast softmax layer are over in a hundredth of a second
LEAST_ROUNDS = 6  # for an interval of 95%; with 9 it leaves the slowest and the fastest round out
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pair:
    """A method on a task."""

    method: str
    task: str

    @property
    def name(self) -> str:
        return f"{self.method} on {self.task}"


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a pair. slowdown: time of the working tree over that of the revision, of each side that was timed
    (the method, its baseline), with its interval. worse: counters and qualities."""

    pair: Pair
    slowdown: Mapping[str, tuple[float, tuple[float, float]]]
    worse: Sequence[Change]
    unknown: Sequence[str] = ()  # why a cell could not be compared

    def slower(self, threshold: float) -> list[str]:
        """The sides whose slowdown passes the threshold."""
        return [side for side, (_, (low, _)) in self.slowdown.items() if low > threshold]


def pairs(named: Sequence[str], registry: Registry) -> list[Pair]:
    """`METHOD:TASK`, or all of `regressions.yaml` where nothing is named. Raises `RequestError` for unknown names."""
    found = [Pair(*name.partition(":")[::2]) for name in named]
    found = found or [Pair(**one) for one in yaml.safe_load(PAIRS.read_text(encoding="utf-8"))]
    for pair in found:
        registry.entry("method", pair.method)
        registry.entry("task", pair.task)
    return found


def run(against: str, wanted: Sequence[Pair], rounds: int, say: Say) -> list[Judged]:
    """Measure a revision and the working tree in turns and judge them.

    Raises `RequestError` for an unknown revision, too few rounds or a cell that failed, `MachineError` where git is
    missing.
    """
    if rounds < LEAST_ROUNDS:
        raise RequestError(f"{rounds} rounds have no interval: {LEAST_ROUNDS} at least")
    with tempfile.TemporaryDirectory() as folder, checkout(against, Path(folder) / "before") as before:
        trees = {against: before, "working tree": ROOT}
        rows: dict[Pair, dict[str, list[list[Row]]]] = {p: {side: [] for side in trees} for p in wanted}
        for number in range(rounds):
            for pair in wanted:
                for side in list(trees) if number % 2 == 0 else reversed(trees):
                    say(f"round {number + 1}/{rounds}: {pair.name}, {side}")
                    results = Path(folder) / "results" / f"{side == against}-{number}"
                    rows[pair][side].append(_measure(pair, trees[side], results))
    return [judge(pair, *rows[pair].values()) for pair in wanted]


def judge(pair: Pair, before: Sequence[Sequence[Row]], after: Sequence[Sequence[Row]]) -> Judged:
    """The verdict on the rows of all rounds, in the rounds' order: of each round the pair's rows."""
    rounds = [
        ({row["cell"]: row for row in one}, {row["cell"]: row for row in other})
        for one, other in zip(before, after, strict=True)
    ]
    slowdown: dict[str, tuple[float, tuple[float, float]]] = {}
    worse: list[Change] = []
    unknown: list[str] = []
    first = rounds[0]
    for cell in dict.fromkeys([*first[0], *first[1]]):
        if reason := _not_comparable(cell, rounds):
            unknown.append(f"{cell}: {reason}")
            continue
        worse += [change for change in quality(first[0][cell], first[1][cell]) if change.verdict == "worse"]
        ratios = [_slowdown(one[cell], other[cell]) for one, other in rounds]
        if (interval := order_statistic_interval(ratios)) is not None:
            slowdown[cell] = median(ratios), interval
    return Judged(pair, slowdown, worse, unknown)


def _not_comparable(cell: str, rounds: Sequence[tuple[Mapping[str, Row], Mapping[str, Row]]]) -> str:
    """Why the sides of a cell cannot be compared; empty where they can."""
    for sides in rounds:
        if any(cell not in side for side in sides):
            return "one side lacks it"
        one, other = (side[cell] for side in sides)
        if different := [name for name in SAME_HASHES if one["hashes"].get(name) != other["hashes"].get(name)]:
            return f"other {' and '.join(different)}"
        if one["params"] != other["params"]:
            return "other parameters"
        if not (one["timing"] and other["timing"]):
            return "not timed"
        if _items(one) != _items(other):
            return "other items were timed"
    return ""


def _items(row: Row) -> list[Any]:
    return [one["items"] for process in (row["timing"] or {})["processes"] for one in process["pairs"]]


def lines(judged: Sequence[Judged], threshold: float) -> Iterator[str]:
    """What a person reads: one line for each side of each pair, one for each number that got worse."""
    for one in judged:
        slower = one.slower(threshold)
        for side, (value, interval) in one.slowdown.items():
            verdict = "SLOWER" if side in slower else "ok"
            yield f"{verdict:7} {one.pair.name}, {side}: {with_interval(value, interval)} times as long"
        for reason in one.unknown:
            yield f"UNKNOWN {one.pair.name}, {reason}"
        for change in one.worse:
            yield f"WORSE   {one.pair.name}: {change.metric} {change.shown[0]} before, {change.shown[1]} now"


@contextmanager
def checkout(revision: str, folder: Path) -> Iterator[Path]:
    """A revision's files in a folder, for as long as they are needed."""
    top = _git("rev-parse", "--show-toplevel", said=f"{ROOT} is no checkout: a revision cannot be taken from it")
    if Path(top).resolve() != ROOT:
        raise RequestError(f"{ROOT} is not the top of a checkout, but in {top}: run this from a clone of the bench")
    _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", said=f"{revision!r} is no revision of {ROOT}")
    try:
        _git("worktree", "add", "--detach", "--quiet", str(folder), revision, said=f"{revision} cannot be checked out")
        yield folder
    finally:
        with suppress(HarnessError):  # whatever ended this says more
            _git("worktree", "remove", "--force", str(folder), said=f"{folder} cannot be removed")
        with suppress(HarnessError):
            _git("worktree", "prune", said="")


def _git(*arguments: str, said: str) -> str:
    """What git prints. Raises `RequestError` with what was tried where it fails."""
    try:
        ended = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
        return ended.stdout.strip()
    except FileNotFoundError:
        raise MachineError("git is not installed: a revision cannot be checked out") from None
    except subprocess.CalledProcessError as error:
        raise RequestError(f"{said}: {' '.join(error.stderr.split()) or 'git says no more'}") from error


def _measure(pair: Pair, tree: Path, results: Path) -> list[Row]:
    """Rows of one process of a pair, with the code of one tree."""
    command = [
        sys.executable, "-m", "harness", "run", pair.method, pair.task, "--processes", "1", "--pairs", str(PASSES),
        "--fresh", "--tracking", "none", "--results", str(results),
    ]  # fmt: skip
    paths = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run(
        command, cwd=tree, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    rows = RowStore(results / "runs" / single_name(pair.method, pair.task) / "mini" / "rows.jsonl").rows()
    if ended.returncode or not rows or any(row["status"] != "ok" for row in rows):
        told = [row["error"]["message"] for row in rows if row["error"]] or ended.stderr.strip().splitlines()[-1:]
        raise RequestError(f"{pair.name} did not run in {tree}: {'; '.join(told) or 'it said nothing'}")
    return rows


def _slowdown(before: Row, after: Row) -> float:
    """Time of the method's side of a pass, after over before: the median over passes, which are over the same items."""
    return median(now / then for then, now in zip(_passes(before), _passes(after), strict=True))


def _passes(row: Row) -> list[float]:
    """Time of the method's side of each pass."""
    processes: list[dict[str, Any]] = (row["timing"] or {})["processes"]
    return [_sum(one["method_ns"]) for process in processes for one in process["pairs"]]


def _sum(times: Any) -> float:
    return float(sum(map(_sum, times))) if isinstance(times, list) else float(times or 0)


def as_json(judged: Sequence[Judged], threshold: float) -> str:
    """All numbers."""
    return json.dumps(
        [
            {
                "method": one.pair.method, "task": one.pair.task, "slower": one.slower(threshold),
                "slowdown": {side: [value, *interval] for side, (value, interval) in one.slowdown.items()},
                "worse": {change.metric: [change.before, change.after] for change in one.worse},
                "unknown": list(one.unknown),
            }
            for one in judged
        ],
        indent=1,
    )  # fmt: skip
