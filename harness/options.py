"""The options that commands share, each written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.contracts.tasks import SCALES

Scale = Annotated[
    str,
    typer.Option(
        help="mini (minutes, nothing to download), small (real data) or paper (a GPU).",
        autocompletion=lambda: list(SCALES),
    ),
]
Results = Annotated[Path, typer.Option(help="Folder for rows, tables and figures.")]
Tracking = Annotated[str | None, typer.Option(help="MLflow tracking URI, or none. Default: sqlite under --results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override method.NAME, task.NAME or timing.NAME. Repeatable."),
]


@dataclass(frozen=True, slots=True)
class Options:
    """What `harness run` and `harness reproduce` were asked for, apart from names."""

    scale: Scale = "mini"
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu"
    overrides: Set = None
    processes: Annotated[int | None, typer.Option(min=1, help="Timing processes per cell.")] = None
    pairs: Annotated[int | None, typer.Option(min=1, help="Pairs per timing process.")] = None
    results: Results = Path("results")
    tracking: Tracking = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Run finished cells again.")] = False
    wait: Annotated[bool, typer.Option("--wait", help="Before timing, wait until other processes leave the cores.")] = (
        False
    )
    executor: Annotated[str, typer.Option(help="local, or ray: cells over a Ray cluster.")] = "local"
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells, run nothing.")] = False
    as_json: AsJson = False


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose last parameter, `options`, is given on the command line as the fields of `Options`."""
    *own, _ = inspect.signature(command, eval_str=True).parameters.values()
    shared = list(inspect.signature(Options, eval_str=True).parameters.values())

    @wraps(command)
    def called(**given: Any) -> None:
        options = Options(**{field.name: given.pop(field.name) for field in fields(Options)})
        command(**given, options=options)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*own, *shared]]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called
