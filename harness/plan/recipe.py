"""Recipes: one per table or figure of a paper, a typed YAML file (docs/adding-a-method.md, "A recipe", has examples).

Rows and columns name what ran; `published` gives the cell of the paper's table to compare with. `claims` are the
paper's, `targets` the bench's own; both may be in NAME.claims.yaml next to NAME.yaml. The changes of one scale may be
in NAME.SCALE.yaml. `base: OTHER` names the recipe whose keys hold where a recipe gives none. `harness.plan.expansion`
expands a recipe at a scale.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.common.errors import RequestError, unknown
from harness.contracts.tasks import SCALES, Scale
from harness.plan.parameters import refused
from harness.plan.registry import Registry

Comparison = Literal["below", "above", "at most", "at least"]
M = TypeVar("M", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Reference(_Strict):
    """A method with parameters, named as a baseline. same: parameters with the values of the cell's method."""

    method: str
    params: dict[str, Any] = {}
    same: list[str] = []


class Fidelity(_Strict):
    """The condition `metric is bound` on the answers, which a claim about speed needs.

    reason: why a recipe requires less than the contract does. An example is greedy decoding timed against beam search.
    """

    metric: str
    is_: Comparison = Field(alias="is")
    bound: float
    reason: str = ""


class CellOf(_Strict):
    """The one cell of the recipe that ran this: its method (or analysis), and what distinguishes it from other cells.
    This may be parameters of method and task, the method of its speed baseline, and its threads.

    at: a metric and a value of it. The cells that ran this then form a curve. Its point at this value is meant,
    interpolated linearly between the two nearest rows.
    """

    method: str
    params: dict[str, Any] = {}
    task: dict[str, Any] = {}
    speed_baseline: str | None = None
    threads: int | None = None
    at: dict[str, float] = Field(default={}, max_length=1)


class Claim(_Strict):
    """A condition over rows: `metric` of the row of one cell is below/above/at most/at least `than`.

    than: a number, or another cell (same metric). factor: multiplies the right side. text: a sentence that can be read
    alone, with method, setting and number. source: the place in the paper.

    - A metric with an interval: the claim holds if it holds for the whole interval.
    - `speedup above 1`: the decision rule of `harness.decision` applies.
    """

    text: str
    source: str
    of: CellOf
    metric: str
    is_: Comparison = Field(alias="is")
    than: float | CellOf
    factor: float = 1.0
    scales: list[Scale] = list(SCALES)


class Target(Claim):
    """A claim that is a target of the bench. source: the reason for the target, if it needs one."""

    source: str = "set by the bench"


class Timing(_Strict):
    """How a cell is timed. The sample is `processes` x `pairs`.

    timeout: of each process, in seconds. fits: number of fits if fitting is random. The processes are divided among
    them, so there are at most as many fits as processes. threads: null means the machine's default. equal: a speedup
    that differs from 1 by less, with its whole interval, is called equal. together: cells of all columns are timed
    in the same processes, not those of one column, so that all speedups can be compared; a run that is interrupted
    times them all anew.
    """

    processes: int = Field(default=10, ge=1)
    pairs: int = Field(default=3, ge=1)
    fits: int = Field(default=1, ge=1)
    timeout: float = Field(default=7200.0, gt=0)
    threads: int | None = Field(default=None, ge=1)
    equal: float = Field(default=0.02, gt=0, lt=1)
    together: bool = False

    @model_validator(mode="after")
    def _has_a_process_for_each_fit(self) -> Timing:
        self.fits = min(self.fits, self.processes)
        return self


class CellSpec(_Strict):
    """One line of a recipe's `cells`: a method or an analysis at some scales.

    row, column: labels that say what ran. They may contain placeholders: `{threads}`, and `{parameter}` for parameters
        of the cell. Values are translated by `names`.
    published: labels of the published cell to compare it with, likewise, translated by `published_names` first; a label
        that is left out is its own.
    params, task: parameters of the method and of the task.
    sweep, scale_sweep: one cell per combination of these values. They belong to parameters of the method or, as
        `task.NAME`, of the task. A scale's values replace those of the same name in `sweep`.
    speed_baseline, fidelity_baseline: the methods that its time and its answers are compared with. Left out: the
        method's declared baseline (`harness.plan.expansion`). null: no comparison. A cell with a speed baseline is
        always compared in its answers, too.
    timed: false measures answers only.
    """

    row: str
    column: str = ""
    published: dict[Literal["row", "column"], str] = {}
    method: str | None = None
    analysis: str | None = None
    params: dict[str, Any] = {}
    sweep: dict[str, list[Any]] = {}
    scale_sweep: dict[Scale, dict[str, list[Any]]] = {}
    task: dict[str, Any] = {}
    speed_baseline: Reference | str | None = None
    fidelity_baseline: Reference | str | None = None
    fidelity: Fidelity | str | None = None  # or a name of the recipe's `fidelities`
    timed: bool = True
    timing: dict[str, Any] = {}  # for this cell; overrides the recipe's and the scale's
    scales: list[Scale] = list(SCALES)


