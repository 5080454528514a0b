"""The recipe's figure: curves, stacked bars, histograms of single items, or graphs."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from harness.common.errors import reason
from harness.common.files import write_atomically
from harness.groups import grouped
from harness.plan import schema
from harness.rows import Row, metric_among
from harness.show import curves
from harness.show.stored import Stored, place_of

if TYPE_CHECKING:
    import networkx as nx


def draw(one: Stored, numbers: pd.DataFrame, folder: Path, *, strict: bool = False) -> list[Path]:
    """Write `figure.svg` and `figure.png` in place of old ones; nothing when there is nothing to draw.

    strict: a figure that fails raises; else there is a warning and no figure. The same rows give the same bytes of SVG.
    Raises `MachineError` when a file cannot be written.
    """
    for kind in ("svg", "png"):
        (folder / f"figure.{kind}").unlink(missing_ok=True)
    found = images(one, numbers, "svg", "png", strict=strict)
    made = {folder / f"figure.{kind}": image for kind, image in found.items()}
    for path, image in made.items():
        write_atomically(path, image)
    return list(made)


def images(one: Stored, numbers: pd.DataFrame, *kinds: str, strict: bool = False) -> dict[str, bytes]:
    """The figure by kind, as `as_bytes` has it. Nothing when there is nothing to draw (`drawing`), or when it fails,
    with a warning: the table does without it. strict: a figure that fails raises."""
    try:
        drawn = drawing(one, numbers)
        return {} if drawn is None else {kind: as_bytes(drawn, kind) for kind in kinds}
    except Exception as error:  # whatever matplotlib raises for what people call their rows
        if strict:
            raise
        warnings.warn(f"no figure of {one.recipe.name} ({one.scale}): {reason(error)}", stacklevel=2)
        return {}


def drawing(one: Stored, numbers: pd.DataFrame) -> Figure | None:
    """The figure of the rows that lead; None when the recipe has none or no row has what it shows. numbers: the
    recipe's part of the frame."""
    wanted = one.recipe.figure
    if wanted is None:
        return None
    draw = next(KINDS[key] for key in KINDS if getattr(wanted, key))
    drawn = draw(one, wanted, numbers)
    return None if drawn is None else as_it_stands(drawn)


def as_it_stands(drawn: Figure) -> Figure:
    """The figure with every label shown as written: a `$` of users' text or of a path begins no formula."""
    for text in drawn.findobj(Text):
        if text.get_text():  # those of ticks without labels of ours are made when it is drawn
            text.set_parse_math(False)
    return drawn


def as_bytes(figure: Figure, kind: str, *, text: bool = False) -> bytes:
    """A figure as `svg`, `png` or (smaller, in 128 colours) `webp`. text: the letters of an SVG stay text."""
    buffer = io.BytesIO()
    more: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 150 if kind == "png" else 72}
    with matplotlib.rc_context({"svg.hashsalt": "shortcut-harness", "svg.fonttype": "none" if text else "path"}):
        figure.savefig(buffer, format="svg" if kind == "svg" else "png", **more)
    if kind == "webp":
        few = Image.open(buffer).convert("RGB").quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(buffer := io.BytesIO(), "webp", lossless=True)
    return buffer.getvalue()


