"""`harness dashboard`: MLflow's own pages on the store, and links that open a comparison of a recipe's methods.

MLflow 3 lists runs without their metrics until a person chooses columns; its comparison page has them all.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.common.errors import MachineError, RequestError

HOST = "127.0.0.1"
MOST = 12  # runs of one comparison
PATIENCE = 120.0  # seconds until a server must have answered
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """A recipe's newest invocation with something to compare. parent: its run. runs: those of its cells, by id, the
    fastest first."""

    recipe: str
    experiment: str
    scale: str
    parent: str
    runs: tuple[str, ...]

    def url(self, base: str) -> str:
        """The page that compares the runs: parameters, metrics and charts side by side."""
        runs, experiments = (quote(json.dumps(ids)) for ids in (self.runs, [self.experiment]))
        return f"{base}/#/compare-runs?runs={runs}&experiments={experiments}"

    def charts(self, base: str) -> str:
        """The page with a chart for every metric and series, its runs by speedup."""
        of_this = quote(f"tags.`mlflow.parentRunId` = '{self.parent}'")
        order = f"orderByKey={quote('metrics.`speedup`')}&orderByAsc=false"
        return f"{base}/#/experiments/{self.experiment}/runs?searchFilter={of_this}&{order}&compareRunsMode=CHART"


def comparisons(client: Any) -> list[Comparison]:
    """Of each experiment the newest invocation that has two runs or more with a speedup, or else with any metric."""
    found = []
    for experiment in client.search_experiments(order_by=["name ASC"]):
        nested: dict[str, list[Any]] = {}
        runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1000)
        for run in runs:
            if parent := run.data.tags.get("mlflow.parentRunId"):
                nested.setdefault(parent, []).append(run)
        for parent in (run for run in runs if "mlflow.parentRunId" not in run.data.tags):  # the newest first
            group = nested.get(parent.info.run_id, [])
            timed = [run for run in group if "speedup" in run.data.metrics]
            chosen = timed if len(timed) > 1 else group
            if len(chosen) > 1:
                chosen.sort(key=lambda run: -run.data.metrics.get("speedup", 0.0))
                ids = tuple(run.info.run_id for run in chosen[:MOST])
                scale = chosen[0].data.tags.get("scale", "")
                found.append(Comparison(experiment.name, experiment.experiment_id, scale, parent.info.run_id, ids))
                break
    return found


@contextmanager
def server(uri: str, artifacts: Path | None, port: int, log: Path) -> Iterator[str]:
    """MLflow's pages on a store, for as long as they are wanted: yields their address. Every process is stopped after.

    uri: a database's. log: where the server's own words go. Raises `RequestError` for a port in use, `MachineError`
    when the server does not come up.
    """
    if _in_use(port):
        raise RequestError(f"port {port} is in use: give another with --port")
    command = [
        sys.executable, "-m", "mlflow", "ui", "--workers", "1", "--backend-store-uri", uri, "--host", HOST,
        "--port", str(port),
    ]  # fmt: skip
    command += ["--default-artifact-root", artifacts.as_uri()] if artifacts is not None else []
    base = f"http://{HOST}:{port}"
    with log.open("w", encoding="utf-8") as said:
        # a session of its own: its workers outlive it otherwise
        process = subprocess.Popen(
            command, stdout=said, stderr=said, start_new_session=True, env=_environment(os.environ)
        )
        try:
            _wait(process, base, log)
            yield base
        finally:
            _stop(process)


def lines(found: list[Comparison], base: str) -> Iterator[str]:
    """What to open, one line for each recipe."""
    yield f"MLflow: {base}"
    if not found:
        yield "nothing to compare yet: run `harness reproduce` first"
        return
    for one in found:
        yield f"{one.recipe} ({one.scale})"
        yield f"  side by side: {one.url(base)}"
        yield f"  charts:       {one.charts(base)}"


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    return {**_SETTINGS, **given}


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _wait(process: subprocess.Popen[bytes], base: str, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise MachineError(f"MLflow's server ended at once: {' '.join(said) or 'it said nothing'} (log: {log})")
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    raise MachineError(f"MLflow's server did not answer within {PATIENCE:.0f} s (log: {log})")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and all that it started."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue
