"""The recipe's figure: measured curves with their intervals, the paper's points with them; or stacked bars,
histograms or graphs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.common.files import write_atomically
from harness.contracts.rows import Row
from harness.contracts.tasks import Scale
from harness.measure.own_metrics import among
from harness.plan.cell import Cell
from harness.plan.recipe import Recipe
from harness.show.report import bars, curves, graph, histogram
from harness.show.report.context import machine_line
from harness.show.report.published import Published
from harness.show.report.selection import by_machine

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    recipe: Recipe, scale: Scale, rows: Sequence[Row], published: Published, folder: Path, *,
    cells: Sequence[Cell] = (), machine: str | None = None,
) -> list[Path]:  # fmt: skip
    """Write `figure.svg` and `figure.png`; nothing when there is nothing to draw (`drawing`).

    The same rows give the same bytes of SVG. Raises `MachineError` when a file cannot be written.
    """
    drawn = drawing(recipe, scale, rows, published, cells=cells, machine=machine)
    if drawn is None:
        return []
    paths = {kind: folder / f"figure.{kind}" for kind in ("svg", "png")}
    for kind, path in paths.items():
        write_atomically(path, as_bytes(drawn, kind))
    return list(paths.values())


def drawing(
    recipe: Recipe, scale: Scale, rows: Sequence[Row], published: Published, *,
    cells: Sequence[Cell] = (), machine: str | None = None,
) -> Figure | None:  # fmt: skip
    """The recipe's figure; None when it has none or no row has both coordinates.

    cells: what the recipe expands to; they say which published curve bears a measured one's colour.
    """
    if recipe.figure is None:
        return None
    ours = next(iter(by_machine(rows, recipe.name, scale, machine).values()), [])
    if recipe.figure.histogram:
        return _histograms(recipe, scale, ours)
    if recipe.figure.graph:
        return _graphs(recipe, scale, ours)
    if recipe.figure.parts:
        return _bars(recipe, scale, ours)
    return curves.figure(recipe, scale, ours, published, cells)


def as_bytes(figure: Figure, kind: str) -> bytes:
    """A figure as `svg` or `png`."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "shortcut-harness"}):
        figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {})
    return buffer.getvalue()


def _bars(recipe: Recipe, scale: Scale, rows: Sequence[Row]) -> Figure | None:
    assert recipe.figure is not None
    groups = bars.measured(rows, recipe.figure.parts)
    title = f"{recipe.name}, scale {scale}: {recipe.title}"
    parts = [among(rows, part) for part in recipe.figure.parts]
    return bars.figure(groups, parts, title, machine_line(rows)) if groups else None


def _histograms(recipe: Recipe, scale: Scale, rows: Sequence[Row]) -> Figure | None:
    groups = histogram.measured(rows)
    title = f"{recipe.name}, scale {scale}: {recipe.title}"
    return histogram.figure(groups, title, machine_line(rows)) if groups else None


def _graphs(recipe: Recipe, scale: Scale, rows: Sequence[Row]) -> Figure | None:
    assert recipe.figure is not None
    groups = graph.measured(rows, recipe.figure.graph)
    title = f"{recipe.name}, scale {scale}: {recipe.title}"
    return graph.figure(groups, title, machine_line(rows)) if groups else None
