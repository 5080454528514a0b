"""What tests of views are given: a recipe's rows as they are stored, with published numbers, and their frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from harness.contracts import ratios
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.tasks import Scale
from harness.measure.timing import Passes, Side, measure, sample_of
from harness.plan import recipe as recipes
from harness.plan.cell import Cell, Named
from harness.plan.registry import Registry
from harness.plan.schema import Recipe, Timing
from harness.rows import Row
from harness.show import frame
from harness.show.published import Number
from harness.show.stored import MEASURED, Stored, gathered


def cell_of(method: str, task: str | Named, params: dict[str, Any] | None = None, **known: Any) -> Cell:
    """A cell of a method on a task; without baselines where none are given."""
    given = {
        "recipe": "demo", "row": method, "column": "", "scale": "small", "kind": "pair", "speed_baseline": None,
        "fidelity_baseline": None, "fidelity": None, "timing": Timing(), "timed": True, "seed": 1,
    }  # fmt: skip
    task = Named(task) if isinstance(task, str) else task
    return Cell(method=Named(method, params or {}), task=task, **given | known)


def ratio_in(ratio: dict[str, Any], process: dict[str, Any]) -> float | None:
    """A ratio, in the form of rows, of a single process."""
    found = ratios.parts(ratio, process)
    return None if found is None else found[0] / found[1]


def timed_once(analysis: TimedAnalysis, drawn: Sequence[Any]) -> tuple[dict[str, Passes], dict[str, Any]]:
    """What both sides of an opened analysis give in passes over the drawn items, the first of which warms up, and the
    process as a row stores it."""
    given = {"baseline": analysis.baseline, "method": analysis.method}
    sides = {name: Side(ask, analysis.inputs) for name, ask in given.items()}
    found = measure(sides, drawn, lambda number: list(sides))
    items = [one.tolist() for one in drawn[1:]]
    sample = sample_of(found["method"], found["baseline"], [len(one) for one in items], items)
    return found, asdict(sample) | {"sums": analysis.sums(found["baseline"].answers)}


def stored_of(
    recipe: Recipe | str, rows: Sequence[Row], *, scale: Scale = "small", cells: Sequence[Cell] = (),
    numbers: Sequence[Number] = (), lead: str = MEASURED,
) -> Stored:  # fmt: skip
    """Rows as committed ones of a recipe, which may be given as YAML. numbers: the paper's."""
    known = recipes.parse(recipe, "demo.yaml") if isinstance(recipe, str) else recipe
    one = gathered(known, scale, cells, {lead: [], MEASURED: rows}, lead)
    one.__dict__["numbers"] = numbers  # in place of what files hold
    return one


def numbers_of(one: Stored) -> pd.DataFrame:
    """The frame of one recipe."""
    return frame.of_all([one], Registry())