class TaskSpec(_Strict):
    """The recipe's task and its parameters at every scale."""

    name: str
    params: dict[str, Any] = {}


class ScaleSpec(_Strict):
    """The changes of one scale, and cells that only it has. They come after the others. This is the content of a file
    NAME.SCALE.yaml."""

    task: dict[str, Any] = {}
    methods: dict[str, dict[str, Any]] = {}
    timing: dict[str, Any] = {}
    note: str = ""
    cells: list[CellSpec] = []


class Figure(_Strict):
    """One of four kinds of figure:

    - Curves of `y` over `x`, one for each pair of row and column label. The column's part `x=VALUE` is ignored. Curves
      of `beside` are in a panel of their own. Points are joined in the order of `x`.
    - Bars, one for each cell: `parts`, stacked from below; a single part gives plain bars.
    - A `histogram` for each cell: the speedups of its items.
    - A `graph` for each cell. Each node is a worked example, named by its text under the label that `graph` gives.

    `x`, `y`, `beside` and `parts` name metrics or counters. `x` and `y` may also name parameters.
    """

    x: str = ""
    y: str = ""
    beside: str = ""
    parts: list[str] = []
    histogram: Literal["", "speedup"] = ""
    graph: str = ""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Figure:
        curves = bool(self.x or self.y or self.beside)
        kinds = [curves, bool(self.parts), bool(self.histogram), bool(self.graph)]
        if kinds.count(True) != 1 or (curves and not (self.x and self.y)):
            raise ValueError("give x and y for curves, or parts for stacked bars, or a histogram, or a graph")
        return self


class Judged(_Strict):
    """The conditions on a recipe's rows. This is the content of a file NAME.claims.yaml."""

    claims: list[Claim] = []  # of the paper
    targets: list[Target] = []  # of this bench


class Recipe(Judged):
    """A recipe file. It may name another recipe as its `base`: what it does not give itself is then the base's, apart
    from `OWN`."""

    name: str
    title: str
    paper: str
    source: str
    published: list[str] = []
    published_as: dict[str, str] = {}  # metric as printed -> our metric
    published_where: dict[str, list[str]] = {}  # fact -> values; only rows with these get a published number
    data_of_paper: list[Scale] = []  # scales with the paper's data set: qualities may be compared with its numbers
    headline: bool = False  # a paper's main table: the overview prefers its rows
    first_run: int = Field(default=0, ge=0)  # its place among the recipes that run if none is named; 0: not one of them
    packages: list[str] = []  # distributions without which the first run leaves it out
    seed: int = 1
    task: TaskSpec
    methods: dict[str, dict[str, Any]] = {}
    timing: dict[str, Any] = {}
    scales: dict[Scale, ScaleSpec] = {}
    fidelity: Fidelity | None = None  # null: the rule of the method's contract
    fidelities: dict[str, Fidelity] = {}  # by names that cells use
    metrics: list[str] = []  # columns of the printed table, in order: metrics, counters, parameters (`method.k`)
    details: list[str] = []  # more columns, in a second table
    names: dict[str, str] = {}  # a parameter's value -> its text in labels: exact -> EDR
    published_names: dict[str, str] = {}  # a parameter's value -> its text in the paper's table
    figure: Figure | None = None
    cells: list[CellSpec]

    def cells_at(self, scale: Scale) -> list[CellSpec]:
        """The lines of `cells` at a scale. The scale's own cells are last."""
        own = self.scales[scale].cells if scale in self.scales else []
        return [cell for cell in (*self.cells, *own) if scale in cell.scales]


OWN = ("name", "title", "source", "published", "headline", "first_run", "claims", "targets")  # keys not of a base
# PART of a file NAME.PART.yaml next to NAME.yaml -> type of its content.
PARTS: dict[str, type[BaseModel]] = {"claims": Judged, **dict.fromkeys(SCALES, ScaleSpec)}


class _Loader(yaml.SafeLoader):
    """YAML in which a key that is written twice or merged (`<<`) over another is an error."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        known: dict[str, yaml.Mark] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            mark = known.setdefault(key.value, key.start_mark)
            if mark is not key.start_mark:
                problem = f"{key.value!r} is given twice, here or by a merge (<<); a merge may only add keys"
                last = max(mark, key.start_mark, key=lambda one: one.line)
                raise yaml.constructor.ConstructorError(None, None, problem, last)


def parse(text: str, where: str) -> Recipe:
    """A recipe from YAML text. Raises `RequestError` with the file, the place and the mistake."""
    return checked(Recipe, _mapping(Recipe, text, where), where)


def _mapping(model: type[BaseModel], text: str, where: str) -> dict[str, Any]:
    try:
        raw = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, problem = (mark.line + 1 if mark else 1), getattr(error, "problem", None) or error
        raise RequestError(f"{where} line {line}: {' '.join(str(problem).split())}") from None
    if not isinstance(raw, dict):
        keys = "name, task and cells" if model is Recipe else " or ".join(model.model_fields)
        raise RequestError(f"{where}: a mapping with {keys} is expected")
    return raw


def checked(model: type[M], raw: dict[str, Any], where: str) -> M:
    """A model from a mapping. Raises `RequestError` with the place of the mistake, and the nearest valid key."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")  # a typo explains what is missing
        *outer, last = [str(part) for part in first["loc"] if part != "[key]"]
        place = ".".join([*outer, last])
        if first["type"] == "extra_forbidden" or "[key]" in first["loc"]:
            valid = _keys_at(model, outer)
            raise unknown("key", last, valid, f"{where} at {place}") from None
        raise RequestError(refused(f"{where} at {place}", error, len(first["loc"]))) from None


