"""Recipes: one per table or figure of a paper, a typed YAML file.

    name: knnlm-wikitext
    title: kNN-LM on WikiText
    task: {name: wikitext-perplexity}
    methods: {knnlm: {k: 1024}}            # parameters of a method in every cell, baselines included
    scales:
      mini: {methods: {knnlm: {k: 64}}, timing: {processes: 1}}
    cells:
      - {row: LM, method: lm}
      - {row: kNN-LM, column: "FoSS={foss}", method: knnlm, sweep: {foss: [0.3, 0.6]}}

Rows and columns name what ran; `published` gives the cell of the paper's table to compare with. `claims` are the
paper's, `targets` the bench's own; both may be in NAME.claims.yaml next to NAME.yaml. The changes of one scale may be
in NAME.SCALE.yaml. `harness.plan.expansion` expands a recipe at a scale.
"""

from __future__ import annotations

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
    """A method with parameters, named as a baseline; those in `same` it takes from the cell's method."""

    method: str
    params: dict[str, Any] = {}
    same: list[str] = []


class Fidelity(_Strict):
    """The condition `metric is bound` on the answers that a claim about speed needs. `reason` says why a recipe demands
    less than the contract does, as where greedy decoding is timed against beam search."""

    metric: str
    is_: Comparison = Field(alias="is")
    bound: float
    reason: str = ""


class CellOf(_Strict):
    """The one cell of the recipe in which this ran: its method (or analysis), and as much more as tells it from others:
    parameters of method and task, the method that is its speed baseline, the threads it is timed on.

    at: a metric and a value of it. Then the cells that ran this are a curve, and what is meant is its point there,
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

    `than` is a number or another cell (same metric). `factor` multiplies the right side. A metric with an interval
    holds only when the whole interval does. `speedup above 1` follows the decision rule of `harness.decision`.
    text: a sentence that stands alone, with method, setting and number. source: where the paper says it.
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
    """The same as a target of the bench's own; `source` says what it comes of where that helps."""

    source: str = "set by the bench"


class Timing(_Strict):
    """How a cell is timed. `processes` x `pairs` is the sample; `timeout` is seconds for each process.

    fits: fits a cell has where fitting is random; processes are spread over them, so there are never more fits than
    processes. threads: null for the machine's own number.
    """

    processes: int = Field(default=10, ge=1)
    pairs: int = Field(default=3, ge=1)
    fits: int = Field(default=1, ge=1)
    timeout: float = Field(default=7200.0, gt=0)
    threads: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _has_a_process_for_each_fit(self) -> Timing:
        self.fits = min(self.fits, self.processes)
        return self


class PublishedCell(_Strict):
    """Labels of the published cell next to which a row stands; what is left out is the row's own label.

    They may hold the same placeholders, filled by way of `published_names`, then of `names`.
    """

    row: str | None = None
    column: str | None = None


class CellSpec(_Strict):
    """One line of a recipe's `cells`: a method or an analysis at some scales.

    row, column: what ran. They may hold `{parameter}` placeholders, `{threads}` among them, filled from the cell's
    parameters by way of `names`. params, task: parameters of the method and of the task. sweep, scale_sweep: one cell
    per combination of these values, of parameters of the method or, as `task.NAME`, of the task; a scale's replace the
    others of the same name. speed_baseline, fidelity_baseline: what its time and its answers are compared with. Left
    out: the method's declared baseline (`harness.plan.expansion`); null: nothing, but answers are always compared with
    those of a speed baseline. timed: false asks for answers only.
    """

    row: str
    column: str = ""
    published: PublishedCell = PublishedCell()
    method: str | None = None
    analysis: str | None = None
    params: dict[str, Any] = {}
    sweep: dict[str, list[Any]] = {}
    scale_sweep: dict[Scale, dict[str, list[Any]]] = {}
    task: dict[str, Any] = {}
    speed_baseline: Reference | str | None = None
    fidelity_baseline: Reference | str | None = None
    fidelity: Fidelity | None = None
    timed: bool = True
    timing: dict[str, Any] = {}  # changes the recipe's and the scale's for this cell
    scales: list[Scale] = list(SCALES)


class TaskSpec(_Strict):
    """The recipe's task and its parameters at every scale."""

    name: str
    params: dict[str, Any] = {}


class ScaleSpec(_Strict):
    """What one scale changes, and cells that it alone has, after the others: all that a file NAME.SCALE.yaml holds."""

    task: dict[str, Any] = {}
    methods: dict[str, dict[str, Any]] = {}
    timing: dict[str, Any] = {}
    note: str = ""
    cells: list[CellSpec] = []


class Figure(_Strict):
    """Curves of `y` over `x`, one for each row label and column (but for the column's `x=VALUE`), and of `beside` in a
    panel of its own. Or bars, one for each cell, of `parts` stacked from below. All of them are metrics or counters; x
    and y parameters, too. Or a `histogram` for each cell, of the speedups of its items. Or a `graph` for each cell,
    whose nodes are the worked examples by this label's text."""

    x: str = ""
    y: str = ""
    beside: str = ""
    parts: list[str] = []
    histogram: Literal["", "speedup"] = ""
    graph: str = ""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Figure:
        curves = bool(self.x or self.y or self.beside)
        kinds = [curves, bool(self.parts), bool(self.histogram), bool(self.graph)]
        if kinds.count(True) != 1 or (curves and not (self.x and self.y)):
            raise ValueError("give x and y for curves, or parts for stacked bars, or a histogram, or a graph")
        return self


