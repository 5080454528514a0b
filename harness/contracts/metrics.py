"""A metric is data: what it is called, its unit, and what kind of number it is.

Tasks, methods and analyses declare theirs in an attribute `measures`; a row carries these descriptions (`described`),
so that reports need neither names to guess by nor the code that measured. `harness.rows` has the harness's own.
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

    name: as rows have it; one `*` in it stands for a whole number, and so it does in the label (`precision_at_*`).
    label: how people read it, by default the name with blanks for underscores. unit: of the number as rows have it;
    seconds are `s`, and a name may end in its unit (`latency_ms`). better: which direction is. kind: `quality` of the
    answers; `time`; `speed`, a ratio of two timed sides, which supports a claim only with a decision; `counter`, of
    work; `memory`. relative: whether it is relative to the exact computation, so that measured / published says
    something on other data too. equal: of a speed, its value where both sides take equally long.
    """

    name: str
    label: str = ""
    unit: str = ""
    better: Better = "neither"
    kind: Kind = "quality"
    relative: bool = False
    equal: float = 1.0

    def called(self, name: str) -> Metric | None:
        """The metric under this name of a row, or None where it is another."""
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
        """The head of a table's column: label, unit and the better direction. Times carry their unit in each cell."""
        return self.axis.removesuffix(" (s)") + ARROWS[self.better]

    @property
    def axis(self) -> str:
        """The name of a figure's axis: label and unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def described(*measures: Metric) -> dict[str, dict[str, Any]]:
    """Descriptions as a row carries them: declared name -> its description."""
    return {metric.name: {k: v for k, v in asdict(metric).items() if k != "name"} for metric in measures}
