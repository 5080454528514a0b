"""Rows -> MLflow: one experiment per recipe, a parent run per invocation, a nested run per cell.

Rows are on disk before they come here. A run does not end because a tracking server is away, from the start or from the
middle on: a warning says so, and `send_missing` sends the rows later. A database that cannot be opened is refused
before anything runs. MLflow is imported when a store opens.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.common.cache import exclusive
from harness.common.errors import RequestError, writing
from harness.contracts.tasks import Scale
from harness.measure.store import RowStore
from harness.plan.schema import Recipe
from harness.rows import Row

if TYPE_CHECKING:
    from harness.show.claims import Verdicts

PARENT = "mlflow.parentRunId"
RUNS = 50_000  # the most that MLflow returns of one search
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}  # set unless the user has set them
_OF_CLIENT = {
    **QUIET,
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # the default waits minutes for a server that is gone
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}
_STATUS = {"ok": "FINISHED", "skipped": "KILLED", "failed": "FAILED", "timeout": "KILLED", "killed": "KILLED"}


class Tracker:
    """A tracking store, or none (`client` is None): then nothing is sent. broken: the store has failed; nothing is sent
    to it until it answers again (`recovered`)."""

    def __init__(self, uri: str, artifacts: Path | None = None) -> None:
        """uri: `none` for no store. artifacts: folder for artifacts of new experiments; None leaves the place to the
        tracking server. Raises `RequestError` for a URI that no store can be made of, and for a database that cannot
        be opened."""
        self.uri = shown_uri(uri)
        self.store = uri  # with its password, where it has one
        self.client: Any = None
        self.broken = uri == "none"
        self._artifacts = artifacts
        if self.broken:
            return
        for name, value in _OF_CLIENT.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow.tracking import MlflowClient

            with _locked(uri):
                self.client = MlflowClient(tracking_uri=uri)
        except Exception as error:  # of MLflow, SQLAlchemy, requests, ...: no common base
            raise self._refused("cannot be opened", error) from error

    def answering(self) -> Tracker:
        """This tracker, once its store has answered. Raises `RequestError` where it does not, or there is none."""
        if self.client is None:
            raise RequestError("there is no tracking store: give a tracking URI instead of none")
        try:
            self.client.search_experiments(max_results=1)
        except Exception as error:
            raise self._refused("does not answer", error) from error
        return self

    def recovered(self) -> bool:
        """Whether a store that failed answers again; asked before each recipe, so that one failure costs one recipe."""
        if self.broken:
            with suppress(RequestError):
                self.answering()
                self.broken = False
        return not self.broken

    def _refused(self, what: str, error: Exception) -> RequestError:
        return RequestError(
            f"the tracking store {self.uri} {what} ({_one_line(error)}): "
            "start it, give another with --tracking URI, or use --tracking none"
        )

    @contextmanager
    def survive(self) -> Iterator[None]:
        """A failure warns and ends no run; from then on nothing is sent."""
        try:
            yield
        except Exception as error:  # whatever a database, a server or the network may raise
            self.broken = True
            print(
                f"warning: tracking to {self.uri} failed ({_one_line(error)}); rows are kept on disk, "
                "`harness sync` sends them",
                file=sys.stderr,
                flush=True,
            )

    @contextmanager
    def invocation(self, recipe: Recipe, scale: Scale, device: str) -> Iterator[Invocation]:
        """One run of a recipe: its parent run, ended when the block ends."""
        current = Invocation(self)
        if self.recovered():
            current.begin(recipe.name, recipe.title, scale, device)
        try:
            yield current
        except BaseException as error:
            current.end("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
            raise
        current.end("FINISHED")

    def experiment(self, name: str, title: str) -> str:
        """Id of the recipe's experiment, created or restored when there is none."""
        with _locked(self.store):
            found = self.client.get_experiment_by_name(name)
            if found is not None:
                if found.lifecycle_stage == "deleted":
                    self.client.restore_experiment(found.experiment_id)
                return str(found.experiment_id)
            place, tags = (self._artifacts / name).as_uri() if self._artifacts else None, {"mlflow.note.content": title}
            return str(self.client.create_experiment(name, artifact_location=place, tags=tags))


