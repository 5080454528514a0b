"""`--executor ray`: the cells of a recipe over a Ray cluster, their rows in the one store.

Cells that are timed together are one Ray task. It has its node to itself (as many cores as the smallest node has: nodes
should be alike), where they run as they would here, in isolated processes, with that node's cache. What is measured is
a ratio inside one process, so it does not matter which node it was; a row says which machine it is of. A node that is
lost takes its cells' tasks with it: Ray starts them again elsewhere. Ray is imported when a cluster is asked for (extra
`cluster`).

Where all nodes have one cache folder (HARNESS_CACHE on a shared disk), what the cells need is built before the first of
them is measured: datastores and indexes in parts, a core of some node each (`harness.common.parts`). A build itself
reserves no core: it waits for its parts most of the time, and if builds held the cores that are left when a node is
lost, their parts would wait for ever.
"""

from __future__ import annotations

import io
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.common import parts
from harness.common.errors import HarnessError, MachineError, RequestError
from harness.common.files import default_cache
from harness.measure.display import Display
from harness.measure.runner import Result, RowSink, Runner, blocks, headline, only_run_in
from harness.measure.store import RowStore, as_line
from harness.plan.cell import Cell
from harness.plan.registry import Registry
from harness.rows import Row


class ClusterRunner:
    """Runs the cells of one recipe at one scale on a Ray cluster. Rows go to `<folder>/rows.jsonl` here, logs stay on
    the nodes (a failed row has the end of its own)."""

    def __init__(
        self, folder: Path, device: str, display: Display, sink: RowSink, *, fresh: bool = False,
        address: str | None = None,
    ) -> None:  # fmt: skip
        """address: of the cluster's head; None means $RAY_ADDRESS, else the cluster that runs on this machine."""
        self.folder = folder
        self.device = device
        self.display = display
        self.sink = sink
        self.fresh = fresh
        self.address = address
        self.store = RowStore(folder / "rows.jsonl")

    def run(self, cells: Sequence[Cell]) -> Result:
        """Run every cell that has no finished row of the machine it comes to.

        Raises `RequestError` when a task's preparation shows that the request cannot be carried out, `MachineError`
        when there is no cluster, a cell's node was lost too often, or a node reports an environment error; rows
        already gathered stay.
        """
        ray = connected(self.address)
        with only_run_in(self.folder):
            known = self.store.rows()
            if (cores := _all_cores(ray)) > 1 and _one_cache(ray):
                self._build(ray, cells, cores)
            gpus = int(self.device.startswith("cuda"))
            task = ray.remote(num_gpus=gpus, max_retries=parts.RETRIES, num_cpus=_cores(ray))(measured).options(
                scheduling_strategy="SPREAD"
            )
            numbers = {id(cell): number for number, cell in enumerate(cells, 1)}
            waiting: dict[Any, list[tuple[int, Cell]]] = {}
            for block in blocks(cells):
                names = {cell.name for cell in block}
                earlier = [as_line(row) for row in known if row.cell in names]
                reference = task.remote(block, self.device, self.fresh, earlier)
                waiting[reference] = [(numbers[id(cell)], cell) for cell in block]
            try:
                return self._gather(ray, waiting, len(cells))
            except BaseException:
                for reference in waiting:
                    ray.cancel(reference, force=True)
                raise

    def _build(self, ray: Any, cells: Sequence[Cell], together: int) -> None:
        """Build what the cells need, so many at a time. A build that fails is left to its cell, whose row says why."""
        self.display.step("building what the cells need")
        task = ray.remote(num_cpus=0, max_retries=parts.RETRIES)(built).options(scheduling_strategy="SPREAD")
        address = ray.get_runtime_context().gcs_address
        wanted = iter({(cell.method.name, repr(cell.method.params), repr(cell.task)): cell for cell in cells}.values())
        running: list[Any] = []
        try:
            while starting := [*running, *islice(wanted, together - len(running))]:
                running = [task.remote(one, self.device, address) if isinstance(one, Cell) else one for one in starting]
                _, running = ray.wait(running, num_returns=1)
        except BaseException:
            for one in running:
                ray.cancel(one, force=True)
            raise

    def _gather(self, ray: Any, waiting: dict[Any, list[tuple[int, Cell]]], cells: int) -> Result:
        """Rows as their cells finish; in the result in the cells' order."""
        found: dict[int, Row] = {}
        resumed = exit_code = 0
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            block = waiting.pop(ready)
            try:
                answer = ray.get(ready)
            except ray.exceptions.RayError as error:
                reason = " ".join(str(error).split())[:200]
                message = f"{block[0][1].name}: its node was lost {parts.RETRIES + 1} times ({reason})"
                raise MachineError(message) from error
            if answer["error"]:
                kind, text = answer["error"]
                raise (MachineError if kind == MachineError.exit_code else RequestError)(f"{block[0][1].name}: {text}")
            for (number, cell), row, known in zip(block, answer["rows"], answer["known"], strict=True):
                label = f"[{number}/{cells}] {cell.name}"
                if known:
                    resumed += 1
                    self.sink.finished(row)
                    self.display.line(f"{label}: finished before, not run again")
                else:
                    self.store.append(row)
                    self.sink.row(row)
                    self.display.line(f"{label}: {headline(row)} on {answer['node']}")
                found[number] = row
                self.display.advance()
            exit_code = max(exit_code, answer["exit_code"])
        return Result([found[number] for number in sorted(found)], resumed, exit_code)


