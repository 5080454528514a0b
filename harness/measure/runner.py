"""Cells -> rows: isolated processes, resume by hash, one row per cell whatever happens to it.

A cell is one fitting process and n timing processes that open its artifacts. Cells of a column share the timing
processes (`blocks`): all of their methods, and one pass of their baseline, on the same items. A cell is not run again
when a row of this machine has its key (`harness.measure.identity`). Each distinct task is prepared once before its
first cell, in a process of its own, because the data's and model's hashes belong to the key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.common import sources
from harness.common.cache import exclusive
from harness.common.errors import MachineError, RequestError
from harness.common.files import digest
from harness.measure import environment
from harness.measure.display import Display
from harness.measure.drivers import DRIVERS, SEQUENCES, Driver
from harness.measure.executors import Outcome, run_step
from harness.measure.identity import Identity, named
from harness.measure.records import objections, of_quality, qualities
from harness.measure.store import RowStore
from harness.measure.usage import disturbance, wait_until_quiet
from harness.plan.cell import Cell
from harness.plan.registry import Registry
from harness.rows import Row


@dataclass(slots=True)
class Result:
    """What a run left: the rows of its cells in order, and of each whether its cell was found finished."""

    rows: list[Row]
    known: list[bool]
    exit_code: int = 0  # the highest of the cells': 1 it failed, 2 it cannot be carried out as given

    @classmethod
    def of(cls, found: Mapping[int, tuple[Row, bool]], exit_code: int) -> Result:
        """found: row and whether it was known, by the cell's number."""
        rows = [found[number] for number in sorted(found)]
        return cls([row for row, _ in rows], [known for _, known in rows], exit_code)


@dataclass(slots=True, eq=False)
class _Started:
    """A cell that is being measured: its row so far, how its last step ended, what its fits left for the others."""

    cell: Cell
    row: Row
    outcome: Outcome
    label: str
    before: dict[str, Any]
    manifests: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


