"""`harness keep`: a finished run becomes a committed result, if it deserves it.

Committed rows must be reproducible (one clean revision), whole (every cell, none failed), of exactly what the recipe
says (not of `--set`), of one machine, with enough samples for a claim, and must not carry this machine's paths. All
repeats of a cell are kept, and the table shows them pooled. Worked examples of a method on real data are left out: they
are whole sentences of a data set that is not ours to publish. Table and figure are made anew from the kept rows, so
they match these.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.common.errors import RequestError, writing
from harness.common.files import data_roots, default_cache
from harness.common.sources import ROOT
from harness.contracts.tasks import Scale
from harness.decision import LEAST
from harness.groups import repeats
from harness.measure.store import RowStore, as_line
from harness.plan.cell import Cell, Named
from harness.plan.registry import Registry
from harness.plan.schema import Recipe
from harness.rows import Row
from harness.show import claims, figure, frame, markup, tables
from harness.show.stored import MEASURED, gathered

ABSOLUTE = re.compile(r"(?<![\w.:/~$<>\-])(?:file://)?/(?:[\w.@+~,=\-]+/)+([\w.@+~,=\-]+)/?")


def keep(recipe: Recipe, scale: Scale, runs: Path, measured: Path, cells: Sequence[Cell]) -> Path:
    """Copy `<runs>/<recipe>/<scale>` to `<measured>/<recipe>/<scale>` and return the new folder.

    Of each cell the newest row with the recipe's own settings and all its repeats are copied, absolute paths replaced;
    table and figure are made from these rows. cells: what the recipe expands to at this scale, without overrides.
    Raises `RequestError` with the reasons when the run may not be kept, `MachineError` when writing fails.
    """
    source = runs / recipe.name / scale
    planned = {cell.name: cell for cell in cells}
    stored = RowStore(source / "rows.jsonl").rows()
    ordered = sorted(stored, key=lambda row: not _changes(row, planned))
    latest = {row.cell: row for row in ordered}  # the newest, and before all others the newest of the recipe's settings
    again = f"harness reproduce {recipe.name} --scale {scale}"
    if not latest:
        raise RequestError(f"{source} has no rows to keep: run `{again}` first")
    rows = [row for cell in cells if cell.name in latest for row in _with_repeats(latest[cell.name], stored)]
    reasons = objections(rows, [cell.name for cell in cells])
    differences = [f"{row.cell}: {', '.join(found)}" for row in rows if (found := _changes(row, planned))]
    if differences:
        reasons.append(f"measured with other settings than the recipe's ({'; '.join(differences[:3])})")
    if reasons:
        # A commit changes no number, so finished cells would be recognised and keep their old revision.
        words = ("uncommitted", "revisions", "machines")
        fresh = " --fresh" if any(word in reason for reason in reasons for word in words) else ""
        raise RequestError(f"{source} is not kept: {'; '.join(reasons)}; then run `{again}{fresh}`")
    folders = known_folders(runs.parent)
    real = {cell.name for cell in cells if cell.kind == "pair" and scale != "mini"}
    without = [replace(row, examples=()) if row.cell in real else row for row in rows]
    clean = [Row.of(scrubbed(row.as_json(), folders)) for row in without]
    target = measured / recipe.name / scale
    kept = gathered(recipe, scale, cells, {MEASURED: clean})
    numbers = frame.of_all([kept], Registry())
    table = tables.build(kept, numbers, claims.verdicts(kept))

    def fill(folder: Path) -> None:
        (folder / "rows.jsonl").write_text("".join(map(as_line, clean)), encoding="utf-8")
        markup.write(table, folder)
        figure.draw(kept, numbers, folder, strict=True)

    with writing(target, "what was there is unchanged"):
        _replace(target, fill)
    return target


def _with_repeats(row: Row, stored: Sequence[Row]) -> list[Row]:
    """All rows of a cell that were measured under the same key, oldest first."""
    same = [other for other in stored if other.cell == row.cell]
    return repeats(same[: same.index(row) + 1])


def objections(rows: Sequence[Row], cells: Sequence[str]) -> list[str]:
    """Why these rows may not be kept, in words; empty when they may."""
    reasons = []
    present = {row.cell for row in rows}
    if absent := [name for name in cells if name not in present]:
        reasons.append(f"no row for {_few(absent)}")
    if failed := [f"{row.cell} ({row.status})" for row in rows if row.status not in ("ok", "skipped")]:
        reasons.append(f"not finished: {_few(failed)}")
    revisions = {row.code.get("revision") for row in rows}
    if None in revisions or any(row.code.get("dirty") is not False for row in rows):
        reasons.append("measured from a tree with uncommitted changes or outside git: commit them first")
    if len(revisions) > 1:
        reasons.append(f"measured at {len(revisions)} different revisions")
    if len({row.machine for row in rows}) > 1:
        reasons.append("measured on different machines")
    if few := [f"{row.cell} ({' x '.join(map(str, row.shape))})" for row in rows if not _enough(row)]:
        needed = " or ".join(f"{n} x {m}" for n, m in LEAST)
        reasons.append(f"too few processes x pairs for a claim, {needed} needed: {_few(few)}")
    return reasons


def known_folders(results: Path) -> list[tuple[str, str]]:
    """This machine's folders and what stands for them in committed files, the longest first: the cache before the home
    folder that holds it."""
    folders = [
        (results, "results"),
        *((root, "$HARNESS_DATA") for root in data_roots()),
        (default_cache(), "$HARNESS_CACHE"),
        (ROOT, "."),
        (Path.home(), "~"),
    ]
    forms = [(str(form), name) for path, name in folders for form in dict.fromkeys((path.absolute(), path.resolve()))]
    return sorted(forms, key=lambda pair: -len(pair[0]))


def scrubbed(value: Any, folders: Sequence[tuple[str, str]]) -> Any:
    """The same JSON value without this machine's paths in its strings, keys included: `folders` are replaced by their
    names, any other absolute path by its last part."""
    if isinstance(value, dict):
        return {scrubbed(key, folders): scrubbed(item, folders) for key, item in value.items()}
    if isinstance(value, list):
        return [scrubbed(item, folders) for item in value]
    if not isinstance(value, str):
        return value
    for folder, name in folders:
        if len(folder) > 1:
            value = re.sub(rf"{re.escape(folder)}(?![\w.\-])", name, value)
    return ABSOLUTE.sub(r"<path>/\1", value)


def _changes(row: Row, planned: Mapping[str, Cell]) -> list[str]:
    """How a row's method, task, baselines and seed differ from its cell's, in words."""
    cell = planned.get(row.cell)
    if cell is None:
        return ["not a cell of the recipe"]
    pairs: list[tuple[str, Any, Any]] = [
        ("method", {"method": row.method, "params": row.params["method"]}, _as_row(cell.method)),
        ("task", {"method": row.task, "params": row.params["task"]}, _as_row(cell.task)),
        ("speed baseline", row.speed_baseline, _as_row(cell.speed_baseline)),
        ("fidelity baseline", row.fidelity_baseline, _as_row(cell.fidelity_baseline)),
    ]
    found = [] if row.seed == cell.seed else [f"seed {row.seed} instead of {cell.seed}"]
    for role, had, wanted in pairs:
        if had == wanted:
            continue
        if had is None or wanted is None or had["method"] != wanted["method"]:
            names = [one["method"] if one else "none" for one in (had, wanted)]
            found.append(f"{role} {names[0]} instead of {names[1]}")
            continue
        before, after = had["params"], wanted["params"]
        found += [
            f"{role}'s {name} {before.get(name, 'not given')} instead of {after.get(name, 'not given')}"
            for name in sorted({*before, *after})
            if name not in before or name not in after or before[name] != after[name]
        ]
    if not found and row.hashes.get("cell") != cell.hash:
        found.append("other labels, fidelity, timing or baselines than the recipe states")
    return found


def _as_row(used: Named | None) -> Any:
    """A method or task as a row read from disk names it (tuples are lists there)."""
    return None if used is None else json.loads(json.dumps({"method": used.name, "params": used.params}))


def _replace(target: Path, fill: Callable[[Path], None]) -> None:
    """Fill a temporary folder, then rename it to the target: all or nothing."""
    fresh, old = target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        fresh.mkdir(parents=True)
        fill(fresh)
        if target.exists():
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        for folder in (fresh, old):
            shutil.rmtree(folder, ignore_errors=True)


def _enough(row: Row) -> bool:
    """Whether a row has samples for a claim; rows that compare no times need none."""
    if row.decision is None:
        return True
    processes, pairs = row.shape
    return any(processes >= n and pairs >= m for n, m in LEAST)


def _few(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
