"""A recipe at a scale -> its cells: one method on one task with one set of parameters (`pair`), or one analysis.

Precedence of a parameter's value, lowest first: the method's default, the recipe's `methods`, the scale's `methods`,
`--set`, the cell's `params`, its `sweep`. The same holds for the task's parameters, with the cell's `task` and its
sweep last. `--set` does not change what a cell states itself, because its labels promise that; an override that no cell
takes is refused. A baseline's parameters follow the same rule, with its own `params` instead of the cell's; parameters
that it names in `same` have the cell's value.

A cell that names no baseline is compared with the one that its method declares, in its answers and, if it is timed, in
speed. This baseline takes the cell's values of all parameters that both methods have. If the method declares none,
answers are compared with those of the speed baseline.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.common.errors import RequestError, unknown
from harness.contracts.analyses import is_timed
from harness.contracts.tasks import Scale
from harness.plan import parameters
from harness.plan.cell import Cell, Named
from harness.plan.matching import find
from harness.plan.recipe import checked
from harness.plan.registry import Kind, Registry, construct, refusal
from harness.plan.schema import CellOf, CellSpec, Fidelity, Recipe, Reference, ScaleSpec, TaskSpec, Timing

# The models of this scale are small: two threads would wait for each other longer than they compute.
AT_MINI: Mapping[str, Any] = {"processes": 1, "threads": 1}


def expand(recipe: Recipe, scale: Scale, registry: Registry, overrides: Mapping[str, str] | None = None) -> list[Cell]:
    """The cells of a recipe at a scale, with every parameter validated and filled in. overrides: as `parse_overrides`
    returns them.

    Raises `RequestError` for an unknown name, a wrong type, a method that does not run on the task, an override that no
    cell takes, two cells with the same labels, and, without `overrides`, a claim about a cell that is not there.
    """
    cells = _Expansion(recipe, scale, registry, dict(overrides or {})).cells()
    for claim in [] if overrides else [*recipe.claims, *recipe.targets]:
        for wanted in (claim.of, claim.than) if scale in claim.scales else ():
            if isinstance(wanted, CellOf):
                try:
                    find(wanted, cells)
                except RequestError as error:
                    raise RequestError(f"recipe {recipe.name}, claim {claim.text!r}: {error}") from None
    return cells


class _Expansion:
    """One expansion of one recipe. It stores the overrides that cells took."""

    def __init__(self, recipe: Recipe, scale: Scale, registry: Registry, overrides: dict[str, str]) -> None:
        self.recipe = recipe
        self.scale: Scale = scale
        self.at_scale = recipe.scales.get(scale, ScaleSpec())
        self.registry = registry
        self.overrides = overrides
        self.taken: set[str] = set()
        self.stated: set[str] = set()

    def cells(self) -> list[Cell]:
        self._timing({})
        specs = [spec for spec in (*self.recipe.cells, *self.at_scale.cells) if self.scale in spec.scales]
        cells = [cell for spec in specs for cell in self._cells_of(spec)]
        if not cells:
            raise RequestError(f"recipe {self.recipe.name} has no cells at scale {self.scale}")
        known = {f"method.{n}" for c in cells for n in c.method.params} | {
            f"task.{n}" for c in cells for n in c.task.params
        }
        for path in self.overrides:
            if path in self.stated - self.taken:
                raise RequestError(
                    f"--set {path}: every cell of {self.recipe.name} states it itself; see `harness run`"
                )
            if path not in self.taken and not path.startswith("timing."):
                raise unknown("parameter", path, known, f"--set for {self.recipe.name}")
        twice = [name for name, count in Counter(cell.name for cell in cells).items() if count > 1]
        if twice:
            raise RequestError(f"recipe {self.recipe.name}: two cells are both called {twice[0]!r}")
        return cells

    def _cells_of(self, spec: CellSpec) -> Iterator[Cell]:
        where = f"recipe {self.recipe.name}, row {spec.row!r}"
        if (spec.method is None) == (spec.analysis is None):
            raise RequestError(f"{where}: give either `method` or `analysis`")
        kind: Kind = "analysis" if spec.analysis else "method"
        timing = self._timing(spec.timing)
        sweep = {**spec.sweep, **spec.scale_sweep.get(self.scale, {})}
        for values in itertools.product(*sweep.values()):
            swept = dict(zip(sweep, values, strict=True))
            of_task = parameters.group(swept, "task")
            of_method = {name: value for name, value in swept.items() if not name.startswith("task.")}
            task = self._task(spec, of_task)
            method = self._method(kind, spec.method or spec.analysis or "", {**spec.params, **of_method}, task, where)
            usual = self._usual_baseline(method) if kind == "method" else None
            stated = spec.model_fields_set
            timed = spec.timed and (kind == "method" or is_timed(self.registry.resolve(kind, method.name)))
            against = spec.speed_baseline if "speed_baseline" in stated else usual if timed else None
            speed = self._baseline(against, method, task, where)
            against = spec.fidelity_baseline if "fidelity_baseline" in stated else usual
            fidelity = self._baseline(against, method, task, where) or speed  # a claim about speed needs answers
            (row, column), published = self._labels(spec, task, method, timing, where)
            yield Cell(
                recipe=self.recipe.name, row=row, column=column, scale=self.scale,
                kind="analysis" if spec.analysis else "pair", method=method, task=task, speed_baseline=speed,
                fidelity_baseline=fidelity, fidelity=self._demand(spec, where), timing=timing,
                timed=timed, seed=self.recipe.seed, published=published,
            )  # fmt: skip

    def _demand(self, spec: CellSpec, where: str) -> Fidelity | None:
        if not isinstance(spec.fidelity, str):
            return spec.fidelity or self.recipe.fidelity
        if spec.fidelity not in self.recipe.fidelities:
            raise unknown("fidelity", spec.fidelity, self.recipe.fidelities, where)
        return self.recipe.fidelities[spec.fidelity]

    def _labels(
        self, spec: CellSpec, task: Named, method: Named, timing: Timing, where: str
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """(row, column) of the cell, and of the published cell to compare with."""
        values = {"threads": timing.threads, **task.params, **method.params}

        def named(value: Any, names: Mapping[str, str]) -> Any:
            if isinstance(value, list):
                return [named(one, names) for one in value]
            return names.get(value, value) if isinstance(value, str) else value

        def filled(template: str, names: Mapping[str, str]) -> str:
            try:
                return template.format(**{name: named(value, names) for name, value in values.items()})
            except (KeyError, IndexError, ValueError, TypeError) as error:
                raise RequestError(f"{where}: no parameter for the placeholder {error} in its labels") from None

        row, column = (filled(template, self.recipe.names) for template in (spec.row, spec.column))
        theirs = {**self.recipe.names, **self.recipe.published_names}
        printed = {part: filled(template, theirs) for part, template in spec.published.items()}
        return (row, column), (printed.get("row", row), printed.get("column", column))

    def _task(self, spec: CellSpec, swept: Mapping[str, Any]) -> Named:
        name = self.recipe.task.name
        target = self.registry.resolve("task", name)
        given = {
            **target.scale_defaults.get(self.scale, {}),
            **self.recipe.task.params,
            **self.at_scale.task,
            **spec.task,
            **swept,
        }
        given |= self._overrides("task", target, {*swept, *spec.task})
        return Named(name, parameters.values(construct(target, given)))

    def _method(self, kind: Kind, name: str, params: Mapping[str, Any], task: Named, where: str) -> Named:
        target = self.registry.resolve(kind, name)
        if kind == "method":
            reason = refusal(self.registry.entry("method", name), self.registry.entry("task", task.name))
            if reason:
                raise RequestError(f"{where}: {reason}")
        given = {**self.recipe.methods.get(name, {}), **self.at_scale.methods.get(name, {}), **params}
        given |= self._overrides("method", target, params.keys())
        return Named(name, parameters.values(construct(target, given)))

    def _overrides(self, group: str, target: Any, stated: Collection[str]) -> dict[str, Any]:
        """The overrides of a target's parameters, without those that its cell states."""
        known = parameters.declared(target)
        given = {name: text for name, text in parameters.group(self.overrides, group).items() if name in known}
        self.stated |= {f"{group}.{name}" for name in given if name in stated}
        self.taken |= {f"{group}.{name}" for name in given if name not in stated}
        return parameters.typed(target, {name: text for name, text in given.items() if name not in stated})

    def _usual_baseline(self, method: Named) -> Reference | None:
        """The baseline that a method declares. It takes the parameters that both methods have."""
        name = _declared_baseline(method.name, self.registry)
        if not name:
            return None
        both = method.params.keys() & parameters.declared(self.registry.resolve("method", name))
        return Reference(method=name, same=sorted(both))

    def _baseline(self, reference: Reference | str | None, method: Named, task: Named, where: str) -> Named | None:
        if reference is None:
            return None
        full = Reference(method=reference) if isinstance(reference, str) else reference
        for name in full.same:
            if name not in method.params:
                raise unknown("parameter", name, method.params, f"`same` of a baseline in {where}")
        params = {**{name: method.params[name] for name in full.same}, **full.params}
        return self._method("method", full.method, params, task, where)

    def _timing(self, of_cell: Mapping[str, Any]) -> Timing:
        # as with parameters, `--set` does not change what a cell states, because its labels promise that
        overrides = parameters.group(self.overrides, "timing")
        known = {name: text for name, text in overrides.items() if name in Timing.model_fields}
        overrides |= parameters.typed(Timing, known)
        usual = AT_MINI if self.scale == "mini" else {}
        given = {**usual, **self.recipe.timing, **self.at_scale.timing, **overrides, **of_cell}
        return checked(Timing, given, f"timing of {self.recipe.name}")