class Runner:
    """Runs the cells of one recipe at one scale. Rows go to `<folder>/rows.jsonl`, logs to `<folder>/logs/`, and
    each row as it comes to `sink`, with whether its cell was found finished."""

    def __init__(
        self, folder: Path, device: str, registry: Registry, display: Display,
        sink: Callable[[Row, bool], None] = lambda row, known: None, *,
        fresh: bool = False, wait: bool = False,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.device = device
        self.registry = registry
        self.display = display
        self.sink = sink
        self.fresh = fresh
        self.wait = wait
        self.identity = Identity(registry, device)
        self.store = RowStore(folder / "rows.jsonl")
        self._code = environment.code_version(sources.ROOT)
        self._prepared: dict[str, Outcome] = {}

    def run(self, cells: Sequence[Cell]) -> Result:
        """Run every cell that has no finished row yet.

        Raises `RequestError` when another run is using the folder or a task cannot be prepared as asked (missing
        data) before another was, and `MachineError` for an environment error in a cell or when its row is written;
        rows already written stay.
        """
        with only_run_in(self.folder):
            return self._run(cells)

    def build(self, cell: Cell, cluster: str) -> None:
        """Build what a cell's methods need into the cache, with parts made on the cluster at this address; measure
        nothing. What fails is left to the cell's run."""
        if self._prepare(cell).status == "ok" and cell.kind != "analysis":
            self._step("build", {**self.identity.request(cell), "cluster": cluster}, f"{_slug(cell)}-build", cell)

    def _run(self, cells: Sequence[Cell]) -> Result:
        found: dict[int, tuple[Row, bool]] = {}
        exit_code = 0
        numbers = {id(cell): number for number, cell in enumerate(cells, 1)}
        for block in blocks(cells):
            before = environment.capture(self.device, copies=True)
            waiting: list[_Started] = []
            for cell in block:
                prepared = self._prepare(cell)
                key = self.identity.key(cell, prepared.response.get("hashes", {}), before)
                done = None if self.fresh or prepared.status != "ok" else self.store.finished(key)
                label = f"[{numbers[id(cell)]}/{len(cells)}] {cell.name}"
                if done is None:
                    waiting.append(_Started(cell, self._answered(cell, prepared, key, label), prepared, label, before))
                    continue
                found[numbers[id(cell)]] = done, True
                self._is_known(label, done)
            broken = ""
            for one in self._measured(waiting):
                self._is_new(row := one.row)
                pooled = self.store.finished(row.hashes["key"]) if row.status == "ok" else None
                found[numbers[id(one.cell)]] = pooled or row, False
                if one.outcome.exit_code == MachineError.exit_code:  # the next block would fare no better
                    broken = one.outcome.error
                if one.outcome.status != "skipped":
                    exit_code = max(exit_code, one.outcome.exit_code)
            if broken:
                raise MachineError(broken)
        return Result.of(found, exit_code)

    def _is_known(self, label: str, row: Row) -> None:
        self.sink(row, True)
        self.display.line(f"{label}: finished before, not run again")
        self.display.advance()

    def _is_new(self, row: Row) -> None:
        self.store.append(row)
        self.sink(row, False)
        self.display.advance()

    # ------------------------------------------------------------ one cell

    def _prepare(self, cell: Cell) -> Outcome:
        """Prepare the cell's task once per run; its hashes belong to the key of every cell on it. A task whose data are
        missing ends a run that has prepared no other; else its cells fail."""
        identity = digest([cell.task.name, cell.task.params, cell.scale, cell.seed])
        if identity not in self._prepared:
            self.display.step(f"preparing {cell.task.name}")
            outcome = self._step(
                "prepare", self.identity.request(cell), f"prepare-{cell.task.name}-{identity[:6]}", cell
            )
            others = any(one.status == "ok" for one in self._prepared.values())
            for error in (MachineError,) if others else (MachineError, RequestError):
                if outcome.status == "failed" and outcome.exit_code == error.exit_code:
                    raise error(outcome.error)
            self._prepared[identity] = outcome
        return self._prepared[identity]

    def _answered(self, cell: Cell, prepared: Outcome, key: str, label: str) -> Row:
        """The row of a cell before anything was measured."""
        self.display.line(f"{label} ...")
        return Row(
            recipe=cell.recipe, row=cell.row, column=cell.column, published=cell.published, scale=cell.scale,
            method=cell.method.name, task=cell.task.name,
            params={"method": cell.method.params, "task": cell.task.params}, seed=cell.seed, device=self.device,
            speed_baseline=named(cell.speed_baseline), fidelity_baseline=named(cell.fidelity_baseline),
            hashes={**prepared.response.get("hashes", {}), "cell": cell.hash, "key": key},
            facts=prepared.response.get("facts", {}), code=self._code, equal=cell.timing.equal,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip

    def _measured(self, block: Sequence[_Started]) -> Iterator[_Started]:
        """The cells of a block, fitted one by one and timed together."""
        for one in block:
            clock = time.monotonic()
            if one.outcome.status == "ok":
                (self._analyse if one.cell.kind == "analysis" else self._fit)(one)
            one.seconds += time.monotonic() - clock
        timed = [one for one in block if one.outcome.status == "ok" and one.cell.timed]
        if timed and self.wait:
            wait_until_quiet(self.display.line)
        clock = time.monotonic()
        if timed:
            self._time(timed)
        for one in block:
            seconds = one.seconds + (time.monotonic() - clock) / len(timed) * (one in timed) if timed else one.seconds
            yield self._ended(one, seconds)

    def _ended(self, one: _Started, seconds: float) -> _Started:
        outcome = one.outcome
        told = {"message": outcome.error, "log": outcome.log.replace(str(Path.home()), "~")}
        one.row = replace(
            one.row, status=outcome.status, error=None if outcome.status == "ok" else told, seconds=seconds,
            environment={"before": one.before, "after": environment.capture(self.device)},
        )  # fmt: skip
        self.display.line(
            f"{one.label}: {headline(one.row)}  ({seconds:.0f} s)",
            {"ok": "", "skipped": "yellow"}.get(outcome.status, "red"),
        )
        if outcome.status not in ("ok", "skipped"):
            self.display.line(f"    log: {outcome.log_file}", "red")
        return one

    def _analyse(self, one: _Started) -> None:
        cell = one.cell
        one.outcome = self._step("analysis", self.identity.request(cell), f"{_slug(cell)}-analysis", cell)
        if one.outcome.status == "ok":
            response = one.outcome.response
            parts = ("metrics", "intervals", "counters", "described", "examples", "ratios")
            one.row = replace(one.row, **{part: response[part] for part in parts})
            one.manifests = [response["manifests"]]

    def _fit(self, one: _Started) -> None:
        """Fit a cell, as often as a random fit asks for, and ask for the answers of the quality pass."""
        cell, row, request = one.cell, one.row, self.identity.request(one.cell)
        fits: list[dict[str, Any]] = []
        wanted = 1
        while len(fits) < wanted:
            number = len(fits)
            self.display.step(f"{cell.name}, fitting" + (f" {number + 1} of {wanted}" if wanted > 1 else ""))
            answers = str(self._answers(row, f"quality{number}"))
            one.outcome = self._step(
                "fit", {**request, "fit": number, "answers": answers}, f"{_slug(cell)}-fit{number}", cell
            )
            if one.outcome.status != "ok":
                return
            fits.append(one.outcome.response)
            wanted = cell.timing.fits if fits[0]["random"] else 1
        one.manifests = [fit["manifests"] for fit in fits]
        one.row = replace(
            row, **of_quality(cell, fits, self._driver(cell).demands),
            ratios={name: asdict(ratio) for name, ratio in self._driver(cell).ratios.items()} | fits[0]["ratios"],
            timing_counters=fits[0]["timing_counters"], fitted_once=fits[0]["random"] and len(fits) == 1,
        )  # fmt: skip

    def _time(self, block: Sequence[_Started]) -> None:
        """Run the timing processes of a block, which open in turn what its cells' fits built. Cells of a block that
        fails are timed again one by one, so that each has an outcome of its own."""
        cell, before = block[0].cell, environment.capture(self.device)
        timing, baseline = cell.timing, _baseline(block)
        done = max(self._processes(one.row.hashes["key"]) for one in block)  # a repeat draws other items
        name = digest([one.row.hashes["key"] for one in block] + [block[0].row.started])
        responses: list[list[dict[str, Any]]] = []
        memory = self._memory(block) if timing.processes > 1 else []
        for process in range(done, done + timing.processes):
            others = f" and {len(block) - 1} more" if len(block) > 1 else ""
            self.display.step(f"{cell.name}{others}, process {process - done + 1} of {timing.processes}")
            request = {
                **self.identity.request(cell), "speed_baseline": baseline, "process": process,
                "name": f"{name}-{process}",
                "block": [
                    {
                        "method": asdict(one.cell.method), "fit": process % len(one.manifests),
                        "is_baseline": baseline is not None and one.cell.speed_baseline is None,
                        "fidelity_baseline": asdict(one.cell.fidelity_baseline) if one.cell.fidelity_baseline else None,
                        "manifests": one.manifests[process % len(one.manifests)],
                        "answers": str(self._answers(one.row, f"time{process}")),
                    } for one in block
                ],
            }  # fmt: skip
            outcome = self._step("time", request, f"{_slug(cell)}-time{process}", cell, times=len(block))
            if outcome.status != "ok" and len(block) > 1:
                self.display.line(
                    f"timing {len(block)} cells together failed ({outcome.error}); timing each alone", "yellow"
                )
                for one in block:
                    self._time([one])
                return
            block[0].outcome = outcome
            if outcome.status != "ok":
                return
            responses.append([{**row, "process": process} for row in outcome.response["rows"]])
        changes = environment.changed(before, environment.capture(self.device))
        for place, one in enumerate(block):
            processes = [each[place] for each in responses]
            if memory:
                processes[0]["memory_mib"] = memory[place]
            files = [self._answers(one.row, f"time{each['process']}") for each in processes]
            one.row = replace(
                one.row, processes=processes, disturbed=disturbance(each["quiet"] for each in processes),
                objections=objections(one.cell, one.row, self._driver(one.cell), files, processes, changes),
            )  # fmt: skip

    def _memory(self, block: Sequence[_Started]) -> list[dict[str, float | None]]:
        """Peak memory of each method of a block and of the baseline, each in a process of its own; empty for a timed
        analysis, whose sides are opened together, and where a process fails: that ends no cell."""
        if block[0].cell.kind == "analysis":
            return []
        cell, baseline = block[0].cell, _baseline(block)
        peaks: dict[str, float | None] = {}

        def peak(method: Mapping[str, Any], manifest: Mapping[str, Any]) -> float | None:
            if (key := digest(dict(method))) not in peaks:
                self.display.step(f"{method['name']}, memory")
                request = {**self.identity.request(cell), "wanted": method, "manifest": manifest}
                outcome = self._step("memory", request, f"{_slug(cell)}-memory-{key[:6]}", cell)
                peaks[key] = outcome.response.get("memory_mib")
            return peaks[key]

        found = []
        for one in block:
            mine = {"method": peak(asdict(one.cell.method), one.manifests[0]["method"])}
            if baseline is not None and one.cell.speed_baseline is not None:
                mine["speed_baseline"] = peak(baseline, one.manifests[0]["speed_baseline"])
            found.append(mine)
        return found

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

    def _step(self, mode: str, request: dict[str, Any], label: str, cell: Cell, times: int = 1) -> Outcome:
        """Run a step. times: how many cells' time limits it has."""
        # At mini all steps run on the cell's threads: two of them that train a tiny model mostly wait for each other.
        threads = cell.timing.threads if mode in ("time", "memory") or cell.scale == "mini" else None
        return run_step(
            mode, request, self.folder / "logs", label,
            timeout=times * cell.timing.timeout, threads=threads, report=self.display.report,
        )  # fmt: skip


def blocks(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells that are timed in the same processes, against one pass of one baseline: those of a column (of all
    columns, if they are timed `together`) with the same task, baseline and timing. The baseline's own cell is one of
    them. Everything else is a block of its own."""
    found: dict[str, list[Cell]] = {}
    for number, cell in enumerate(cells):
        baseline = cell.speed_baseline or cell.method
        column = "" if cell.timing.together else cell.column
        same = [column, asdict(cell.task), asdict(baseline), cell.timing.model_dump(), cell.seed]
        alone = [number] if cell.kind == "analysis" or not cell.timed else []
        found.setdefault(digest([*same, *alone]), []).append(cell)
    return list(found.values())


def _baseline(block: Sequence[_Started]) -> dict[str, Any] | None:
    """The baseline of a block; None for a cell without one that is timed alone."""
    known = [one.cell.speed_baseline for one in block if one.cell.speed_baseline is not None]
    return asdict(known[0]) if known else asdict(block[0].cell.method) if len(block) > 1 else None


def headline(row: Row) -> str:
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


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Hold a run folder for one run. Raises `RequestError` when another holds it: two would read each other's logs."""
    with ExitStack() as held:
        try:
            held.enter_context(exclusive(folder / ".lock", wait=False))
        except BlockingIOError:
            raise RequestError(f"another run is using {folder}; wait for it or choose another --results") from None
        except OSError as error:
            raise MachineError(
                f"cannot write to {folder}: {error.strerror or error}; choose another --results"
            ) from error
        yield
