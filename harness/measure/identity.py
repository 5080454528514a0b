"""What a cell's row depends on: the request that its processes get, and the key by which a finished cell is known.

The key is the hash of all that determines the row: code of method, baselines, task and measuring; parameters; data;
model; device; machine; library versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.common import sources
from harness.common.files import default_cache, digest
from harness.machine import machine_id
from harness.measure import environment
from harness.plan.cell import Cell, Named
from harness.plan.registry import Kind, Registry
from harness.rows import SCHEMA

# what is computed from rows when they are read
FOLLOWING = frozenset({"harness.groups", "harness.rows", "harness.decision", "harness.machine"})


@dataclass(frozen=True)
class Identity:
    """Identities of cells on this device."""

    registry: Registry
    device: str

    def request(self, cell: Cell) -> dict[str, Any]:
        """What a process of the cell is told, as JSON."""
        told = asdict(cell)
        same = ("kind", "scale", "seed", "task", "method", "speed_baseline", "fidelity_baseline")
        return {
            **{name: told[name] for name in same},
            "device": self.device,
            "cache": str(default_cache()),
            "timing": cell.timing.model_dump(),
            "fit": 0,
            # behind the answers that cells share
            "baseline_code": self._digest(cell, [cell.fidelity_baseline or cell.method]),
            "libraries": environment.libraries(),
        }

    def _digest(self, cell: Cell, methods: Sequence[Named | None], *measuring: str) -> str:
        """Of the code that measuring, these methods and the cell's task run."""
        kind: Kind = "analysis" if cell.kind == "analysis" else "method"
        targets = [self.registry.entry(kind, method.name).target for method in methods if method is not None]
        targets.append(self.registry.entry("task", cell.task.name).target)
        return sources.digest("harness.measure.worker", *measuring, *targets, leaving=FOLLOWING)

    def key(self, cell: Cell, hashes: dict[str, str], env: dict[str, Any]) -> str:
        """hashes: of the task's data and model. env: a captured environment. What follows from a row is not stored, so
        another rule of decision measures nothing again."""
        methods = (cell.method, cell.speed_baseline, cell.fidelity_baseline)
        return digest(
            {
                "cell": cell.resolved,
                "device": self.device,
                "code": self._digest(cell, methods, "harness.measure.records", "harness.measure.executors"),
                "libraries": env["libraries"],
                "hashes": hashes,
                "machine": machine_id(env),
                "python": env["python"],
                "threads": env["threads"],
                "schema": SCHEMA,
            }
        )


def named(method: Named | None) -> dict[str, Any] | None:
    """A method as rows name it."""
    return None if method is None else {"method": method.name, "params": method.params}
