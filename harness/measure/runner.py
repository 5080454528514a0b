"""Cells -> rows: isolated processes, resume by hash, one row per cell whatever happens to it.

A cell is one fitting process and n timing processes that open its artifacts. It is not run again when a row of this
machine has its key (`harness.measure.identity`). Each distinct task is prepared once before its first cell, in a
process of its own, because the data's and model's hashes belong to the key.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from harness.common import sources
from harness.common.cache import Cache
from harness.common.errors import MachineError, RequestError
from harness.common.files import digest
from harness.measure import environment
from harness.measure.display import Display
from harness.measure.drivers import DRIVERS, SEQUENCES, Driver
from harness.measure.executors import LocalExecutor, Outcome
from harness.measure.identity import Identity, named
from harness.measure.records import objections, of_quality, qualities
from harness.measure.store import RowStore
from harness.measure.usage import disturbance
from harness.plan.cell import Cell
from harness.plan.registry import Registry
from harness.rows import Row


class RowSink(Protocol):
    """Receives rows as they come (tracking)."""

    def row(self, row: Row) -> None:
        """A cell was measured."""

    def finished(self, row: Row) -> None:
        """A cell was found finished and is not run again."""


@dataclass(slots=True)
class Result:
    """What a run left: the rows of its cells in order, and how many were found finished."""

    rows: list[Row]
    resumed: int
    exit_code: int = 0  # the highest of the cells': 1 it failed, 2 it cannot be carried out as given


class Runner:
    """Runs the cells of one recipe at one scale. Rows go to `<folder>/rows.jsonl`, logs to `<folder>/logs/`."""

    def __init__(
        self, folder: Path, device: str, registry: Registry, display: Display, sink: RowSink, *,
        fresh: bool = False, cache: Cache | None = None, executor: LocalExecutor | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.device = device
        self.registry = registry
        self.display = display
        self.sink = sink
        self.fresh = fresh
        self.identity = Identity(registry, device, (cache or Cache()).root)
        self.executor = executor or LocalExecutor()
        self.store = RowStore(folder / "rows.jsonl")
        self._code = environment.code_version(sources.ROOT)
        self._prepared: dict[str, Outcome] = {}

    def run(self, cells: Sequence[Cell]) -> Result:
        """Run every cell that has no finished row yet.

        Raises `RequestError` when another run is using the folder or a task's preparation shows that the request
        cannot be carried out (missing data), and `MachineError` for an environment error in a cell or when its row
        is written; rows already written stay.
        """
        with only_run_in(self.folder):
            return self._run(cells)

    def build(self, cell: Cell, cluster: str) -> None:
        """Build what a cell's methods need into the cache, with parts made on the cluster at this address; measure
        nothing. What fails is left to the cell's run."""
        if self._prepare(cell).status == "ok" and cell.kind != "analysis":
            self._step("build", {**self.identity.request(cell), "cluster": cluster}, f"{_slug(cell)}-build", cell)

    def _run(self, cells: Sequence[Cell]) -> Result:
        rows: list[Row] = []
        resumed = exit_code = 0
        for number, cell in enumerate(cells, 1):
            before = environment.capture(self.device)
            prepared = self._prepare(cell)
            hashes = prepared.response.get("hashes", {})
            key = self.identity.key(cell, hashes, before)
            done = None if self.fresh or prepared.status != "ok" else self.store.finished(key)
            label = f"[{number}/{len(cells)}] {cell.name}"
            if done is not None:
                resumed += 1
                rows.append(done)
                self.sink.finished(done)
                self.display.line(f"{label}: finished before, not run again")
            else:
                row, outcome = self._measure(cell, prepared, key, before, label)
                self.store.append(row)
                self.sink.row(row)
                rows.append(self.store.finished(key) or row if row.status == "ok" else row)
                if outcome.exit_code == MachineError.exit_code:  # the next cell would fare no better
                    raise MachineError(outcome.error)
                if outcome.status != "skipped":
                    exit_code = max(exit_code, outcome.exit_code)
            self.display.advance()
        return Result(rows, resumed, exit_code)

    # ------------------------------------------------------------ one cell

    def _prepare(self, cell: Cell) -> Outcome:
        """Prepare the cell's task once per run; its hashes belong to the key of every cell on it."""
        identity = digest([cell.task.name, cell.task.params, cell.scale, cell.seed])
        if identity not in self._prepared:
            self.display.step(f"preparing {cell.task.name}")
            outcome = self._step(
                "prepare", self.identity.request(cell), f"prepare-{cell.task.name}-{identity[:6]}", cell
            )
            if outcome.status == "failed" and outcome.exit_code in (2, 3):
                raise (RequestError if outcome.exit_code == 2 else MachineError)(outcome.error)
            self._prepared[identity] = outcome
        return self._prepared[identity]

    def _measure(
        self, cell: Cell, prepared: Outcome, key: str, before: dict[str, Any], label: str
    ) -> tuple[Row, Outcome]:
        started, clock = datetime.now(UTC), time.monotonic()
        self.display.line(f"{label} ...")
        row = Row(
            recipe=cell.recipe, row=cell.row, column=cell.column, published=cell.published, scale=cell.scale,
            method=cell.method.name, task=cell.task.name,
            params={"method": cell.method.params, "task": cell.task.params}, seed=cell.seed, device=self.device,
            speed_baseline=named(cell.speed_baseline), fidelity_baseline=named(cell.fidelity_baseline),
            hashes={**prepared.response.get("hashes", {}), "cell": cell.hash, "key": key},
            facts=prepared.response.get("facts", {}),
            code=self._code, started=started.isoformat(timespec="seconds"),
        )  # fmt: skip
        outcome = prepared
        if outcome.status == "ok":
            row, outcome = self._run_analysis(cell, row) if cell.kind == "analysis" else self._run_pair(cell, row)
        error = None if outcome.status == "ok" else {"message": outcome.error, "log": _scrub(outcome.log)}
        row = replace(
            row, status=outcome.status, error=error, seconds=time.monotonic() - clock,
            environment={"before": before, "after": environment.capture(self.device)},
        )  # fmt: skip
        self.display.line(
            f"{label}: {_headline(row)}  ({row.seconds:.0f} s)",
            {"ok": "", "skipped": "yellow"}.get(outcome.status, "red"),
        )
        if outcome.status not in ("ok", "skipped"):
            self.display.line(f"    log: {outcome.log_file}", "red")
        return row, outcome

    def _run_analysis(self, cell: Cell, row: Row) -> tuple[Row, Outcome]:
        outcome = self._step("analysis", self.identity.request(cell), f"{_slug(cell)}-analysis", cell)
        if outcome.status != "ok":
            return row, outcome
        response = outcome.response
        parts = ("metrics", "intervals", "counters", "described", "examples")
        row = replace(row, **{part: response[part] for part in parts}, ratios=response["ratios"])
        return self._time(cell, row, [response["manifests"]]) if cell.timed else (row, outcome)

    def _run_pair(self, cell: Cell, row: Row) -> tuple[Row, Outcome]:
        request = self.identity.request(cell)
        fits: list[dict[str, Any]] = []
        wanted = 1
        while len(fits) < wanted:
            number = len(fits)
            self.display.step(f"{cell.name}, fitting" + (f" {number + 1} of {wanted}" if wanted > 1 else ""))
            answers = str(self._answers(row, f"quality{number}"))
            fitted = self._step(
                "fit", {**request, "fit": number, "answers": answers}, f"{_slug(cell)}-fit{number}", cell
            )
            if fitted.status != "ok":
                return row, fitted
            fits.append(fitted.response)
            wanted = cell.timing.fits if fitted.response["random"] else 1
        row = replace(
            row, **of_quality(cell, fits, self._driver(cell).demands),
            ratios={name: asdict(ratio) for name, ratio in self._driver(cell).ratios.items()} | fits[0]["ratios"],
            timing_counters=fits[0]["timing_counters"], fitted_once=fits[0]["random"] and len(fits) == 1,
        )  # fmt: skip
        return self._time(cell, row, [fit["manifests"] for fit in fits]) if cell.timed else (row, fitted)

    def _time(self, cell: Cell, row: Row, manifests: Sequence[dict[str, Any]]) -> tuple[Row, Outcome]:
        """Run the timing processes of a cell, which open what its fits built in turn; the row with their samples."""
        request, before = self.identity.request(cell), environment.capture(self.device)
        responses: list[dict[str, Any]] = []
        done = self._processes(row.hashes["key"])  # a repeat draws other items
        for process in range(done, done + cell.timing.processes):
            self.display.step(f"{cell.name}, process {process - done + 1} of {cell.timing.processes}")
            fit = process % len(manifests)
            timed = {
                **request, "process": process, "swap": process // len(manifests) % 2 == 1, "memory": process == done,
                "fit": fit, "manifests": manifests[fit],
                "answers": str(self._answers(row, f"time{process}")),
            }  # fmt: skip
            outcome = self._step("time", timed, f"{_slug(cell)}-time{process}", cell)
            if outcome.status != "ok":
                return row, outcome
            responses.append({**outcome.response, "process": process, "fit": fit})
        after = environment.capture(self.device)
        files = [self._answers(row, f"time{response['process']}") for response in responses]
        changes = environment.changed(before, after)
        return replace(
            row, processes=responses, disturbed=disturbance(response["quiet"] for response in responses),
            objections=objections(cell, row, self._driver(cell), files, responses, changes),
        ), outcome  # fmt: skip

    def _processes(self, key: str) -> int:
        """Timing processes of this cell in earlier rows of the same key."""
        return sum(len(row.processes) for row in self.store.rows() if row.hashes.get("key") == key)

    def _driver(self, cell: Cell) -> Driver:
        """What compares the answers of the cell's sides."""
        if cell.kind == "analysis":
            return SEQUENCES
        return DRIVERS[self.registry.entry("method", cell.method.name).contract]

    def _answers(self, row: Row, part: str) -> Path:
        """Where the answers of a row's pass are kept; another key's are other files."""
        return self.folder / "answers" / f"{_readable(row.cell)}-{row.hashes['key'][:8]}-{part}.npz"

    def _step(self, mode: str, request: dict[str, Any], label: str, cell: Cell) -> Outcome:
        # At mini all steps run on the cell's threads: two of them that train a tiny model mostly wait for each other.
        threads = cell.timing.threads if mode == "time" or cell.scale == "mini" else None
        return self.executor.run(
            mode, request, self.folder / "logs", label,
            timeout=cell.timing.timeout, threads=threads, report=self.display.report,
        )  # fmt: skip


def _headline(row: Row) -> str:
    """The row in a few words, for the line that stays on the terminal."""
    if row.status != "ok":
        return f"{row.status}: {(row.error or {}).get('message', '')}"
    parts = [f"{name} {value:.4g}" for name, value in list(qualities(row).items())[:2]]
    if row.speedup is not None:
        parts.append(f"speedup {row.speedup:.3g}x ({row.decision})")
    return ", ".join(parts)


def _slug(cell: Cell) -> str:
    return f"{_readable(cell.name)}-{digest([cell.row, cell.column, cell.method.params])[:6]}"


def _readable(name: str) -> str:
    """A cell's name as a part of a file's."""
    return "".join(c if c.isalnum() else "-" for c in name.lower())[:48]


def _scrub(log: str) -> str:
    """A log without this user's home folder in its paths."""
    return log.replace(str(Path.home()), "~")


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Hold a run folder for one run. Raises `RequestError` when another holds it: two would read each other's logs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "w")  # noqa: SIM115 - opening is what may fail here
    except OSError as error:
        raise MachineError(f"cannot write to {folder}: {error.strerror or error}; choose another --results") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RequestError(f"another run is using {folder}; wait for it or choose another --results") from None
        yield
