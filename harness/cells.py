"""A recipe at a scale -> its cells: one method on one task with one set of parameters (`pair`), or one analysis.

Precedence of a parameter's value, lowest first: the method's default, the recipe's `methods`, the scale's `methods`, the
cell's `params`, its `scale_params`, its `sweep`, `--set`. A baseline takes the same path, with its own `params` instead of
the cell's; `--set method.x` reaches a baseline only where the baseline does not state x itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import ValidationError

from harness import parameters
from harness.errors import RequestError, unknown
from harness.recipe import CellSpec, Ordered, Recipe, Reference, ScaleSpec, TaskSpec, Timing
from harness.registry import Registry, refusal
from harness.settings import Scale


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
    fidelity: Ordered | None
    timing: Timing
    timed: bool
    seed: int

    @property
    def name(self) -> str:
        return f"{self.row} / {self.column}" if self.column else self.row


def expand(recipe: Recipe, scale: Scale, registry: Registry, overrides: Mapping[str, Any] | None = None) -> list[Cell]:
    """The cells of a recipe at a scale, with every parameter validated and filled in.

    Raises `RequestError` for an unknown method, task, analysis or parameter, a wrong type, a pair that does not fit,
    an override that no cell takes, or two cells with the same labels.
    """
    overrides = dict(overrides or {})
    at_scale = recipe.scales.get(scale, ScaleSpec())
    timing = _timing(recipe, at_scale, parameters.group(overrides, "timing"))
    used: set[str] = set()
    cells = [
        cell
        for spec in recipe.cells
        if scale in spec.scales
        for cell in _expand_one(recipe, spec, scale, at_scale, timing, registry, overrides, used)
    ]
    for path in overrides:
        if path not in used and not path.startswith("timing."):
            names = sorted(
                {f"method.{n}" for c in cells for n in c.method.params}
                | {f"task.{n}" for c in cells for n in c.task.params}
            )
            raise unknown("parameter", path, names, f"--set for {recipe.name}")
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        if (cell.row, cell.column) in seen:
            raise RequestError(f"recipe {recipe.name}: two cells are both called {cell.name!r}")
        seen.add((cell.row, cell.column))
    if not cells:
        raise RequestError(f"recipe {recipe.name} has no cells at scale {scale}")
    return cells


def _timing(recipe: Recipe, at_scale: ScaleSpec, overrides: Mapping[str, Any]) -> Timing:
    given = {**recipe.timing, **at_scale.timing, **overrides}
    try:
        return Timing.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise unknown("parameter", name, Timing.model_fields, f"timing of {recipe.name}") from None
        raise RequestError(f"timing.{name} of {recipe.name}: {first['msg']} (given: {given[name]!r})") from None


def _expand_one(
    recipe: Recipe, spec: CellSpec, scale: Scale, at_scale: ScaleSpec, timing: Timing, registry: Registry,
    overrides: Mapping[str, Any], used: set[str],
) -> list[Cell]:  # fmt: skip
    where = f"recipe {recipe.name}, row {spec.row!r}"
    if (spec.method is None) == (spec.analysis is None):
        raise RequestError(f"{where}: give either `method` or `analysis`")
    task_class = registry.resolve("task", recipe.task.name)
    task_given = {**task_class.scale_defaults.get(scale, {}), **recipe.task.params, **at_scale.task, **spec.task}
    task_known = parameters.declared(task_class)
    for name, value in parameters.group(overrides, "task").items():
        if name in task_known:
            task_given[name] = value
            used.add(f"task.{name}")
    task = Named(recipe.task.name, parameters.validate(task_class, task_given, f"task {recipe.task.name}"))

    def named(reference: Reference, cell_params: Mapping[str, Any], own: bool) -> Named:
        kind: Any = "analysis" if own and spec.analysis else "method"
        target = registry.resolve(kind, reference.method)
        known = parameters.declared(target) if isinstance(target, type) else {}
        given = {
            **recipe.methods.get(reference.method, {}),
            **at_scale.methods.get(reference.method, {}),
            **cell_params,
        }
        for name, value in parameters.group(overrides, "method").items():
            if name in known and (own or name not in cell_params):
                given[name] = value
                used.add(f"method.{name}")
        if kind == "method":
            reason = refusal(registry.entry("method", reference.method), registry.entry("task", task.name))
            if reason:
                raise RequestError(f"{where}: {reason}")
        return Named(reference.method, parameters.validate(target, given, f"{kind} {reference.method}"))

    def baseline(reference: Reference | str | None) -> Named | None:
        if reference is None:
            return None
        full = Reference(method=reference) if isinstance(reference, str) else reference
        return named(full, full.params, own=False)

    sweep = {**spec.sweep, **spec.scale_sweep.get(scale, {})}
    own_name = spec.method or spec.analysis or ""
    cells = []
    for values in itertools.product(*sweep.values()):
        swept = {**spec.params, **spec.scale_params.get(scale, {}), **dict(zip(sweep, values, strict=True))}
        method = named(Reference(method=own_name), swept, own=True)
        labels = {**task.params, **method.params}
        try:
            row, column = spec.row.format(**labels), spec.column.format(**labels)
        except (KeyError, IndexError, ValueError) as error:
            raise RequestError(f"{where}: no parameter for the placeholder {error} in its labels") from None
        cells.append(
            Cell(
                recipe=recipe.name, row=row, column=column, scale=scale, kind="analysis" if spec.analysis else "pair",
                method=method, task=task, speed_baseline=baseline(spec.speed_baseline),
                fidelity_baseline=baseline(spec.fidelity_baseline), fidelity=spec.fidelity or recipe.fidelity,
                timing=timing, timed=spec.timed, seed=recipe.seed,
            )
        )  # fmt: skip
    return cells


def single(
    method: str, task: str, scale: Scale, registry: Registry, overrides: Mapping[str, Any]
) -> tuple[Recipe, list[Cell]]:
    """The one-cell recipe behind `harness run METHOD TASK`, measured against the method's declared baseline."""
    entry = registry.entry("method", method)
    reason = refusal(entry, registry.entry("task", task))
    if reason:
        raise RequestError(f"{method} does not run on {task}: {reason}")
    base = entry.baseline or None
    recipe = Recipe(
        name=f"run-{method}-{task}", title=f"{method} on {task}", paper="", source="`harness run`", task=TaskSpec(name=task),
        scales={"mini": ScaleSpec(timing={"processes": 1})},
        cells=([CellSpec(row=base, method=base)] if base else []) + [CellSpec(row=method, method=method, speed_baseline=base, fidelity_baseline=base)],
    )  # fmt: skip
    return recipe, expand(recipe, scale, registry, overrides)


def narrow(cells: Sequence[Cell], processes: int | None, pairs: int | None) -> list[Cell]:
    """The cells with `--processes` and `--pairs` applied."""
    changes = {k: v for k, v in (("processes", processes), ("pairs", pairs)) if v is not None}
    return [replace(cell, timing=cell.timing.model_copy(update=changes)) for cell in cells]
