"""MLflow's pages on a store of ours: links that open a comparison, seen in a real browser where one is installed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from harness.common.errors import RequestError
from harness.measure import environment
from harness.plan.recipe import parse
from harness.tracking import dashboard
from harness.tracking.trackers import open_tracker
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
        with tracker.invocation(recipe, "mini", "cpu", root / "demo" / "mini") as invocation:
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
    (found,) = dashboard.comparisons(client)
    names = [client.get_run(run).info.run_name for run in found.runs]
    assert (found.recipe, found.scale, names) == ("demo", "mini", ["Fast", "Middle", "Slow"])
    url = found.url("http://h:1")
    assert url.startswith("http://h:1/#/compare-runs?runs=%5B%22") and found.runs[2] in url
    lines = list(dashboard.lines([found], "http://h:1"))
    assert lines[1] == "demo (mini)" and lines[2].split()[-1] == url and "compareRunsMode=CHART" in lines[3]
    assert "nothing to compare" in list(dashboard.lines([], "http://h:1"))[1]


def test_a_port_in_use_is_refused_by_its_number(store):
    with socket.socket() as taken:
        taken.bind((dashboard.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(RequestError, match=f"port {port} is in use"),
            dashboard.server("sqlite://", None, port, store / "log"),
        ):
            pass


@needs_browser
def test_a_person_sees_the_runs_and_compares_two_methods(store, client, tmp_path):
    (found,) = dashboard.comparisons(client)
    port = free_port()
    uri = f"sqlite:///{store.resolve() / 'mlflow.db'}"
    with dashboard.server(uri, None, port, tmp_path / "log") as base, browser() as opened:
        page = opened.new_page(viewport={"width": 1400, "height": 1600})
        page.goto(found.charts(base))
        page.get_by_text("Fast", exact=True).first.wait_for(timeout=60_000)
        listed = page.locator("body").inner_text()
        page.goto("about:blank")
        page.goto(found.url(base))
        page.get_by_text("precision_at_1", exact=True).first.wait_for(timeout=60_000)
        text = page.locator("body").inner_text()
    assert listed.index("Fast") < listed.index("Middle") < listed.index("Slow") and "Old" not in listed
    for words in ("Fast", "Middle", "Slow", "speedup", "3.5", "0.998"):
        assert words in text
    with socket.socket() as probe:
        assert probe.connect_ex((dashboard.HOST, port)) != 0  # every process of the server has ended
