"""One row as MLflow's records. Imports MLflow; only `harness.tracking` imports this."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from statistics import mean, median
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

from harness.store import Row

LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000


def parameters(row: Row) -> list[Param]:
    """What was asked for: labels, method, task and all of their parameters."""
    values: dict[str, Any] = {key: row[key] for key in ("row", "column", "scale", "method", "task", "seed", "device")}
    for side in ("method", "task"):
        values |= {f"{side}.{name}": value for name, value in row["params"].get(side, {}).items()}
    for role in ("speed_baseline", "fidelity_baseline"):
        if baseline := row[role]:
            values[role] = f"{baseline['method']} {json.dumps(baseline['params'], sort_keys=True)}"
    return [Param(_name(k), str(v)[:LONGEST_PARAMETER]) for k, v in values.items() if v not in (None, "")]


def tags(row: Row) -> dict[str, str]:
    """What to search and filter runs by."""
    timing, code = row["timing"] or {}, row["code"]
    values = {
        "status": row["status"], "cell": row["cell"], "recipe": row["recipe"], "scale": row["scale"],
        "decision": timing.get("decision"), "reason": timing.get("reason"), "revision": code.get("revision"),
        "dirty": code.get("dirty"), "error": (row["error"] or {}).get("message"),
        **{f"hash.{name}": value for name, value in row["hashes"].items()},
    }  # fmt: skip
    return {_name(name): str(value)[:LONGEST_TAG] for name, value in values.items() if value is not None}


def metrics(row: Row, time_ms: int) -> list[Metric]:
    """Every finite number of the row: metrics, intervals (`_low`, `_high`), counters, phases, samples as steps."""
    numbers: dict[str, Any] = {**row["counters"], **row["metrics"]}
    for name, (low, high) in row["intervals"].items():
        numbers |= {f"{name}_low": low, f"{name}_high": high}
    timing = row["timing"] or {}
    for name in ("noise_floor", "spread_baseline", "spread_method", "outliers"):
        numbers[name] = timing.get(name)
    numbers |= phases(timing)
    numbers["cell_s"] = row["seconds"]
    series = {name: [(0, value)] for name, value in numbers.items()} | samples(timing)
    series |= {f"series.{name}": list(enumerate(values)) for name, values in (row["series"] or {}).items()}
    return [
        Metric(_name(name), float(value), time_ms, step)
        for name, steps in series.items()
        for step, value in steps
        if isinstance(value, int | float) and math.isfinite(value)
    ]


def phases(timing: Mapping[str, Any]) -> dict[str, float]:
    """`phase.<role>.<phase>_s`: seconds of one call, the mean over processes."""
    seconds: dict[str, list[float]] = {}
    for process in timing.get("processes") or ():
        for role, record in (process.get("phases") or {}).items():
            for kind, suffix in (("seconds", ""), ("overlapped", ".overlapped")):
                for name, value in (record.get(kind) or {}).items():
                    seconds.setdefault(f"phase.{role}.{name}{suffix}_s", []).append(value)
    return {name: mean(values) for name, values in seconds.items()}


def samples(timing: Mapping[str, Any]) -> dict[str, list[tuple[int, float]]]:
    """Series over pairs (`pair_speedup`, `pair_wall_clock_s`) and over processes (`process_speedup`)."""
    processes = timing.get("processes") or []
    pairs = [pair for process in processes for pair in process["pairs"]]
    compared = timing.get("decision") is not None  # otherwise the baseline was timed against itself
    series: dict[str, list[float]] = {"pair_wall_clock_s": [pair["method_ns"] / 1e9 for pair in pairs]}
    if compared:
        series["pair_speedup"] = [pair["baseline_ns"] / pair["method_ns"] for pair in pairs]
        series["process_speedup"] = [
            median(pair["baseline_ns"] / pair["method_ns"] for pair in process["pairs"]) for process in processes
        ]
    return {name: list(enumerate(values)) for name, values in series.items() if values}


def dataset(row: Row) -> DatasetInput | None:
    """The task's data by content hash, with the facts that the task reports of it."""
    digest = row["hashes"].get("data")
    if not digest:
        return None
    name = str(row["facts"].get("corpus") or row["facts"].get("data") or row["task"])
    source = json.dumps({"task": row["task"], "params": row["params"].get("task", {})}, sort_keys=True)
    profile = json.dumps(row["facts"], sort_keys=True)
    data = Dataset(name=name, digest=digest[:36], source_type="task", source=source, profile=profile)
    return DatasetInput(data, [InputTag("mlflow.data.context", "evaluation")])


def _name(text: str) -> str:
    """A name that MLflow accepts."""
    return re.sub(r"[^\w\-. :/]", "_", text)[:250]
