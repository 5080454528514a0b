"""Descriptions of metrics: name, unit and kind.

Tasks, methods and analyses declare theirs in an attribute `measures`. A row stores these descriptions (`described`), so
reports do not guess from names and do not need the code that measured. The harness's own metrics are in `harness.rows`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Kind = Literal["quality", "time", "speed", "counter", "memory"]
Better = Literal["higher", "lower", "neither"]
ARROWS: dict[Better, str] = {"higher": " ↑", "lower": " ↓", "neither": ""}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric or counter of rows.

    name: in rows. One `*` in name and label stands for a whole number (`precision_at_*`).
    label: for people; by default the name with blanks for underscores. unit: of the number in rows; seconds are `s`,
    and a name may end in its unit (`latency_ms`). better: the better direction. kind: `quality` of the answers;
    `time`; `speed`, a ratio of two timed sides, which supports a claim only with a decision; `counter`, of work;
    `memory`. relative: relative to the exact computation, so that measured / published is meaningful on other data too.
    equal: of a speed, its value if both sides take equally long.
    """

    name: str
    label: str = ""
    unit: str = ""
    better: Better = "neither"
    kind: Kind = "quality"
    relative: bool = False
    equal: float = 1.0

    def called(self, name: str) -> Metric | None:
        """This metric under a row's name, or None if the name is another metric's."""
        label = self.label or self.name.replace("_", " ")
        if self.name == name:
            return replace(self, label=label)
        before, star, after = self.name.partition("*")
        number = name.removeprefix(before).removesuffix(after)
        if star and number.isdecimal() and name == f"{before}{number}{after}":
            return replace(self, name=name, label=label.replace("*", number))
        return None

    @property
    def heading(self) -> str:
        """The head of a table's column: label, unit and the better direction. Times have their unit in each cell."""
        return self.axis.removesuffix(" (s)") + ARROWS[self.better]

    @property
    def axis(self) -> str:
        """The name of a figure's axis: label and unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def described(*measures: Metric) -> dict[str, dict[str, Any]]:
    """Descriptions in the form of rows: declared name -> description."""
    return {metric.name: {k: v for k, v in asdict(metric).items() if k != "name"} for metric in measures}
