"""`--executor ray`: the cells of a recipe over a Ray cluster, their rows in the one store (docs/measuring.md, "Several
machines").

Cells that are timed together are one Ray task, alone on its node (it asks for as many cores as the smallest node has:
nodes should be alike), where they run as they would here. A node that is lost takes its cells' tasks with it: Ray
starts them again elsewhere. A build reserves no core: it waits for its parts most of the time, and if builds held the
cores that are left when a node is lost, their parts would wait for ever.
"""

from __future__ import annotations

import io
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.common import parts
from harness.common.errors import HarnessError, MachineError
from harness.common.files import default_cache
from harness.measure.display import Display
from harness.measure.runner import Result, Runner, blocks, headline
from harness.measure.store import as_line
from harness.plan.cell import Cell
from harness.plan.registry import Registry
from harness.rows import Row


class ClusterRunner(Runner):
    """Runs the cells of one recipe at one scale on the Ray cluster at $RAY_ADDRESS, else the one that runs on this
    machine. Rows go to `<folder>/rows.jsonl` here, logs stay on the nodes (a failed row has the end of its own)."""

    def _run(self, cells: Sequence[Cell]) -> Result:
        """Raises `MachineError` also when there is no cluster, or when a cell's node was lost too often."""
        ray, known = parts.connected(), self.store.rows()
        if (cores := int(ray.cluster_resources().get("CPU", 0))) > 1 and _one_cache(ray):
            self._build(ray, cells, cores)
        task = ray.remote(num_gpus=int(self.device.startswith("cuda")), max_retries=parts.RETRIES, num_cpus=_cores(ray))
        task = task(measured).options(scheduling_strategy="SPREAD")
        numbers = {id(cell): number for number, cell in enumerate(cells)}
        waiting: dict[Any, list[int]] = {}
        for block in blocks(cells):
            names = {cell.name for cell in block}
            earlier = [as_line(row) for row in known if row.cell in names]
            reference = task.remote(block, self.device, self.fresh, earlier)
            waiting[reference] = [numbers[id(cell)] for cell in block]
        try:
            return self._gather(ray, waiting, cells)
        except BaseException:
            for reference in waiting:
                ray.cancel(reference, force=True)
            raise

    def _build(self, ray: Any, cells: Sequence[Cell], together: int) -> None:
        """Build what the cells need, so many at a time. A build that fails is left to its cell, whose row says why."""
        self.display.step("building what the cells need")
        task = ray.remote(num_cpus=0, max_retries=parts.RETRIES)(built).options(scheduling_strategy="SPREAD")
        address = ray.get_runtime_context().gcs_address
        running: list[Any] = []
        try:
            for cell in {repr((cell.method, cell.task)): cell for cell in cells}.values():
                if len(running) == together:
                    _, running = ray.wait(running)
                running.append(task.remote(cell, self.device, address))
            ray.wait(running, num_returns=len(running))
        except BaseException:
            for one in running:
                ray.cancel(one, force=True)
            raise

    def _gather(self, ray: Any, waiting: dict[Any, list[int]], cells: Sequence[Cell]) -> Result:
        """Rows as their cells finish; in the result in the cells' order. waiting: task -> numbers of its cells."""
        found: dict[int, tuple[Row, bool]] = {}
        exit_code = 0
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            block = waiting.pop(ready)
            first = cells[block[0]].name
            try:
                answer: tuple[Result, str] = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, HarnessError):
                    raise
                raise type(error.cause)(f"{first}: {error.cause}") from None
            except ray.exceptions.RayError as error:
                reason = " ".join(str(error).split())[:200]
                raise MachineError(f"{first}: its node was lost {parts.RETRIES + 1} times ({reason})") from error
            result, node = answer
            for number, row, known in zip(block, result.rows, result.known, strict=True):
                label = f"[{number + 1}/{len(cells)}] {cells[number].name}"
                if known:
                    self._is_known(label, row)
                else:
                    self.display.line(f"{label}: {headline(row)} on {node}")
                    self._is_new(row)
                found[number] = row, known
            exit_code = max(exit_code, result.exit_code)
        return Result.of(found, exit_code)


def built(cell: Cell, device: str, address: str) -> None:
    """A Ray task: build what a cell needs into the cache, with its parts on the whole cluster."""
    with tempfile.TemporaryDirectory() as folder:
        _quiet(Path(folder), device).build(cell, address)


def measured(cells: Sequence[Cell], device: str, fresh: bool, earlier: Sequence[str]) -> tuple[Result, str]:
    """A Ray task: the result of cells that are timed together, and the node where they came to. earlier: lines of the
    cells' earlier rows."""
    import ray

    with tempfile.TemporaryDirectory() as folder:
        runner = _quiet(Path(folder), device, fresh)
        runner.store.path.write_text("".join(earlier), encoding="utf-8")
        return runner.run(cells), ray.util.get_node_ip_address()


def _quiet(folder: Path, device: str, fresh: bool = False) -> Runner:
    """A runner of a node: its rows are gathered by the runner that started the tasks."""
    return Runner(folder, device, Registry(), Display(Console(file=io.StringIO()), 1), fresh=fresh)


def _one_cache(ray: Any) -> bool:
    """Whether a file that is written to this process's cache folder is in every node's."""
    probe = default_cache() / f"probe-{uuid.uuid4().hex}"
    probe.parent.mkdir(parents=True, exist_ok=True)
    probe.touch()
    try:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive: list[Mapping[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
        look = ray.remote(num_cpus=0)(lambda name: (default_cache() / name).exists())
        there = [NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False) for node in alive]
        return all(ray.get([look.options(scheduling_strategy=one).remote(probe.name) for one in there]))
    except ray.exceptions.RayError:  # a node was lost meanwhile
        return False
    finally:
        probe.unlink()


def _cores(ray: Any) -> float:
    """Cores of the smallest node: a task that asks for so many is alone on it."""
    found = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    return float(min((cores for cores in found if cores > 0), default=1.0))