def open_tracker(uri: str | None, root: Path) -> Tracker:
    """The tracker for a URI; `none` records nothing and needs no MLflow.

    uri: None means $MLFLOW_TRACKING_URI, else sqlite in `root` (`mlflow.db`, artifacts in `mlartifacts/` next to it).
    A server need not answer yet (`Tracker.answering`). Raises `RequestError` when MLflow is not installed or the store
    cannot be opened, `MachineError` when `root` cannot be written.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or None
    if uri is not None:
        return Tracker(uri)
    with writing(root, "choose another --results"):
        root.mkdir(parents=True, exist_ok=True)
    database = root.resolve() / "mlflow.db"
    if not database.exists():
        print(f"tracking: creating {database} (some seconds, once)", file=sys.stderr, flush=True)
    return Tracker(f"sqlite:///{database}", database.with_name("mlartifacts"))


def _sends(method: Callable[..., None]) -> Callable[..., None]:
    """What an invocation sends, as long as its store has not failed; a failure warns and ends no run."""

    @wraps(method)
    def sent(invocation: Invocation, *given: Any) -> None:
        if not invocation.tracker.broken:
            with invocation.tracker.survive():
                method(invocation, *given)

    return sent


class Invocation:
    """A parent run, and the nested runs of its cells."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self._client = tracker.client
        self._failed_cells = False
        self._experiment = self._parent = ""

    @_sends
    def begin(self, recipe: str, title: str, scale: str, device: str) -> None:
        self._experiment = self.tracker.experiment(recipe, title)
        name = f"{scale} {device} {datetime.now(UTC):%Y-%m-%d %H:%M}"
        tags = {"recipe": recipe, "scale": scale, "device": device}
        self._parent = self._client.create_run(self._experiment, run_name=name, tags=tags).info.run_id

    @_sends
    def row(self, row: Row) -> None:
        """A cell has its row."""
        from harness.tracking.records import dataset, metrics, parameters, tags

        self._failed_cells |= row.status not in ("ok", "skipped")
        first = _start(row)
        run = self._client.create_run(
            self._experiment, start_time=first, run_name=row.cell, tags={PARENT: self._parent, **tags(row)}
        ).info.run_id
        batch, params = metrics(row, first), parameters(row)
        for at in range(0, len(params), 100):  # limits of one request
            self._client.log_batch(run, params=params[at : at + 100])
        for at in range(0, len(batch), 1000):
            self._client.log_batch(run, metrics=batch[at : at + 1000])
        data, models = dataset(row), self._models(run, row)
        if data is not None or models:
            self._client.log_inputs(run, datasets=[data] if data is not None else None, models=models or None)
        if row.error:
            self._client.log_text(run, "\n".join(row.error.values()), "error.txt")
        self._client.set_terminated(run, _STATUS[row.status], first + int((row.seconds or 0) * 1000))

    @_sends
    def finished(self, row: Row) -> None:
        """Tag the parent with the runs of earlier invocations that have the row and its repeats, or, where this store
        has none of them, with the row's key."""
        from harness.tracking.records import allowed

        key = row.hashes.get("key")
        found = self._client.search_runs(
            [self._experiment], filter_string=f"tags.`hash.key` = '{key}' and tags.status = 'ok'",
            order_by=["attributes.start_time ASC"],
        )  # fmt: skip
        runs = ", ".join(run.info.run_id for run in found) or f"no run in this store, key {key}"
        self._client.set_tag(self._parent, allowed(f"finished.{row.cell}"), runs)

    @_sends
    def verdicts(self, verdicts: Verdicts) -> None:
        """The recipe's claims and targets were judged."""
        from harness.tracking.records import counts

        if verdicts.claims or verdicts.targets:
            self._client.log_batch(self._parent, metrics=counts(verdicts, int(datetime.now(UTC).timestamp() * 1000)))

    @_sends
    def files(self, paths: Sequence[Path]) -> None:
        """The run has written its tables and figures; those that do not exist are passed over."""
        for path in paths:
            if path.exists():
                self._client.log_artifact(self._parent, str(path))

    @_sends
    def end(self, status: str) -> None:
        failed = status == "FINISHED" and self._failed_cells
        self._client.set_terminated(self._parent, "FAILED" if failed else status)

    def _models(self, run: str, row: Row) -> list[Any]:
        """The model that the cell read, by content hash; it is registered once per experiment."""
        from mlflow.entities import LoggedModelInput

        if not (digest := row.hashes.get("model")):
            return []
        known = self._client.search_logged_models([self._experiment], filter_string=f"tags.hash = '{digest}'")
        if not known:
            name = str(row.facts.get("model") or row.params["task"].get("model") or "model")
            name = re.sub(r"[^\w-]+", "-", name).strip("-") or "model"
            known = [self._client.create_logged_model(self._experiment, name, source_run_id=run, tags={"hash": digest})]
            self._client.finalize_logged_model(known[0].model_id, "READY")
        return [LoggedModelInput(str(known[0].model_id))]


def send_missing(runs: Path, tracker: Tracker) -> int:
    """Send the rows of every `<runs>/<recipe>/<scale>/rows.jsonl` that the store lacks, and return how many.

    A run that did not end, because the store failed while the row was sent, does not count. Raises `RequestError` when
    the store fails; the next call sends the rows left.
    """
    sent = 0
    for path in sorted(runs.glob("*/*/rows.jsonl")):
        recipe, scale = path.parts[-3:-1]
        try:
            rows = RowStore(path).rows()
        except RequestError as error:
            print(f"warning: not sent: {error}", file=sys.stderr)
            continue
        with tracker.survive():
            found = tracker.client.get_experiment_by_name(recipe)
            runs_there = tracker.client.search_runs([found.experiment_id], max_results=RUNS) if found else []
            ended = {(run.info.run_name, run.info.start_time) for run in runs_there if run.info.status != "RUNNING"}
            if missing := [row for row in rows if (row.cell, _start(row)) not in ended]:
                invocation = Invocation(tracker)
                invocation.begin(recipe, recipe, scale, missing[0].device or "")
                for row in missing:
                    invocation.row(row)
                invocation.end("FINISHED")
                sent += len(missing)
        if tracker.broken:
            raise RequestError(f"the tracking store {tracker.uri} failed again: `harness sync` sends the rows left")
    return sent


def _start(row: Row) -> int:
    """When a row's measurement started, in milliseconds: with its cell's name it tells runs apart."""
    return int(datetime.fromisoformat(row.started).timestamp() * 1000) if row.started else 0


def _locked(uri: str) -> AbstractContextManager[Any]:
    """Holds the lock file of a database file. MLflow fails when several processes create its tables or an experiment at
    once."""
    found = re.match(r"sqlite(?:\+\w+)?:///(?!:memory:)([^?]+)", uri)
    return exclusive(Path(f"{found[1]}.lock")) if found else nullcontext()


def shown_uri(text: str) -> str:
    """A URI, or a text with URIs in it, without user names and passwords."""
    return re.sub(r"//[^/@\s]*@", "//***@", text)


def _one_line(error: BaseException) -> str:
    return shown_uri(" ".join(str(error).split()) or type(error).__name__)[:200]
