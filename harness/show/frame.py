"""Rows as one tidy table: a line for each row and number. Tables, overview and figures are short functions of it.

The frame knows no view. What a view shows of a number is in its line: the interval, the paper's number next to it,
which direction is better, the decision of its row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from harness.common.errors import RequestError
from harness.plan.matching import find
from harness.plan.registry import Registry
from harness.plan.schema import Recipe
from harness.rows import Row
from harness.show.published import Number, comparable, lookup
from harness.show.stored import KINDS, Stored, stored

COLUMNS = (
    "recipe", "scale", "row", "column", "method", "params", "task", "baseline", "metric", "value", "low", "high",
    "decision", "paper", "better", "kind", "revision", "machine",
    "cell", "status", "variant", "reference", "contract", "ratio", "setting", "label", "unit", "error",
)  # fmt: skip
KEY = ["recipe", "scale", "cell"]
OF_VIEWS = ("published", "claimed", "apart", "planned", "headline", "declared")  # further columns, for views


def frame(results: Path | str = "results", kinds: Sequence[str] = KINDS) -> pd.DataFrame:
    """All stored rows, a line for each row and number.

    results: a folder with `measured` or `runs` in it. A row without any number has one line without a
    metric. Columns:

    - recipe, scale, row, column, cell: labels; a cell is "row / column"
    - method, variant, params, task: what ran. variant: parameters that tell variants apart; params: JSON of all
    - baseline, reference: what time and answers are compared with, with its variant
    - contract, status, error, decision: of the row
    - metric, label, unit, kind, better: what the number is (`harness.contracts.metrics.Metric`)
    - value, low, high: the number with its 95% interval
    - paper, setting, ratio: the published number in the same unit, where it stands, and value / paper where that
      means something
    - revision, machine: of the code, and a hash of the hardware
    """
    return exported(of_all(stored(Path(results), Registry(), kinds), Registry()))


def exported(table: pd.DataFrame) -> pd.DataFrame:
    """The columns that users get, parameters as JSON."""
    return table[list(COLUMNS)].assign(params=table.params.map(lambda params: json.dumps(params, sort_keys=True)))


def of_all(every: Iterable[Stored], registry: Registry) -> pd.DataFrame:
    """The frame of several recipes, with the columns `OF_VIEWS`: the published number itself, what the paper's claims
    ask at least, the words of rows that are apart, whether the recipe still has the cell, whether it is a headline
    recipe, whether the baseline is the one that the method declares."""
    lines: list[dict[str, Any]] = []
    for one in every:
        planned, claimed = {cell.name for cell in one.cells}, _claimed(one)
        for words, row in one.every:
            more = {"apart": words, "planned": row.cell in planned, "headline": one.recipe.headline}
            for line in _lines(row, registry, one.recipe, one.numbers):
                lines.append(line | more | {"claimed": claimed.get((row.cell, line.get("metric")))})
    found = pd.DataFrame.from_records(lines, columns=[*COLUMNS, *OF_VIEWS])
    return found.astype(dict.fromkeys(("planned", "headline", "declared"), bool))


def _claimed(one: Stored) -> dict[tuple[str, str | None], float]:
    """(cell, metric) -> the number that a claim of the paper at this scale asks of it at least."""
    found: dict[tuple[str, str | None], float] = {}
    for claim in one.recipe.claims if one.cells else ():
        if claim.is_ == "at least" and isinstance(claim.than, float) and one.scale in claim.scales and not claim.of.at:
            with suppress(RequestError):  # the recipe has no such cell at this scale
                found[find(claim.of, one.cells)[0].name, claim.metric] = claim.factor * claim.than
    return found


def part(numbers: pd.DataFrame, one: Stored) -> pd.DataFrame:
    """The lines of one recipe at one scale."""
    return numbers[(numbers.recipe == one.recipe.name) & (numbers.scale == one.scale)]


def _lines(row: Row, registry: Registry, recipe: Recipe, numbers: Sequence[Number]) -> Iterator[dict[str, Any]]:
    entry = registry.entry("method", row.method) if row.method in registry.names("method") else None
    common: dict[str, Any] = {
        "recipe": row.recipe, "scale": row.scale, "row": row.row, "column": row.column, "cell": row.cell,
        "method": row.method, "variant": _variant(row, registry), "params": row.params, "task": row.task,
        "baseline": named(row.speed_baseline, registry), "reference": named(row.fidelity_baseline, registry),
        "contract": entry.contract if entry else None, "status": row.status,
        "error": (row.error or {}).get("message"), "decision": row.decision,
        "revision": row.code.get("revision"), "machine": row.machine,
        "declared": bool(entry and row.speed_baseline and row.speed_baseline["method"] == entry.baseline),
        "apart": "", "planned": True, "headline": False,
    }  # fmt: skip
    if not row.numbers:
        yield common
    where = recipe.published_where
    labels = row.published if all(row.facts.get(fact) in values for fact, values in where.items()) else None
    for name, (value, interval) in row.numbers.items():
        about, (low, high) = row.metric(name), interval or (None, None)
        line = {
            **common, "metric": name, "label": about.label, "unit": about.unit, "kind": about.kind,
            "better": about.better, "value": value, "low": low, "high": high,
        }  # fmt: skip
        if labels and (found := lookup(numbers, labels[0], labels[1], about)) is not None:
            line |= {"published": found, "paper": found.as_measured(about), "setting": found.place_next_to(row)}
            if line["paper"] and comparable(about, row.scale in recipe.data_of_paper):
                line["ratio"] = value / line["paper"]
        yield line


def named(used: Mapping[str, Any] | None, registry: Registry) -> str | None:
    """`ctranslate2 (beam=1, compute=int8)`: a method with the parameters that its declaration names `variants`."""
    if not used:
        return None
    shown = variant(_variants(used["method"], registry), used["params"])
    return f"{used['method']} ({shown})" if shown else str(used["method"])


def variant(names: Iterable[str], params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={params[name]}" for name in names if name in params)


def _variant(row: Row, registry: Registry) -> str:
    """The row's parameters that tell variants apart; next to a baseline of the same method those that differ too."""
    own, baseline = row.params["method"], row.speed_baseline
    other = baseline["params"] if baseline and baseline["method"] == row.method else {}
    differing = [name for name in own if name in other and own[name] != other[name]]
    return variant(dict.fromkeys([*_variants(row.method, registry), *differing]), own)


def _variants(method: str, registry: Registry) -> Sequence[str]:
    return registry.entry("method", method).variants if method in registry.names("method") else ()
