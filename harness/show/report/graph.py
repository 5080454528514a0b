"""A graph that worked examples tell of: each is a node, and its other labels are edges to the nodes that they name."""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.contracts.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Graph = dict[str, dict[str, str]]  # node -> edge -> the node that it leads to


def measured(rows: Sequence[Row], node: str) -> dict[str, Graph]:
    """Cell -> the graph of its worked examples. node: the label of the nodes' names. Edges to nodes that no example
    describes are left out."""
    found: dict[str, Graph] = {}
    for row in rows:
        named = [example for example in row["examples"] or () if node in example]
        names = {example[node] for example in named}
        graph = {
            example[node]: {edge: end for edge, end in example.items() if edge != node and end in names}
            for example in named
        }
        if row["status"] == "ok" and graph:
            found[row["cell"]] = graph
    return found


def layers(graph: Graph) -> list[list[str]]:
    """The nodes by how many edges lead to them from the first one at least; those that none leads to are last."""
    first = next(iter(graph))
    depth, waiting = {first: 0}, deque([first])
    while waiting:
        node = waiting.popleft()
        for end in graph[node].values():
            if end not in depth:
                depth[end] = depth[node] + 1
                waiting.append(end)
    rest = [node for node in graph if node not in depth]
    found = [[node for node in graph if depth.get(node) == level] for level in range(max(depth.values()) + 1)]
    return [*found, rest] if rest else found


def figure(graphs: Mapping[str, Graph], title: str, note: str) -> Figure:
    """A panel for each graph, from left to right by layers. Edges of one direction between two nodes are one arrow."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    deep = max(len(layers(graph)) for graph in graphs.values())
    wide = max(len(layer) for graph in graphs.values() for layer in layers(graph))
    drawn = Figure(figsize=(max(7.0, 3.0 * deep), len(graphs) * max(4.0, 1.5 * wide) + 0.8), layout="constrained")
    FigureCanvasAgg(drawn)
    panels: Any = drawn.subplots(len(graphs), 1, squeeze=False).ravel()
    for panel, (name, graph) in zip(panels, graphs.items(), strict=True):
        panel.set_title(name, fontsize="medium")
        panel.set_axis_off()
        _draw(panel, graph)
    drawn.suptitle(textwrap.fill(title, 90), fontsize="medium")
    drawn.supxlabel(textwrap.fill(note, 110), fontsize="x-small", color="0.4")
    return drawn


def _draw(panel: Any, graph: Graph) -> None:
    places: dict[str, tuple[float, float]] = {}
    for depth, layer in enumerate(found := layers(graph)):
        for row, node in enumerate(layer):
            places[node] = float(depth), (len(layer) - 1) / 2 - row + 0.2 * (depth % 2)
    panel.set_xlim(-0.5, len(found) - 0.5)
    heights = [y for _, y in places.values()]
    panel.set_ylim(min(heights) - 0.7, max(heights) + 0.7)
    for node, edges in graph.items():
        together: dict[str, list[str]] = {}
        for edge, end in edges.items():
            together.setdefault(end, []).append(edge)
        for end, labels in together.items():
            _edge(panel, places[node], places[end], "\n".join(labels))
    for node, place in places.items():
        panel.text(
            *place, textwrap.fill(node, 18), ha="center", va="center", fontsize="small", zorder=3,
            bbox={"boxstyle": "round,pad=0.4", "facecolor": "#dbe9f6", "edgecolor": "C0"},
        )  # fmt: skip


def _edge(panel: Any, start: tuple[float, float], end: tuple[float, float], label: str) -> None:
    """An arrow with its label in the middle; bent, so that one there and one back do not cover each other; from a node
    to itself only the label, above it."""
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    if start == end:
        middle, label = (start[0], start[1] + 0.42), f"↻ {label}"
    else:
        bend = 0.2
        arrow = {"arrowstyle": "-|>", "color": "0.45", "shrinkA": 26, "shrinkB": 30,
                 "connectionstyle": f"arc3,rad={bend}"}  # fmt: skip
        panel.annotate("", end, start, arrowprops=arrow, zorder=1)
        # the middle of the arc lies half of the bend beside the straight line, to the right of its direction
        middle = middle[0] + bend / 2 * (end[1] - start[1]), middle[1] - bend / 2 * (end[0] - start[0])
    panel.text(
        *middle, label, ha="center", va="center", fontsize="x-small", color="C3", zorder=2,
        bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )  # fmt: skip
