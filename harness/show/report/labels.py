"""Names at the ends of curves and next to points, none over another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT, LETTER = 9.0, 4.4  # of a line and of a letter, in points
GAP = 7  # from the point to its name


class Label(NamedTuple):
    """A name next to the point (x, y) of the data; without x behind the right edge of the axes. marker: drawn before
    the name, as in a legend; hollow where it is not `filled`."""

    x: float | None
    y: float
    text: str
    colour: str
    alpha: float = 1.0
    marker: str = ""
    filled: bool = True

    @property
    def gap(self) -> int:
        """Points from the data's point to the name."""
        return 2 * GAP if self.marker else GAP


def place(axes: Axes, wanted: Sequence[Label]) -> None:
    """Write names to the right of their points, in the points' order from above, none over another and none below the
    axes. The figure's layout must be known (`Figure.draw_without_rendering`)."""
    from matplotlib.transforms import ScaledTranslation

    points = 72 / axes.figure.dpi
    right, bottom = axes.get_xlim()[1], axes.get_window_extent().y0 * points
    ordered = sorted(wanted, key=lambda one: -one.y)
    anchors = [(right if one.x is None else one.x, one.y) for one in ordered]
    places = [axes.transData.transform(anchor) * points for anchor in anchors]
    ends = [x + label.gap + LETTER * len(label.text) for label, (x, _) in zip(ordered, places, strict=True)]

    def together(one: int, other: int) -> bool:
        return bool(places[one][0] < ends[other] and places[other][0] < ends[one])

    heights = [float(y) for _, y in places]
    for one in range(len(ordered)):  # down, each below those above it
        heights[one] = min([heights[one], *(heights[o] - HEIGHT for o in range(one) if together(one, o))])
    for one in reversed(range(len(ordered))):  # and up again from the bottom
        above = [heights[o] + HEIGHT for o in range(one + 1, len(ordered)) if together(one, o)]
        heights[one] = max([heights[one], bottom + HEIGHT / 2, *above])
    for label, anchor, (_, y), height in zip(ordered, anchors, places, heights, strict=True):
        if label.marker:
            moved = ScaledTranslation(GAP / 72, (height - y) / 72, axes.figure.dpi_scale_trans)
            axes.plot(
                *([value] for value in anchor), marker=label.marker, color=label.colour, markersize=4,
                fillstyle="full" if label.filled else "none",
                transform=axes.transData + moved, clip_on=False, scalex=False, scaley=False,
            )  # fmt: skip
        axes.annotate(
            label.text, anchor, xytext=(label.gap, height - y), textcoords="offset points",
            fontsize="x-small", color=label.colour, alpha=label.alpha, va="center", annotation_clip=False,
        )  # fmt: skip
