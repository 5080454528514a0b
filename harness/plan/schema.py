"""The keys of a recipe file, typed. docs/adding-a-method.md ("A recipe") has examples.

Rows and columns name what ran; `published` gives the cell of the paper's table to compare with. `claims` are the
paper's, `targets` the bench's own.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from harness.contracts.tasks import SCALES, Scale

Comparison = Literal["below", "above", "at most", "at least"]


PARTS_OF_IS = ("metric", "bound", "factor")  # keys that no file gives: `is` says them
UNKNOWN = "unknown_key"  # type of the error for a key that is none of the model's; its context has `key` and `keys`


class _Strict(BaseModel):
    also: ClassVar[tuple[str, ...]] = ()  # keys that are taken out before the model is made

    @model_validator(mode="before")
    @classmethod
    def _has_known_keys(cls, given: Any) -> Any:
        keys = {field.alias or name for name, field in cls.model_fields.items()}
        for key in given if isinstance(given, dict) else ():
            if key not in keys:
                known = sorted({*keys, *cls.also} - {*PARTS_OF_IS})
                raise PydanticCustomError(UNKNOWN, "unknown key", {"key": str(key), "keys": known})
        return given


_CONDITION = re.compile(r"(\S+) (below|above|at most|at least)(?: (-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)( times)?)?")


def _parted(given: Any, number: str) -> Any:
    """A mapping with the parts of its `is`, METRIC COMPARISON NUMBER, as keys of their own. number: the key that NUMBER
    is stored under, `bound` or `than`. `NUMBER times`, or no NUMBER, wants a cell in `than`."""
    if not isinstance(given, dict) or "is" not in given:
        return given
    found = _CONDITION.fullmatch(str(given["is"]))
    if found is None or not given.keys().isdisjoint(PARTS_OF_IS):
        raise ValueError(f"{given['is']!r} is not of the form METRIC below, above, at most or at least NUMBER")
    metric, comparison, value, times = found.groups()
    if (number in given) == bool(value and not times):
        raise ValueError(f"{given['is']!r} has {'two bounds' if number in given else 'no bound'}")
    if times and not isinstance(given[number], dict):
        raise ValueError(f"{given['is']!r} wants another cell in `than`")
    key = "factor" if times else number
    return {**given, "metric": metric, "is": comparison, **({key: float(value)} if value else {})}


class Reference(_Strict):
    """A method with parameters, named as a baseline. same: parameters with the values of the cell's method."""

    method: str
    params: dict[str, Any] = {}
    same: list[str] = []


class Fidelity(_Strict):
    """A condition on the answers, which a claim about speed needs: `wide_differences at most 0`, or a mapping with this
    text as `is` and a `reason`.

    reason: why a recipe requires less than the contract does. An example is greedy decoding timed against beam search.
    """

    metric: str
    is_: Comparison = Field(alias="is")
    bound: float
    reason: str = ""

    @model_validator(mode="before")
    @classmethod
    def _in_words(cls, given: Any) -> Any:
        return _parted({"is": given} if isinstance(given, str) else given, "bound")


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
    """A condition over rows. is: what is claimed of a metric of one cell's row, such as `speedup at least 5`. For two
    rows, name the other cell in `than` and leave out the number (`speedup above`) or give a factor (`speedup at least
    2.65 times`). text: a sentence that can be read alone, with method, setting and number. source: the place in the
    paper.

    - A metric with an interval: the claim holds if it holds for the whole interval.
    - `speedup above 1`: the decision rule of `harness.decision` applies.
    """

    text: str
    source: str
    of: CellOf
    metric: str
    is_: Comparison = Field(alias="is")
    than: float | CellOf
    factor: float = 1.0  # of the right side
    scales: list[Scale] = list(SCALES)

    @model_validator(mode="before")
    @classmethod
    def _in_words(cls, given: Any) -> Any:
        return _parted(given, "than")


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
    fidelity: Fidelity | str | None = None  # str: a name of `fidelities`
    timed: bool = True
    timing: dict[str, Any] = {}  # for this cell; overrides the recipe's and the scale's
    scales: list[Scale] = list(SCALES)

    @field_validator("fidelity", mode="before")
    @classmethod
    def _condition(cls, given: Any) -> Any:
        return {"is": given} if isinstance(given, str) and " " in given else given  # names have no blanks


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
    """A recipe file. Its key `base` names another recipe (`harness.plan.recipe`)."""

    also = ("base",)

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
    names: dict[str, str] = {}  # a parameter's value, or one in a list -> its text in labels: exact -> EDR
    published_names: dict[str, str] = {}  # a parameter's value -> its text in the paper's table
    figure: Figure | None = None
    cells: list[CellSpec]
