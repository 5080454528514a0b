"""Trackers of rows as they are measured: MLflow, or none with `--tracking none`, which imports no MLflow.

Tracking stands outside the measuring: rows are on disk before they come here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.common.errors import MachineError, RequestError
from harness.contracts.tasks import Scale
from harness.plan.recipe import Recipe
from harness.rows import Row
from harness.tracking.mlflow import MlflowTracker

if TYPE_CHECKING:
    from harness.show.claims import Verdicts

NONE = "none"


class Invocation(Protocol):
    """One run of one recipe, as tracking sees it."""

    def row(self, row: Row) -> None:
        """A cell has its row."""

    def finished(self, row: Row) -> None:
        """A cell was measured by an earlier run and is not run again."""

    def verdicts(self, verdicts: Verdicts) -> None:
        """The recipe's claims and targets were judged."""

    def files(self, paths: Sequence[Path]) -> None:
        """The run has written its tables and figures; those that do not exist are passed over."""


class Tracker(Protocol):
    """Where invocations are recorded. `uri` is for people: without passwords."""

    uri: str

    def invocation(self, recipe: Recipe, scale: Scale, device: str, folder: Path) -> Any:
        """Context manager that yields an `Invocation`; rows it cannot send go to `<folder>/unsent.jsonl`."""


def open_tracker(uri: str | None, root: Path) -> Tracker:
    """The tracker for a URI; `none` records nothing and needs no MLflow.

    uri: None means $MLFLOW_TRACKING_URI, else sqlite in `root` (`mlflow.db`, artifacts in `mlartifacts/` next to it).
    A server need not answer yet (`MlflowTracker.answering`). Raises `RequestError` when MLflow is not installed or the
    store cannot be opened, `MachineError` when `root` cannot be written.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or None
    if uri == NONE:
        return NullTracker()
    if find_spec("mlflow") is None:
        raise RequestError("MLflow is not installed: use --tracking none, or install it with `pip install mlflow`")
    artifacts = None
    if uri is None:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(f"cannot create {root}: {error.strerror or error}; use --results DIR") from error
        uri = f"sqlite:///{root.resolve() / 'mlflow.db'}"
        artifacts = root.resolve() / "mlartifacts"
        if not (root / "mlflow.db").exists():
            print(f"tracking: creating {root / 'mlflow.db'} (some seconds, once)", file=sys.stderr, flush=True)
    return MlflowTracker(uri, artifacts)


class NullTracker:
    """Records nothing."""

    uri = NONE

    @contextmanager
    def invocation(self, recipe: Recipe, scale: Scale, device: str, folder: Path) -> Iterator[Invocation]:
        yield self

    def row(self, row: Row) -> None: ...

    def finished(self, row: Row) -> None: ...

    def verdicts(self, verdicts: Verdicts) -> None: ...

    def files(self, paths: Sequence[Path]) -> None: ...
