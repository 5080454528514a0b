"""One invocation of the command line, from a recipe's name to its table: expand, run, show, track, judge."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from harness.common.errors import HarnessError, MachineError, RequestError, unknown
from harness.contracts.tasks import SCALES, Scale
from harness.measure.display import Display
from harness.options import Options
from harness.plan import expansion
from harness.plan import recipe as recipes
from harness.plan.cell import Cell
from harness.plan.parameters import parse_overrides
from harness.plan.registry import Registry
from harness.plan.schema import Recipe
from harness.rows import Row

if TYPE_CHECKING:
    from harness.show.claims import Verdicts
    from harness.tracking.mlflow import Tracker


ALL = "all"  # the name that stands for every recipe


class Planned(NamedTuple):
    """A recipe and its cells at a scale. took: seconds of those cells that were measured before, with these parameters
    on this device."""

    recipe: Recipe
    cells: list[Cell]
    took: list[float]


def reproduce(names: Sequence[str], options: Options, registry: Registry, require_claims: bool = False) -> int:
    """Run recipes (those of the first run when none is named; every one for `all`) and return the exit code.
    require_claims: 1 when a claim does not hold."""
    if (every := ALL in names) and len(names) > 1:
        raise RequestError(f"{ALL!r} stands for every recipe: name no other")
    chosen = sorted(recipes.files(registry)) if every else names or first_run(registry)
    wanted = [recipes.load(name, registry) for name in chosen]
    overrides = parse_overrides(options.overrides or ())
    scale = checked_scale(options.scale)
    planned = [_planned(recipe, expansion.expand(recipe, scale, registry, overrides), options) for recipe in wanted]
    if every:
        planned.sort(key=_turn)
    code = _carry_out(planned, options, registry, require_claims)
    if not names and not options.dry_run and not options.as_json:
        try:
            report(options.results, registry)
        except HarnessError as error:  # what was measured stands, whatever becomes of the page
            print(f"warning: no report: {error}", file=sys.stderr)
    return code


def run(method: str, task: str, options: Options, registry: Registry) -> int:
    """Measure one method on one task and return the exit code."""
    overrides = parse_overrides(options.overrides or ())
    planned = expansion.single(method, task, checked_scale(options.scale), registry, overrides)
    return _carry_out([_planned(*planned, options)], options, registry)


def report(results: Path, registry: Registry) -> None:
    """Write the page over all stored rows and print its path."""
    from harness.common.progress import Progress
    from harness.show import page

    print(f"Report: {page.write(results, registry, Progress('report, '))[0]}")


def first_run(registry: Registry) -> list[str]:
    """Names of the recipes that run when none is named: one of each paper, the quickest first; and those of models that
    are installed as packages."""
    every = [recipes.load(name, registry) for name in sorted(recipes.files(registry))]

    def complete(recipe: Recipe) -> bool:
        try:
            return all(map(version, recipe.packages))
        except PackageNotFoundError:
            return False

    return [one.name for one in sorted(every, key=lambda one: one.first_run) if one.first_run and complete(one)]


def checked_scale(name: str) -> Scale:
    """The scale of this name. Raises `RequestError` for another name."""
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return name


def _planned(recipe: Recipe, cells: list[Cell], options: Options) -> Planned:
    """Narrows the cells to the processes and pairs asked for, and looks up how long they took before."""
    from harness.show import stored

    with warnings.catch_warnings(action="ignore"):  # of rows that cannot be read the run itself says so
        found = stored.rows_of(recipe.name, cells[0].scale, options.results, stored.KINDS).values()
    rows = sorted((row for kind in found for row in kind if row.status == "ok"), key=lambda row: row.started or "")
    took = {(row.hashes.get("cell"), row.device): row.seconds or 0.0 for row in rows}
    cells = expansion.narrow(cells, options.processes, options.pairs)
    return Planned(recipe, cells, [took[key] for cell in cells if (key := (cell.hash, options.device)) in took])


def _turn(one: Planned) -> tuple[int, float]:
    """By this `all` sorts recipes: those whose cells were all measured before, the quickest first; those of which some
    were; the others."""
    return (0 if len(one.took) == len(one.cells) else 1 if one.took else 2), sum(one.took)


def _carry_out(planned: Sequence[Planned], options: Options, registry: Registry, require_claims: bool = False) -> int:
    from harness.show.formats import duration

    console = console_for_people(stderr=options.as_json)  # with --json, standard output is for the rows alone
    total = sum(len(one.cells) for one in planned)
    if len(planned) > 1 and (took := [seconds for one in planned for seconds in one.took]):
        console.print(f"{len(took)} of {total} cells were measured before, in {duration(sum(took))}", highlight=False)
    if options.dry_run:
        _show_plan(planned, options)
        return 0
    from harness.show import terminal
    from harness.tracking.mlflow import open_tracker

    _check_device(options.device)
    if options.executor not in ("local", "ray"):
        raise unknown("executor", options.executor, ("local", "ray"), "--executor")
    if options.wait and options.executor != "local":
        raise RequestError("--wait looks at this machine: leave it out with --executor ray")
    tracker = open_tracker(options.tracking, options.results / "runs")
    code = 0
    rows: list[Any] = []
    judged: list[tuple[str, Verdicts]] = []
    refused: list[str] = []
    with Display(console, total) as display:
        for place, one in enumerate(planned, 1):
            of_all = f"{place}/{len(planned)} " if len(planned) > 1 else ""
            display.begin(f"{of_all}{one.recipe.name} ({one.cells[0].scale})")
            try:
                recipe_rows, verdicts, recipe_code = _one(one, options, registry, tracker, console, display)
            except RequestError as error:  # data or a model that are not here: the next recipe may have its own
                if len(planned) == 1:
                    raise
                refused.append(f"error: {one.recipe.name} cannot run: {error}")
                display.line(refused[-1], "red")
                code = max(code, error.exit_code)
                for _ in one.cells:
                    display.advance()
                continue
            rows += recipe_rows
            judged.append((one.recipe.name, verdicts))
            code = max(code, recipe_code, int(require_claims and not verdicts.met))
    if len(judged) > 1:
        console.print()
        terminal.show_summary(judged, console)
    for line in refused:  # again, after what the others printed
        console.print(line, style="red", soft_wrap=True)
    if options.as_json:
        print(json.dumps([row.as_json() | row.following() for row in rows], indent=1))
    return code


def console_for_people(stderr: bool = False) -> Console:
    """Where tables go."""
    width = None if os.environ.get("COLUMNS") or os.isatty(1) else 160
    # no markup: brackets may be of a path or of what a user calls a row
    return Console(stderr=stderr, markup=False, emoji=False, width=width)


def _one(
    planned: Planned, options: Options, registry: Registry, tracker: Tracker, console: Console, display: Display
) -> tuple[list[Any], Verdicts, int]:
    """Run one recipe and show it; the table is written whatever became of the cells. Rows of other machines, those
    committed under `measured` included, are shown apart."""
    from harness.machine import machine_id
    from harness.measure import environment
    from harness.measure.cluster import ClusterRunner
    from harness.measure.runner import Runner
    from harness.show import claims, figure, frame, markup, published, stored, tables, terminal

    recipe, cells, _ = planned
    scale = cells[0].scale
    published.of(recipe)  # a file that is not there is refused before anything runs
    console.print(_headline(planned), highlight=False)
    folder = options.results / "runs" / recipe.name / scale
    machine = machine_id(environment.capture(options.device))
    with tracker.invocation(recipe, scale, options.device) as invocation:
        chosen = ClusterRunner if options.executor == "ray" else Runner

        def heard(row: Row, known: bool) -> None:
            (invocation.finished if known else invocation.row)(row)

        runner = chosen(folder, options.device, registry, display, heard, fresh=options.fresh, wait=options.wait)
        result = runner.run(cells)
        keys = {row.hashes.get("key") for row in result.rows}
        machines = {row.machine for row in result.rows}
        rows = stored.rows_of(recipe.name, scale, options.results, (stored.MEASURED,))
        rows[stored.RUNS] = [row for row in runner.store.rows() if row.hashes.get("key") not in keys]
        rows = {kind: [row for row in found if row.machine not in machines] for kind, found in rows.items()}
        rows[stored.RUNS] += result.rows
        machine = machine if machine in machines else ""  # else the cells ran on the nodes of a cluster
        one = stored.gathered(recipe, scale, cells, rows, lead=stored.RUNS, machine=machine)
        verdicts = claims.verdicts(one)
        invocation.verdicts(verdicts)
        numbers = frame.of_all([one], registry)
        table = tables.build(one, numbers, verdicts)
        written = [*markup.write(table, folder), *figure.draw(one, numbers, folder)]
        invocation.files([folder / "rows.jsonl", *written])
    console.print()
    terminal.show(table, console)
    console.print(f"\nWritten: {folder}/ ({', '.join(path.name for path in written)}, rows.jsonl)", highlight=False)
    return list(result.rows), verdicts, result.exit_code


def _show_plan(planned: Sequence[Planned], options: Options) -> None:
    """The cells of every recipe, one line each; nothing is imported that runs them."""
    plan = [
        {
            "recipe": cell.recipe, "cell": cell.name, "scale": cell.scale, "kind": cell.kind,
            "method": cell.method.name, "task": cell.task.name,
            "params": {"method": cell.method.params, "task": cell.task.params},
            "speed_baseline": cell.speed_baseline.name if cell.speed_baseline else None,
            "processes": cell.timing.processes if cell.timed else 0, "pairs": cell.timing.pairs if cell.timed else 0,
        }
        for one in planned for cell in one.cells
    ]  # fmt: skip
    if options.as_json:
        print(json.dumps(plan, indent=1))
        return
    for one in planned:
        print(f"{_headline(one)} (nothing was run)")
        if options.overrides:
            print(f"  set where a cell does not state it itself: {', '.join(options.overrides)}")
        for cell in one.cells:
            against = f" against {cell.speed_baseline.name}" if cell.speed_baseline else ""
            timed = f"{cell.timing.processes} x {cell.timing.pairs} pairs" if cell.timed else "not timed"
            print(f"  {cell.name}: {cell.method.name}{against}, {timed}")


def _headline(one: Planned) -> str:
    """What is to run, and how long it took before."""
    from harness.show.formats import duration

    before = f", {len(one.took)} measured before in {duration(sum(one.took))}" if one.took else ""
    first = one.cells[0]
    return f"{one.recipe.name} at scale {first.scale}: {len(one.cells)} cells on {first.task.name}{before}"


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    if not device.startswith("cuda"):
        raise RequestError(f"unknown device {device!r}: cpu or cuda")
    import torch

    if not torch.cuda.is_available():
        raise MachineError(f"no device {device!r}: torch {torch.__version__} sees no GPU; use --device cpu")