def built(cell: Cell, device: str, address: str) -> None:
    """A Ray task: build what a cell needs into the cache, with its parts on the whole cluster."""
    with tempfile.TemporaryDirectory() as folder:
        display = Display(Console(file=io.StringIO()), cell.recipe, 1)
        Runner(Path(folder), device, Registry(), display, _Known()).build(cell, address)


def measured(cells: Sequence[Cell], device: str, fresh: bool, earlier: Sequence[str]) -> dict[str, Any]:
    """A Ray task: cells that are timed together, on the node where they came to.

    earlier: lines of the cells' earlier rows. Returns their rows, whether each was finished before, the exit code, the
    node; or the exit code and text of an error that ends the run.
    """
    import ray

    sink = _Known()
    answer: dict[str, Any] = {"error": None, "node": ray.util.get_node_ip_address()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows.jsonl").write_text("".join(earlier), encoding="utf-8")
        display = Display(Console(file=io.StringIO()), cells[0].recipe, len(cells))
        try:
            result = Runner(folder, device, Registry(), display, sink, fresh=fresh).run(cells)
        except HarnessError as error:
            return {**answer, "error": (error.exit_code, str(error))}
    known = [row.cell in sink.cells for row in result.rows]
    return {**answer, "rows": result.rows, "known": known, "exit_code": result.exit_code}


def connected(address: str | None = None) -> Any:
    """Ray, connected to a cluster. Raises `MachineError` without Ray or a cluster."""
    try:
        import ray
    except ImportError:
        raise MachineError("--executor ray needs Ray: pip install 'shortcut-harness[cluster]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address or "auto", runtime_env={"env_vars": parts.carried()}, log_to_driver=False)
        except (ConnectionError, RuntimeError) as error:
            raise MachineError(
                f"no Ray cluster answers ({' '.join(str(error).split())[:120]}): start one with `ray start --head`, "
                "or give its address by RAY_ADDRESS"
            ) from error
    return ray


def _one_cache(ray: Any) -> bool:
    """Whether a file that is written to this process's cache folder is in every node's."""
    probe = default_cache() / f"probe-{uuid.uuid4().hex}"
    probe.parent.mkdir(parents=True, exist_ok=True)
    probe.touch()
    try:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive: list[Mapping[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
        look = ray.remote(num_cpus=0)(_has)
        there = [NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False) for node in alive]
        return all(ray.get([look.options(scheduling_strategy=one).remote(probe.name) for one in there]))
    except ray.exceptions.RayError:  # a node was lost meanwhile
        return False
    finally:
        probe.unlink()


def _has(name: str) -> bool:
    return (default_cache() / name).exists()


def _all_cores(ray: Any) -> int:
    return int(ray.cluster_resources().get("CPU", 0))


def _cores(ray: Any) -> float:
    """Cores of the smallest node: a task that asks for so many is alone on it."""
    found = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    return float(min((cores for cores in found if cores > 0), default=1.0))


class _Known:
    """Remembers which cells were finished before. Rows are gathered by the runner that started the tasks."""

    def __init__(self) -> None:
        self.cells: set[str] = set()

    def row(self, row: Row) -> None: ...

    def finished(self, row: Row) -> None:
        self.cells.add(row.cell)
