"""The cells of a recipe that a claim is about. They are found by what they ran, not by their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.common.errors import RequestError
from harness.plan.schema import CellOf

if TYPE_CHECKING:
    from harness.plan.cell import Cell
    from harness.rows import Row


def find(wanted: CellOf, cells: Sequence[Cell]) -> list[Cell]:
    """The one cell that ran this, or, for a point of a curve, the cells of the curve. Raises `RequestError` for another
    number of cells; where there is none the message names the nearest."""
    differences = {cell.name: _of_cell(wanted, cell) for cell in cells}
    found = [cell for cell in cells if not differences[cell.name]]
    if len(found) == 1 and wanted.at:
        raise RequestError(f"{describe(wanted)} names one cell, {found[0].name}, and a point of a curve needs two")
    if len(found) == 1 or (found and wanted.at):
        return found
    if found:
        names = "; ".join(cell.name for cell in found[:3])
        raise RequestError(f"{describe(wanted)} names {len(found)} cells ({names}): say what tells them apart")
    nearest = min(differences, key=lambda name: len(differences[name]))
    raise RequestError(
        f"no cell runs {describe(wanted)}; the nearest is {nearest}, {' and '.join(differences[nearest])}"
    )


def describe(wanted: CellOf) -> str:
    """`l2s (budget=150, task.model=ptb-small)`."""
    given = [f"{name}={value}" for name, value in wanted.params.items()]
    given += [f"task.{name}={value}" for name, value in wanted.task.items()]
    given += [f"threads={wanted.threads}"] if wanted.threads else []
    given += [f"against {wanted.speed_baseline}"] if wanted.speed_baseline else []
    given += [f"at {name} = {value:g}" for name, value in wanted.at.items()]
    return wanted.method + (f" ({', '.join(given)})" if given else "")


def differences(wanted: CellOf, row: Row) -> list[str]:
    """Differences between a stored row and the cell that a claim names, in words. Empty if the row matches."""
    baseline = (row.speed_baseline or {}).get("method")
    return _differences(wanted, row.method, row.params["method"], row.params["task"], baseline)


def _of_cell(wanted: CellOf, cell: Cell) -> list[str]:
    baseline = cell.speed_baseline.name if cell.speed_baseline else None
    found = _differences(wanted, cell.method.name, cell.method.params, cell.task.params, baseline)
    if wanted.threads not in (None, cell.timing.threads):
        found.append(f"whose threads are {cell.timing.threads}")
    return found


def _differences(
    wanted: CellOf, method: str, params: Mapping[str, Any], task: Mapping[str, Any], baseline: str | None
) -> list[str]:
    if wanted.method != method:  # equal parameters of another method mean something else
        others = [*wanted.params, *wanted.task]
        return [f"whose method is {method}", *(f"not of {name}" for name in others)]
    found = []
    if wanted.speed_baseline not in (None, baseline):
        found.append(f"whose speed baseline is {baseline}")
    for prefix, asked, has in (("", wanted.params, params), ("task.", wanted.task, task)):
        for name, value in asked.items():
            if name not in has:
                found.append(f"which has no {prefix}{name}")
            elif _plain(has[name]) != value:
                found.append(f"whose {prefix}{name} is {has[name]}")
    return found


def _plain(value: Any) -> Any:
    """A parameter's value as in YAML: tuples become lists."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
