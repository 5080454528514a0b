"""`harness dashboard`: MLflow's own pages on the store, and links that open a comparison of a recipe's methods.

MLflow 3 lists runs without their metrics until a person chooses columns; its comparison page has them all.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.common.errors import MachineError, RequestError
from harness.measure.executors import stop
from harness.tracking.mlflow import PARENT, QUIET

HOST = "127.0.0.1"
MOST = 12  # runs of one comparison


def links(client: Any, base: str) -> Iterator[str]:
    """What to open, in lines: for each recipe the page that compares the methods of its newest invocation with two
    cells or more, the fastest first, and the page with a chart for every metric and series."""
    yield f"MLflow: {base}"
    for experiment in client.search_experiments(order_by=["name ASC"]):
        ids = [experiment.experiment_id]
        newest = client.search_runs(ids, order_by=["attributes.start_time DESC"], max_results=1000)
        for parent in (run for run in newest if PARENT not in run.data.tags):
            nested = f"tags.`{PARENT}` = '{parent.info.run_id}'"
            cells = client.search_runs(ids, nested, order_by=["metrics.speedup DESC"], max_results=MOST)
            if len(cells) > 1:
                runs, experiments = (quote(json.dumps(part)) for part in ([cell.info.run_id for cell in cells], ids))
                shown = f"searchFilter={quote(nested)}&orderByKey={quote('metrics.`speedup`')}&orderByAsc=false"
                yield f"{experiment.name} ({parent.data.tags.get('scale', '')})"
                yield f"  side by side: {base}/#/compare-runs?runs={runs}&experiments={experiments}"
                yield f"  charts:       {base}/#/experiments/{ids[0]}/runs?{shown}&compareRunsMode=CHART"
                break


def serve(uri: str, artifacts: Path, port: int) -> None:
    """MLflow's pages on a database until they are interrupted. Every process of the server is stopped after.

    Raises `RequestError` for a port in use, `MachineError` when the server ends by itself; it says why on standard
    error.
    """
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise RequestError(f"port {port} is in use: give another with --port")
    command = [
        sys.executable, "-m", "mlflow", "ui", "--workers", "1", "--uvicorn-opts", "--log-level warning",
        "--backend-store-uri", uri, "--default-artifact-root", artifacts.as_uri(), "--host", HOST, "--port", str(port),
    ]  # fmt: skip
    variables = {**QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **os.environ}
    # a session of its own: its workers outlive it otherwise
    process = subprocess.Popen(command, start_new_session=True, env=variables)
    try:
        process.wait()
    finally:
        stop(process)
    raise MachineError(f"MLflow's server ended with exit code {process.returncode}")
