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
from typing import TYPE_CHECKING

from harness.common.errors import MachineError, RequestError
from harness.contracts.tasks import Scale
from harness.plan.recipe import Recipe
from harness.rows import Row
from harness.tracking.mlflow import MlflowTracker

if TYPE_CHECKING:
    from harness.show.claims import Verdicts


def open_tracker(uri: str | None, root: Path) -> MlflowTracker | NullTracker:
    """The tracker for a URI; `none` records nothing and needs no MLflow.

    uri: None means $MLFLOW_TRACKING_URI, else sqlite in `root` (`mlflow.db`, artifacts in `mlartifacts/` next to it).
    A server need not answer yet (`MlflowTracker.answering`). Raises `RequestError` when MLflow is not installed or the
    store cannot be opened, `MachineError` when `root` cannot be written.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or None
    if uri == "none":
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


def open_store(uri: str | None, root: Path) -> MlflowTracker:
    """The tracker for a URI, once its store answers. Raises `RequestError` where it does not, and for `none`; else as
    `open_tracker`."""
    tracker = open_tracker(uri, root)
    if not isinstance(tracker, MlflowTracker):
        raise RequestError("there is no tracking store: give a tracking URI instead of none")
    return tracker.answering()


class NullTracker:
    """Records nothing."""

    @contextmanager
    def invocation(self, recipe: Recipe, scale: Scale, device: str) -> Iterator[NullTracker]:
        yield self

    def row(self, row: Row) -> None: ...

    def finished(self, row: Row) -> None: ...

    def verdicts(self, verdicts: Verdicts) -> None: ...

    def files(self, paths: Sequence[Path]) -> None: ...
