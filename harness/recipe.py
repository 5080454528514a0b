"""Recipes: one per table or figure of a paper, a typed YAML file.

    name: knnlm-wikitext
    title: kNN-LM on WikiText
    task: {name: wikitext-perplexity}
    methods: {knnlm: {k: 1024}}            # parameters of a method in every cell, baselines included
    scales:
      mini: {methods: {knnlm: {k: 64}}, timing: {processes: 1}}
    cells:
      - {row: LM, method: lm}
      - {row: kNN-LM, column: "FoSS={foss}", method: knnlm, sweep: {foss: [0.3, 0.6]}, speed_baseline: knnlm}

A remark in parentheses in a column, `EDR / GPT2 (2x256)`, says what stands here in the place of the paper's; published
numbers of `EDR / GPT2` stand beside it. `harness.cells` expands a recipe at a scale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import RequestError, unknown
from harness.registry import Registry
from harness.settings import SCALES, Scale

Comparison = Literal["below", "above", "at most", "at least"]
Judged = Literal["interval", "value", "upper end"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Reference(_Strict):
    """A method with parameters, named as a baseline; those in `same` it takes from the cell's method."""

    method: str
    params: dict[str, Any] = {}
    same: list[str] = []


class Ordered(_Strict):
    """A condition `metric is bound`."""

    metric: str
    is_: Comparison = Field(alias="is")
    bound: float


class RowOf(_Strict):
    """A row of the recipe by its labels; `column` may be left out when the row has one."""

    row: str
    column: str | None = None


class Claim(_Strict):
    """A claim of the paper as a condition over rows: `metric` of a row is below/above/at most/at least `than`.

    `than` is a number or another row (same metric). `factor` multiplies the right side. A metric with an interval
    holds only when the whole interval does, but for a claim on its value alone or on its upper end, which says so by
    `judged`. `speedup above 1` follows the decision rule of `harness.timing`. Labels may hold the scale's `labels`.
    """

    text: str
    source: str
    row: str
    column: str | None = None
    metric: str
    is_: Comparison = Field(alias="is")
    than: float | RowOf
    factor: float = 1.0
    judged: Judged = "interval"
    scales: list[Scale] = list(SCALES)


class Timing(_Strict):
    """How a cell is timed. `processes` x `pairs` is the sample; `timeout` is seconds for each process. `fits`: how
    often a cell is fitted where fitting is random; its processes are spread over the fits."""

    processes: int = Field(default=10, ge=1)
    pairs: int = Field(default=3, ge=1)
    fits: int = Field(default=1, ge=1)
    timeout: float = Field(default=7200.0, gt=0)
    threads: int | None = Field(default=None, ge=1)


class CellSpec(_Strict):
    """One line of a recipe's `cells`; `sweep` makes one cell per combination of its values, of parameters of the method
    or, as `task.NAME`, of the task.

    `row` and `column` may hold `{parameter}` placeholders, filled from the cell's parameters by way of `names`.
    """

    row: str
    column: str = ""
    method: str | None = None
    analysis: str | None = None
    params: dict[str, Any] = {}
    scale_params: dict[Scale, dict[str, Any]] = {}
    sweep: dict[str, list[Any]] = {}
    scale_sweep: dict[Scale, dict[str, list[Any]]] = {}
    task: dict[str, Any] = {}
    speed_baseline: Reference | str | None = None
    fidelity_baseline: Reference | str | None = None
    fidelity: Ordered | None = None
    timed: bool = True
    timing: dict[str, Any] = {}  # changes the recipe's and the scale's for this cell
    scales: list[Scale] = list(SCALES)


class TaskSpec(_Strict):
    """The recipe's task and its parameters at every scale."""

    name: str
    params: dict[str, Any] = {}


class ScaleSpec(_Strict):
    """What one scale changes."""

    task: dict[str, Any] = {}
    methods: dict[str, dict[str, Any]] = {}
    timing: dict[str, Any] = {}
    labels: dict[str, str] = {}  # for placeholders in rows and columns, beside the parameters
    note: str = ""