def _keys_at(model: type[BaseModel], outer: list[str]) -> list[str]:
    """Valid keys inside levels of these names."""
    if outer and outer[-1] in (keys := {"published": ["row", "column"], "scales": SCALES, "scale_sweep": SCALES}):
        return list(keys[outer[-1]])
    models: dict[str, type[BaseModel]] = {
        "cells": CellSpec, "claims": Claim, "targets": Target, "scales": ScaleSpec, "task": TaskSpec,
        "speed_baseline": Reference, "fidelity_baseline": Reference, "of": CellOf, "than": CellOf, "figure": Figure,
        "fidelity": Fidelity,
    }  # fmt: skip
    for part in outer:
        model = models.get(part, model)
    return [f.alias or n for n, f in model.model_fields.items()]


def files(registry: Registry) -> dict[str, Path]:
    """Recipe name -> file, by file stem: the harness's own, and those in the folder `recipes` of every package of the
    registry. Raises `RequestError` if two files have one name, or if a file NAME.PART.yaml has no NAME.yaml next to
    it."""
    found: dict[str, Path] = {}
    places = [Path(__file__).parent]
    for package in registry.packages:
        with suppress(ImportError, ValueError):  # a broken plug-in: the registry has warned
            spec = find_spec(package)
            places += map(Path, (spec.submodule_search_locations if spec else None) or ())
    for folder in (place / "recipes" for place in places):
        for file in sorted(folder.glob("*.yaml")):
            name, _, part = file.stem.rpartition(".")
            if name and part in PARTS:
                if not (folder / f"{name}.yaml").exists():
                    raise RequestError(f"{file} belongs to a recipe {name}.yaml, which is not next to it")
                continue
            other = found.setdefault(file.stem, file)
            if other != file:
                raise RequestError(f"two recipes are called {file.stem!r}: {other} and {file}; rename one")
    return found


def load(name: str, registry: Registry) -> Recipe:
    """The recipe of this name, or of the YAML file at this path, with its files NAME.PART.yaml, over its base. Raises
    `RequestError` for an unknown name, a file that cannot be read, a name that is not the file's, a key in two of its
    files, and a base that has a base. A recipe with `cells` has none of its base."""
    path = _file(name, registry)
    raw = _whole(path)
    if base := raw.pop("base", None):
        of_base = _whole(_file(str(base), registry))
        if "base" in of_base:
            raise RequestError(f"{path}: the base {base} has a base itself, {of_base['base']}: name one without")
        for scale in of_base.get("scales", {}).values() if "cells" in raw else ():
            scale.pop("cells", None)
        raw = _over({key: value for key, value in of_base.items() if key not in OWN}, raw)
    recipe = checked(Recipe, raw, str(path))
    if recipe.name != path.stem:
        raise RequestError(f"{path}: the recipe's name {recipe.name!r} is not its file's")
    return recipe


def _file(name: str, registry: Registry) -> Path:
    path = Path(name) if name.endswith((".yaml", ".yml")) else files(registry).get(name)
    if path is None:
        raise unknown("recipe", name, files(registry))
    if not path.exists():
        raise RequestError(f"no recipe file at {path}")
    return path


def _whole(path: Path) -> dict[str, Any]:
    """The content of a recipe's file and of those named NAME.PART.yaml next to it."""
    raw = _read(Recipe, path)
    for part, model in PARTS.items():
        file = path.with_suffix(f".{part}.yaml")
        if file.exists():
            checked(model, new := _read(model, file), str(file))
            place = raw.setdefault("scales", {}) if part in SCALES else raw
            new = {part: new} if part in SCALES else new
            for key in new.keys() & place.keys():
                raise RequestError(f"{file}: {path.name} gives {key!r} too; keep one of them")
            place |= new
    return raw


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A base with a recipe's own keys: mappings are merged, anything else is replaced."""
    both = {key for key, value in own.items() if isinstance(value, dict) and isinstance(base.get(key), dict)}
    return {**base, **own, **{key: _over(base[key], own[key]) for key in both}}


def _read(model: type[BaseModel], path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the recipe {path}: {' '.join(str(error).split())}") from None
    return _mapping(model, text, str(path))
