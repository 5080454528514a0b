"""Cells over a Ray cluster of two nodes on this machine: the same rows as here, in one store; a lost node costs
none."""

from __future__ import annotations

import io
import os
import threading
import time

import pytest
from rich.console import Console

from harness.common.errors import MachineError, RequestError
from harness.common.parts import ClusterParts, connected
from harness.measure.cluster import ClusterRunner
from harness.measure.display import Display
from harness.measure.store import RowStore
from harness.plan import expansion, recipe
from tests.harness import running

ray = pytest.importorskip("ray", reason="Ray is not installed (extra `cluster`)")
pytestmark = pytest.mark.slow

RECIPE = """
name: toy
title: a toy
paper: none
source: none
task: {name: toy-text}
timing: {processes: 1, pairs: 2}
cells:
  - {row: uniform, method: toy-uniform}
  - {row: unigram, method: toy-unigram, speed_baseline: toy-uniform, fidelity_baseline: toy-uniform}
  - {row: slow, method: toy-unigram, params: {pause: 0.5}, speed_baseline: toy-uniform}
"""


@pytest.fixture
def cluster(toys, monkeypatch):
    """Two nodes with a core each; `toys` first, so that the nodes' processes see the toy methods."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.nodes = [made.add_node(num_cpus=1)]
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def runner(folder, toys, heard=None, said=None):
    display = Display(Console(file=said or io.StringIO(), width=400), 3)
    return ClusterRunner(folder, "cpu", toys, display, heard or running.Heard())


def test_rows_are_those_of_this_machine_gathered_in_order_and_found_finished_again(toys, cluster, tmp_path):
    cells = expansion.expand(recipe.parse(RECIPE, "toy.yaml"), "mini", toys)
    said, heard = io.StringIO(), running.Heard()
    result = runner(tmp_path / "there", toys, heard, said).run(cells)
    here = running.run(toys, tmp_path / "here", cells)
    assert [row.cell for row in result.rows] == [cell.name for cell in cells] and result.exit_code == 0
    for one, other in zip(result.rows, here.rows, strict=True):
        assert one.value("perplexity") == other.value("perplexity")
        assert one.hashes["data"] == other.hashes["data"] and one.status == "ok"
    assert len(heard.rows) == 3 and said.getvalue().count(" on ") == 3
    assert len(RowStore(tmp_path / "there" / "rows.jsonl").rows()) == 3
    again = runner(tmp_path / "there", toys).run(cells)
    assert again.known == [True] * 3 and [row.cell for row in again.rows] == [cell.name for cell in cells]


def test_what_cells_need_is_built_in_parts_before_the_first_is_measured(toys, cluster, cache_home, tmp_path):
    cells = expansion.expand(recipe.parse(RECIPE, "toy.yaml"), "mini", toys)
    there = runner(tmp_path, toys)
    there._build(connected(), cells, 1)
    [folder] = (cache_home / "unigram").glob("*/log_probs.npy")
    makers = {path.name for path in folder.parent.glob("made-by-*")}
    built_at = folder.stat().st_mtime_ns
    assert makers and f"made-by-{os.getpid()}" not in makers
    assert [row.status for row in there.run(cells).rows] == ["ok"] * 3
    assert folder.stat().st_mtime_ns == built_at  # the cells found it


def test_one_core_that_is_left_suffices_for_a_build_and_its_parts(toys, cluster, cache_home, tmp_path):
    cells = expansion.expand(recipe.parse(RECIPE, "toy.yaml"), "mini", toys)
    there = runner(tmp_path, toys)
    connection = connected()
    cluster.remove_node(cluster.nodes[0], allow_graceful=False)
    there._build(connection, cells, 2)
    assert list((cache_home / "unigram").glob("*/made-by-*"))


def test_parts_are_made_on_the_cluster_and_their_errors_are_raised_here(toys, cluster):
    connected()
    there = ClusterParts(cluster.address)
    found = list(there.each(_where, [(1,), (2,), (3,)], "all"))
    assert there.side_by_side() == 2
    assert [one[:2] for one in found] == [("all", 1), ("all", 2), ("all", 3)]
    assert os.getpid() not in {process for *_, process in found}
    with pytest.raises(RequestError, match="no 0"):
        list(there.each(_where, [(0,)], "all"))


def _where(shared, number):
    if not number:
        raise RequestError("no 0")
    return shared, number, os.getpid()


def test_the_cells_of_a_lost_node_are_run_again(toys, cluster, tmp_path):
    cells = expansion.expand(recipe.parse(RECIPE, "toy.yaml"), "mini", toys)

    def lose():
        time.sleep(4)
        cluster.remove_node(cluster.nodes[0], allow_graceful=False)

    loss = threading.Thread(target=lose)
    loss.start()
    result = runner(tmp_path, toys).run(cells)
    loss.join()
    assert [row.status for row in result.rows] == ["ok"] * 3


def test_what_cannot_be_carried_out_is_refused_as_here(toys, cluster, tmp_path):
    text = RECIPE.replace("{name: toy-text}", "{name: toy-text, params: {missing: true}}")
    cells = expansion.expand(recipe.parse(text, "toy.yaml"), "mini", toys)
    with pytest.raises(RequestError, match="no data at data/toy"):
        runner(tmp_path, toys).run(cells)


def test_without_a_cluster_one_line_says_how_to_start_one(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert "RAY_ADDRESS" not in os.environ
    with pytest.raises(MachineError, match="ray start --head"):
        connected()
