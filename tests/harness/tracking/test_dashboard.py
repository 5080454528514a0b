"""MLflow's pages on a store of ours: links that open a comparison, seen in a real browser where one is installed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from harness.common.errors import RequestError
from harness.measure import environment
from harness.plan.recipe import parse
from harness.tracking import dashboard
from harness.tracking.mlflow import open_tracker
from tests.harness.browser import browser, needs_browser
from tests.harness.rows import new_row, with_samples

ENVIRONMENT = environment.capture()
RECIPE = "name: demo\ntitle: a demo\npaper: none\nsource: here\ntask: {name: toy}\ncells: [{row: LM, method: lm}]\n"


def row(name: str, speedup: float, precision: float):
    made = new_row(
        recipe="demo", row=name, scale="mini", method=name.lower(), task="toy", seed=1, device="cpu",
        metrics={"precision_at_1": precision}, speed_baseline={"method": "exact", "params": {}},
        environment={"before": ENVIRONMENT, "after": ENVIRONMENT}, hashes={"key": name},
        started="2026-01-01T00:00:00+00:00", seconds=3.0,
    )  # fmt: skip
    return with_samples(made, speedup, shape=(6, 4))


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """A folder of runs whose store has an invocation of three methods, and an older one of two."""
    root = tmp_path_factory.mktemp("results") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        tracker = open_tracker(None, root)
    recipe = parse(RECIPE, "demo.yaml")
    for rows in (
        [row("Old", 1.5, 0.9), row("Older", 1.2, 0.9)],
        [row("Slow", 1.25, 0.875), row("Fast", 3.5, 0.998), row("Middle", 2.0, 0.95)],
    ):
        with tracker.invocation(recipe, "mini", "cpu") as invocation:
            for one in rows:
                invocation.row(one)
    return root


@pytest.fixture(scope="module")
def client(store):
    return open_tracker(None, store).client


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((dashboard.HOST, 0))
        return int(probe.getsockname()[1])


def test_the_newest_invocation_is_compared_the_fastest_first(client):
    first, demo, beside, charts = dashboard.links(client, "http://h:1")
    assert (first, demo) == ("MLflow: http://h:1", "demo (mini)")
    url = urlsplit(beside.split()[-1])
    runs = json.loads(parse_qs(url.fragment.partition("?")[2])["runs"][0])
    assert beside.split()[-1].startswith("http://h:1/#/compare-runs?runs=%5B%22") and "compareRunsMode=CHART" in charts
    assert [client.get_run(run).info.run_name for run in runs] == ["Fast", "Middle", "Slow"]


def test_a_port_in_use_is_refused_by_its_number(tmp_path):
    with socket.socket() as taken:
        taken.bind((dashboard.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RequestError, match=f"port {port} is in use"):
            dashboard.serve("sqlite://", tmp_path, port)


@pytest.fixture(scope="module")
def started(store) -> Iterator[tuple[str, str]]:
    """The two links of `harness dashboard`, in a process that is interrupted like a person interrupts it."""
    command = [sys.executable, "-m", "harness", "dashboard", "--results", str(store.parent), "--port", str(free_port())]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background inherit it ignored
    )  # fmt: skip
    lines = [process.stdout.readline().split()[-1] for _ in range(5)]
    try:
        until = time.monotonic() + 120
        while not answers(lines[0]) and time.monotonic() < until:
            time.sleep(0.3)
        yield lines[2], lines[3]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert not answers(lines[0])  # every process of the server has ended


def answers(base: str) -> bool:
    url = urlsplit(base)
    with socket.socket() as probe:
        return probe.connect_ex((url.hostname, url.port)) == 0


def test_the_server_answers_and_ends_with_the_command(started):
    with urllib.request.urlopen(f"{started[0].partition('/#')[0]}/health", timeout=30) as answer:
        assert answer.status == 200


@needs_browser
def test_a_person_sees_the_runs_and_compares_two_methods(started):
    with browser() as opened:
        page = opened.new_page(viewport={"width": 1400, "height": 1600})
        page.goto(started[1])
        page.get_by_text("Fast", exact=True).first.wait_for(timeout=60_000)
        listed = page.locator("body").inner_text()
        page.goto("about:blank")
        page.goto(started[0])
        page.get_by_text("precision_at_1", exact=True).first.wait_for(timeout=60_000)
        text = page.locator("body").inner_text()
    assert listed.index("Fast") < listed.index("Middle") < listed.index("Slow") and "Old" not in listed
    for words in ("Fast", "Middle", "Slow", "speedup", "3.5", "0.998"):
        assert words in text
