"""Names at the ends of curves and next to points, none over another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT, LETTER = 9.0, 4.4  # of a line and of a letter, in points
GAP = 7  # from the point to its name
EDGE = 0.15  # of the width of the axes, at the right: a name that begins there begins behind the edge, not over it


class Label(NamedTuple):
    """A name next to the point (x, y) of the data. at_edge: at the right edge of the axes, whatever x is."""

    x: float
    y: float
    text: str
    colour: str
    alpha: float = 1.0
    at_edge: bool = False


def place(axes: Axes, wanted: Sequence[Label], *, over_edge: bool = True) -> None:
    """Write names to the right of their points, in the points' order from above, none over another and none below the
    axes. The figure's layout must be known (`Figure.draw_without_rendering`).

    over_edge: names may cross the right edge of the axes; else one that begins close to the edge begins behind it.
    """
    points = 72 / axes.figure.dpi
    right, bottom = axes.get_xlim()[1], axes.get_window_extent().y0 * points
    ordered = sorted(wanted, key=lambda one: -one.y)
    ordered = ordered if over_edge else [_behind_the_edge(axes, label) for label in ordered]
    places = [axes.transData.transform((right if one.at_edge else one.x, one.y)) * points for one in ordered]
    ends = [x + GAP + LETTER * len(label.text) for label, (x, _) in zip(ordered, places, strict=True)]

    def together(one: int, other: int) -> bool:
        return bool(places[one][0] < ends[other] and places[other][0] < ends[one])

    heights = [float(y) for _, y in places]
    for one in range(len(ordered)):  # down, each below those above it
        heights[one] = min([heights[one], *(heights[o] - HEIGHT for o in range(one) if together(one, o))])
    for one in reversed(range(len(ordered))):  # and up again from the bottom
        above = [heights[o] + HEIGHT for o in range(one + 1, len(ordered)) if together(one, o)]
        heights[one] = max([heights[one], bottom + HEIGHT / 2, *above])
    for label, (_, y), height in zip(ordered, places, heights, strict=True):
        axes.annotate(
            label.text, (right if label.at_edge else label.x, label.y), xytext=(GAP, height - y),
            textcoords="offset points", fontsize="x-small", color=label.colour, alpha=label.alpha, va="center",
            annotation_clip=False,
        )  # fmt: skip


def _behind_the_edge(axes: Axes, label: Label) -> Label:
    """The label, at the edge where it would cross it from close by."""
    point, _ = axes.transAxes.inverted().transform(axes.transData.transform((label.x, label.y)))
    width = axes.get_window_extent().width * 72 / axes.figure.dpi
    crosses = point * width + GAP + LETTER * len(label.text) > width
    return label._replace(at_edge=True) if crosses and point > 1 - EDGE else label