class Judged(_Strict):
    """What is judged of a recipe's rows: all that a file NAME.claims.yaml holds."""

    claims: list[Claim] = []  # of the paper
    targets: list[Target] = []  # of this bench


class Recipe(Judged):
    """A recipe file."""

    name: str
    title: str
    paper: str
    source: str
    published: list[str] = []
    published_as: dict[str, str] = {}  # metric as printed -> the metric of ours that it is
    published_where: dict[str, list[str]] = {}  # fact -> values, of which a row beside a published number has one
    data_of_paper: list[Scale] = []  # scales whose data set is the paper's: qualities may be compared with its numbers
    headline: bool = False  # a paper's main table: in the overview its rows stand for their methods before others do
    first_run: int = Field(default=0, ge=0)  # its place among those that run when none is named; 0: it is none of them
    seed: int = 1
    task: TaskSpec
    methods: dict[str, dict[str, Any]] = {}
    timing: dict[str, Any] = {}
    scales: dict[Scale, ScaleSpec] = {}
    fidelity: Fidelity | None = None  # null: the rule of the method's contract
    metrics: list[str] = []  # columns of the printed table, in order: metrics, counters, parameters (`method.k`)
    details: list[str] = []  # more of them, in a second table
    names: dict[str, str] = {}  # a parameter's value -> how labels show it: exact -> EDR
    published_names: dict[str, str] = {}  # a parameter's value -> what the paper's table calls what it stands for
    figure: Figure | None = None
    cells: list[CellSpec]

    def cells_at(self, scale: Scale) -> list[CellSpec]:
        """The lines of `cells` at a scale, its own last."""
        own = self.scales[scale].cells if scale in self.scales else []
        return [cell for cell in (*self.cells, *own) if scale in cell.scales]


# NAME.PART.yaml next to NAME.yaml -> what it holds.
PARTS: dict[str, type[BaseModel]] = {"claims": Judged, **dict.fromkeys(SCALES, ScaleSpec)}


class _Loader(yaml.SafeLoader):
    """YAML in which no key silently replaces another, be it written twice or merged (`<<`)."""

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
    """A recipe from YAML text. Raises `RequestError` naming the file, the place and the mistake."""
    return _parse(Recipe, text, where)


def _parse(model: type[M], text: str, where: str) -> M:
    try:
        raw = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, problem = (mark.line + 1 if mark else 1), getattr(error, "problem", None) or error
        raise RequestError(f"{where} line {line}: {' '.join(str(problem).split())}") from None
    if not isinstance(raw, dict):
        keys = "name, task and cells" if model is Recipe else " or ".join(model.model_fields)
        raise RequestError(f"{where}: a mapping with {keys} is expected")
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")  # a typo explains what is missing
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            valid = _keys_at(model, first["loc"])
            raise unknown("key", str(first["loc"][-1]), valid, f"{where} at {place}") from None
        raise RequestError(refused(f"{where} at {place}", error, len(first["loc"]))) from None


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Valid keys at the place of an unknown one, as far as the outer levels tell."""
    models: dict[str, type[BaseModel]] = {
        "cells": CellSpec, "claims": Claim, "targets": Target, "scales": ScaleSpec, "task": TaskSpec,
        "speed_baseline": Reference, "fidelity_baseline": Reference, "of": CellOf, "than": CellOf, "figure": Figure,
        "published": PublishedCell, "fidelity": Fidelity,
    }  # fmt: skip
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
    """Recipe name -> file, by file stem. Raises `RequestError` when two files claim one name, or where the recipe to
    which a file belongs is not next to it."""
    found: dict[str, Path] = {}
    for folder in folders(registry):
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
    """The recipe of this name, or the one in the YAML file at this path, with the files next to it that belong to it.

    Raises `RequestError` for an unknown name (with the nearest), a broken file, a name that is not its file's, or a key
    that two of the files give.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else files(registry).get(name)
    if path is None:
        raise unknown("recipe", name, files(registry))
    if not path.exists():
        raise RequestError(f"no recipe file at {path}")
    recipe = _read(Recipe, path)
    if recipe.name != path.stem:
        raise RequestError(f"{path}: the recipe's name {recipe.name!r} is not its file's")
    for part, model in PARTS.items():
        file = path.with_suffix(f".{part}.yaml")
        if file.exists():
            recipe = _with(recipe, part, _read(model, file), file)
    return recipe


def _with(recipe: Recipe, part: str, read: BaseModel, file: Path) -> Recipe:
    """A recipe and what a file next to its own says."""
    of_scale = isinstance(read, ScaleSpec)
    new = {part: read} if of_scale else {name: getattr(read, name) for name in read.model_fields_set}
    for name in new.keys() & (recipe.scales.keys() if of_scale else recipe.model_fields_set):
        raise RequestError(f"{file}: {recipe.name}.yaml gives {name!r} too; keep one of them")
    return recipe.model_copy(update={"scales": {**recipe.scales, **new}} if of_scale else new)


def _read(model: type[M], path: Path) -> M:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the recipe {path}: {' '.join(str(error).split())}") from None
    return _parse(model, text, str(path))
