"""Rows that tests invent, with well-formed timing samples that have the speedup that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.rows import Row


def new_row(**known: Any) -> Row:
    """A row of these fields; recipe, scale, method and task have values where none are given."""
    return Row(**{"recipe": "r", "scale": "small", "row": "a", "method": "m", "task": "t", **known})


def processes(
    speedup: float | Sequence[float] = 2.0, *, shape: tuple[int, int] = (10, 3), items: int = 5, seconds: float = 1.0,
    spread: float = 0.01, noise: float = 1.0, repeat: float = 1.0, hot: float | None = None, single: bool = False,
    first: int = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    """The timing processes of a row.

    speedup: the median over processes, which lie evenly within `spread` of it (0.01: 1%); or the ratio of each process.
    With 6 to 8 processes the interval reaches from the first ratio to the last. shape: processes, pairs. items: of one
    pass, each pass other ones. seconds: of one pass of the method.
    noise: the baseline against itself; repeat: how much faster the method is on items it has seen; hot: the speedup
    in a loop. single: the method alone was timed. first: number of the first process, for repeats of a cell.
    """
    number, pairs = shape
    ratios = list(speedup) if isinstance(speedup, Sequence) else _around(speedup, spread, number)
    return [
        _process(first + place, ratio, pairs, items, seconds, noise, repeat, hot, single)
        for place, ratio in enumerate(ratios)
    ]


def with_samples(
    row: Row, speedup: float | Sequence[float] = 2.0, objections: Sequence[str] = (), **details: Any
) -> Row:
    """The row with such samples. `details` are those of `processes`."""
    return replace(row, processes=processes(speedup, **details), objections=list(objections))


def timed_row(
    speedup: float | Sequence[float] = 2.0, scale: str = "small", key: str | None = "k", objections: Sequence[str] = (),
    **details: Any,
) -> Row:  # fmt: skip
    """A row next to a language model, with such samples, which a repeat under this key would extend."""
    baseline = {"method": "lm", "params": {}}
    hashes = {"key": key} if key else {}
    made = new_row(scale=scale, speed_baseline=baseline, metrics={"perplexity": 9.0}, hashes=hashes)
    return with_samples(made, speedup, objections, **details)


def _around(centre: float, spread: float, number: int) -> list[float]:
    if number == 1:
        return [centre]
    return [centre * (1 + spread * (2 * place / (number - 1) - 1)) for place in range(number)]


def _process(
    number: int, ratio: float, pairs: int, items: int, seconds: float, noise: float, repeat: float,
    hot: float | None, single: bool,
) -> dict[str, Any]:  # fmt: skip
    method = seconds * 1e9 / items
    baseline = method * ratio
    return {
        "process": number,
        "fit": 0,
        "pairs": [
            {
                "order": "B" if single else ("AB", "BA")[(number + pair) % 2],
                "count": items,
                "items": [(number * pairs + pair) * items + item for item in range(items)],
                "baseline_ns": None if single else [baseline] * items,
                "method_ns": [method] * items,
            }
            for pair in range(pairs)
        ],
        "again": None if single else {
            "baseline_ns": [baseline / noise] * items,
            "method_ns": [method / repeat] * items,
        },
        "hot": [] if hot is None else [{"baseline_ns": hot * seconds * 1e8, "method_ns": seconds * 1e8}] * pairs,
        "phases": {},
        "threads": {},
        "quiet": None,
        "answers_sha256": {},
        "fidelity": {},
        "memory_mib": {},
    }  # fmt: skip