class Figure(_Strict):
    """Curves of `y` over `x`, one for each row label and column (but for the column's `x=VALUE`). Or bars, one for each
    cell, of `parts` stacked from below. All of them are metrics or counters; x and y parameters, too."""

    x: str = ""
    y: str = ""
    parts: list[str] = []

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Figure:
        if bool(self.x and self.y) == bool(self.parts) or (self.parts and (self.x or self.y)):
            raise ValueError("give x and y for curves, or parts for stacked bars")
        return self


class Recipe(_Strict):
    """A recipe file."""

    name: str
    title: str
    paper: str
    source: str
    published: list[str] = []
    published_as: dict[str, str] = {}  # metric as printed -> the metric of ours that it is
    published_where: dict[str, str] = {}  # facts a row must have for a published number to stand beside it
    data_of_paper: list[Scale] = []  # scales whose data set is the paper's: qualities may be set beside its numbers
    headline: bool = False
    seed: int = 1
    task: TaskSpec
    methods: dict[str, dict[str, Any]] = {}
    timing: dict[str, Any] = {}
    scales: dict[Scale, ScaleSpec] = {}
    fidelity: Ordered | None = None
    metrics: list[str] = []  # columns of the printed table, in order
    names: dict[str, str] = {}  # a parameter's value -> how labels show it: exact -> EDR
    figure: Figure | None = None
    cells: list[CellSpec]
    claims: list[Claim] = []


def parse(text: str, where: str) -> Recipe:
    """A recipe from YAML text. Raises `RequestError` naming the file, the place and the mistake."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RequestError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise RequestError(f"{where} is not a recipe: a mapping with name, task and cells is expected")
    try:
        return Recipe.model_validate(raw)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")  # a typo explains what is missing
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise unknown("key", str(first["loc"][-1]), _keys_at(first["loc"]), f"{where} at {place}") from None
        raise RequestError(f"{where} at {place}: {first['msg']}") from None


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    """Valid keys at the place of an unknown one, as far as the outer levels tell."""
    models: dict[str, type[BaseModel]] = {
        "cells": CellSpec, "claims": Claim, "scales": ScaleSpec, "task": TaskSpec, "fidelity": Ordered,
        "speed_baseline": Reference, "fidelity_baseline": Reference, "than": RowOf, "figure": Figure,
    }  # fmt: skip
    model: type[BaseModel] = Recipe
    for part in location[:-1]:
        model = models.get(str(part), model)
    return [f.alias or n for n, f in model.model_fields.items()]


def folders(registry: Registry) -> list[Path]:
    """Where recipe files are found: the harness's own and a `recipes` folder in every plug-in package."""
    from importlib.util import find_spec

    found = [Path(__file__).parent / "recipes"]
    for package in registry.packages:
        try:
            spec = find_spec(package)
        except (ImportError, ValueError):  # a broken plug-in: the registry has warned
            continue
        for root in (spec.submodule_search_locations if spec else None) or ():
            found.append(Path(root) / "recipes")
    return [folder for folder in found if folder.is_dir()]


def files(registry: Registry) -> dict[str, Path]:
    """Recipe name -> file, by file stem. Raises `RequestError` when two files claim one name."""
    found: dict[str, Path] = {}
    for folder in folders(registry):
        for file in sorted(folder.glob("*.yaml")):
            other = found.setdefault(file.stem, file)
            if other != file:
                raise RequestError(f"two recipes are called {file.stem!r}: {other} and {file}; rename one")
    return found


def load(name: str, registry: Registry) -> Recipe:
    """The recipe of this name, or the one in the YAML file at this path.

    Raises `RequestError` for an unknown name (with the nearest), a broken file, or a name that is not its file's.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else files(registry).get(name)
    if path is None:
        raise unknown("recipe", name, files(registry))
    if not path.exists():
        raise RequestError(f"no recipe file at {path}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the recipe {path}: {' '.join(str(error).split())}") from None
    recipe = parse(text, str(path))
    if recipe.name != path.stem:
        raise RequestError(f"{path}: the recipe's name {recipe.name!r} is not its file's")
    return recipe