def _panels(count: int, across: int, size: tuple[float, float], title: str, note: str) -> tuple[Figure, list[Any]]:
    """A figure with so many panels of a size in inches, a title above and a note below."""
    across = min(count, across)
    down = -(-count // across)
    drawn = Figure(figsize=(max(6.5, size[0] * across), 0.9 + size[1] * down), layout="constrained")
    panels = drawn.subplots(down, across, squeeze=False).ravel().tolist()
    for unused in panels[count:]:
        unused.set_axis_off()
    width = int(12 * max(6.5, size[0] * across))
    drawn.suptitle(textwrap.fill(title, width), fontsize="medium")
    drawn.supxlabel(textwrap.fill(note, int(1.3 * width)), fontsize="x-small", color="0.4")
    return drawn, panels


def _bars(one: Stored, wanted: schema.Figure, numbers: pd.DataFrame) -> Figure | None:
    """Stacked bars: a panel for each column with an axis of its own, in it a bar for each row that has every part."""
    rows, parts = _finished(one), wanted.parts
    whole = [row for row in rows if all(row.value(part) is not None for part in parts)]
    columns = grouped((row.column, row) for row in whole)
    if not columns:
        return None
    metrics = [metric_among(whole, part) for part in parts]
    known = any(row.interval_of(part) for row in whole for part in parts)
    note = "whiskers: 95% interval of the part that ends there; " if known else ""
    drawn, panels = _panels(len(columns), 3, (3.6, 4.0), one.title, note + place_of(rows))
    for panel, (column, bars) in zip(panels, columns.items(), strict=False):
        floors = np.zeros(len(bars))
        for place, metric in enumerate(metrics):
            heights = np.array([row.value(metric.name) for row in bars])
            panel.bar(range(len(bars)), heights, bottom=floors, width=0.6, color=f"C{place}", label=metric.label)
            floors += heights
            shift = 0.12 * (place - (len(metrics) - 1) / 2)  # whiskers of thin parts would cover one another
            for at, (row, height, top) in enumerate(zip(bars, heights, floors, strict=True)):
                if interval := row.interval_of(metric.name):
                    ends = [[max(0.0, height - interval[0])], [max(0.0, interval[1] - height)]]
                    panel.errorbar(at + shift, top, yerr=ends, color="0.2", capsize=3, fmt="none")
        panel.set_xticks(range(len(bars)), [textwrap.fill(row.row, 12) for row in bars], fontsize="small")
        panel.set_title(column, fontsize="medium")
        panel.set_ylim(bottom=0)
        panel.grid(axis="y", alpha=0.3)
    units = {metric.unit for metric in metrics}
    panels[0].set_ylabel(units.pop() if len(units) == 1 else "")
    named = (list(reversed(found)) for found in panels[0].get_legend_handles_labels())
    drawn.legend(*named, loc="outside right upper", fontsize="small", frameon=False)
    return drawn


def _finished(one: Stored) -> list[Row]:
    return [row for row in one.rows if row.status == "ok"]


def item_speedups(row: Row) -> list[float]:
    """Time of the baseline over that of the method, for each item that was timed alone: sums over the passes that the
    item was in, in the order of their numbers. Empty where a call answers several items, or a pass has too many to be
    kept apart."""
    sums: dict[int, list[float]] = {}
    for pair in (pair for process in row.processes for pair in process["pairs"]):
        items = pair["items"] or ()
        sides = pair["baseline_ns"] or (), pair["method_ns"] or ()
        if any(len(times) != len(items) for times in sides):
            continue
        for item, *times in zip(items, *sides, strict=True):
            total = sums.setdefault(item, [0.0, 0.0])
            total[:] = (known + new for known, new in zip(total, times, strict=True))
    return [baseline / method for _, (baseline, method) in sorted(sums.items())]


def _histograms(one: Stored, wanted: schema.Figure, numbers: pd.DataFrame) -> Figure | None:
    """A panel for each cell: how the speedup varies from item to item, with its median and equal times marked."""
    groups = {row.cell: found for row in _finished(one) if (found := item_speedups(row))}
    if not groups:
        return None
    drawn, panels = _panels(len(groups), 2, (5.0, 3.2), one.title, place_of(one.rows))
    every = np.concatenate([np.asarray(values) for values in groups.values()])
    edges = np.histogram_bin_edges(every, bins=int(np.clip(len(every) ** 0.5, 10, 40)))
    for panel, (name, values) in zip(panels, groups.items(), strict=False):
        middle, slower = float(np.median(values)), float(np.mean(np.asarray(values) < 1))
        panel.hist(values, bins=edges, color="C0", alpha=0.8)
        panel.axvline(middle, color="C1", label=f"median {middle:.2f}")
        panel.axvline(1.0, color="0.3", linestyle=":", label=f"{slower:.0%} of the items slower")
        panel.set_title(textwrap.fill(f"{name} ({len(values)} items)", 60), fontsize="medium")
        panel.set(ylabel="items", xlabel="speedup of one item (times)", xlim=(edges[0], edges[-1]))
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", frameon=False)
    return drawn


def graph_of(row: Row, node: str) -> nx.DiGraph[str]:
    """The graph that a row's worked examples tell of: each is a node, named by its text under the label `node`; its
    other labels are edges to the nodes that they name. Edges of one direction between two nodes are one, with the
    labels of all; edges to nodes that no example describes are left out."""
    import networkx as nx

    described = {example[node]: example for example in row.examples if node in example}
    graph = nx.DiGraph()
    graph.add_nodes_from(described)
    for start, example in described.items():
        for label, end in example.items():
            if label != node and end in graph:
                known = graph.edges[start, end]["label"] + "\n" if graph.has_edge(start, end) else ""
                graph.add_edge(start, end, label=known + label)
    return graph


def layers(graph: nx.DiGraph[str]) -> dict[int, list[str]]:
    """The nodes by the least number of edges that lead to them from the first one; those that none leads to are
    last."""
    import networkx as nx

    depth = nx.single_source_shortest_path_length(graph, next(iter(graph)))
    return grouped((depth.get(node, len(graph)), node) for node in graph)


def _graphs(one: Stored, wanted: schema.Figure, numbers: pd.DataFrame) -> Figure | None:
    """A panel for each graph, from left to right by layers; an edge from a node to itself is a line in its box."""
    import networkx as nx

    graphs = {row.cell: graph for row in _finished(one) if (graph := graph_of(row, wanted.graph))}
    if not graphs:
        return None
    every = [layers(graph) for graph in graphs.values()]
    size = 3.0 * max(map(len, every)), max(4.0, 1.5 * max(len(layer) for found in every for layer in found.values()))
    drawn, panels = _panels(len(graphs), 1, size, one.title, place_of(one.rows))
    # bent, so that an edge there and one back do not cover each other; each ends 35 points from its nodes' middles
    bent = {"connectionstyle": "arc3,rad=0.2", "node_size": 70**2}
    for panel, (name, graph), found in zip(panels, graphs.items(), every, strict=True):
        places = nx.multipartite_layout(graph, {depth: layer[::-1] for depth, layer in found.items()})
        loops = {start: f"\n↻ {label}" for start, end, label in graph.edges.data("label") if start == end}
        texts = {node: textwrap.fill(node, 18) + loops.get(node, "") for node in graph}
        graph.remove_edges_from([*nx.selfloop_edges(graph)])
        nx.draw_networkx_edges(graph, places, ax=panel, edge_color="0.45", **bent)
        labels = nx.get_edge_attributes(graph, "label")
        nx.draw_networkx_edge_labels(graph, places, labels, 0.5, 7, "C3", rotate=False, ax=panel, **bent)
        box = {"boxstyle": "round,pad=0.4", "facecolor": "#dbe9f6", "edgecolor": "C0"}
        nx.draw_networkx_labels(graph, places, texts, ax=panel, font_size=8, bbox=box)
        panel.set_title(name, fontsize="medium")
        panel.set_axis_off()
        panel.margins(0.15)
    return drawn


Draw = Callable[[Stored, schema.Figure, pd.DataFrame], "Figure | None"]
# a key of a recipe's `figure` -> what draws it
KINDS: Mapping[str, Draw] = {"histogram": _histograms, "graph": _graphs, "parts": _bars, "x": curves.figure}
