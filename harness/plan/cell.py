"""A cell: one method on one task with one set of parameters (`pair`), or one analysis. Each cell gives one row."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from harness.common.files import digest
from harness.contracts.tasks import Scale
from harness.plan.schema import Fidelity, Timing


@dataclass(frozen=True, slots=True)
class Named:
    """A method with all of its parameters, as used in one cell."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything that determines one row, apart from code, data, model and machine."""

    recipe: str
    row: str
    column: str
    scale: Scale
    kind: Literal["pair", "analysis"]
    method: Named
    task: Named
    speed_baseline: Named | None
    fidelity_baseline: Named | None
    fidelity: Fidelity | None  # None: the rule of the method's contract
    timing: Timing
    timed: bool
    seed: int
    published: tuple[str, str] | None = None  # row and column of the published cell next to it; None: its own labels

    @property
    def name(self) -> str:
        return f"{self.row} / {self.column}" if self.column else self.row

    @property
    def resolved(self) -> dict[str, Any]:
        """The settings of this cell from recipe and command line, as JSON: labels, methods, task, fidelity, timing.
        `timeout`, `equal` and `together` are left out: the same cell is measured."""
        cell: dict[str, Any] = json.loads(json.dumps(asdict(self), default=lambda part: part.model_dump(by_alias=True)))
        for name in ("timeout", "equal", "together"):
            cell["timing"].pop(name)
        return cell

    @property
    def hash(self) -> str:
        return digest(self.resolved)