def _declared_baseline(method: str, registry: Registry) -> str:
    """Name of the baseline that a method declares, or "". Raises `RequestError` if no method has this name."""
    name = registry.entry("method", method).baseline
    return registry.entry("method", name, f"`baseline` of method {method}").name if name else ""


def single_name(method: str, task: str) -> str:
    """The name under which `harness run METHOD TASK` stores its rows."""
    return f"run-{method}-{task}"


def single(
    method: str, task: str, scale: Scale, registry: Registry, overrides: Mapping[str, str]
) -> tuple[Recipe, list[Cell]]:
    """The recipe of `harness run METHOD TASK` and its cells: the method's declared baseline, if any, and the method."""
    entry = registry.entry("method", method)
    reason = refusal(entry, registry.entry("task", task))
    if reason:
        raise RequestError(f"{method} does not run on {task}: {reason}")
    exact = _declared_baseline(method, registry)
    alone = [CellSpec(row=exact, method=exact, speed_baseline=None, fidelity_baseline=None)] if exact else []
    recipe = Recipe(
        name=single_name(method, task), title=f"{method} on {task}", paper="", source="`harness run`",
        task=TaskSpec(name=task), cells=[*alone, CellSpec(row=method, method=method)],
    )  # fmt: skip
    return recipe, expand(recipe, scale, registry, overrides)


def narrow(cells: Sequence[Cell], processes: int | None, pairs: int | None) -> list[Cell]:
    """The cells with `--processes` and `--pairs` applied."""
    changes = {k: v for k, v in (("processes", processes), ("pairs", pairs)) if v is not None}
    return [replace(cell, timing=Timing(**{**cell.timing.model_dump(), **changes})) for cell in cells]
