"""One row as MLflow's records. Imports MLflow; only `harness.tracking.mlflow` imports this."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from statistics import mean
from typing import Any, get_args

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

from harness.machine import describe
from harness.rows import Row
from harness.show.claims import Outcome, Verdicts

LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000


def parameters(row: Row) -> list[Param]:
    """What was asked for: labels, method, task and all of their parameters."""
    values: dict[str, Any] = {
        key: getattr(row, key) for key in ("row", "column", "scale", "method", "task", "seed", "device")
    }
    for side in ("method", "task"):
        values |= {f"{side}.{name}": value for name, value in row.params.get(side, {}).items()}
    for role in ("speed_baseline", "fidelity_baseline"):
        if baseline := getattr(row, role):
            values[role] = f"{baseline['method']} {json.dumps(baseline['params'], sort_keys=True)}"
    return [Param(allowed(k), str(v)[:LONGEST_PARAMETER]) for k, v in values.items() if v not in (None, "")]


def tags(row: Row) -> dict[str, str]:
    """What to search and filter runs by."""
    environment = row.environment.get("before")
    values = {
        "status": row.status, "cell": row.cell, "recipe": row.recipe, "scale": row.scale,
        "decision": row.decision, "reason": row.reason if row.processes else None,
        "revision": row.code.get("revision"), "dirty": row.code.get("dirty"), "error": (row.error or {}).get("message"),
        "processes x pairs": " x ".join(map(str, row.shape)) if row.processes else None,
        "disturbed": row.disturbed or None,
        "machine": describe(environment) if environment else None,
        "environment": json.dumps(environment, sort_keys=True) if environment else None,
        **{f"hash.{name}": value for name, value in row.hashes.items()},
    }  # fmt: skip
    return {allowed(name): str(value)[:LONGEST_TAG] for name, value in values.items() if value is not None}


def metrics(row: Row, time_ms: int) -> list[Metric]:
    """Every finite number of the row with its interval (`_low`, `_high`), counters that depend on timing (`timing.`),
    phases, samples and series as steps."""
    numbers: dict[str, Any] = {"cell_s": row.seconds}
    for name, (value, interval) in row.numbers.items():
        numbers |= {name: value} | dict(zip((f"{name}_low", f"{name}_high"), interval or (), strict=False))
    numbers |= {f"timing.{name}": value for name, value in row.timing_counters.items() if row.processes}
    numbers |= phases(row)
    series = {name: [(0, value)] for name, value in numbers.items()} | samples(row)
    series |= {f"series.{name}": list(enumerate(values)) for name, values in row.series.items()}
    return [
        Metric(allowed(name), float(value), time_ms, step)
        for name, steps in series.items()
        for step, value in steps
        if isinstance(value, int | float) and math.isfinite(value)
    ]


def phases(row: Row) -> dict[str, float]:
    """`phase.<role>.<phase>_s`: seconds of one pass, the mean over processes."""
    seconds: dict[str, list[float]] = {}
    for process in row.processes:
        for role, record in (process.get("phases") or {}).items():
            for kind, suffix in (("seconds", ""), ("overlapped", ".overlapped")):
                for name, value in (record.get(kind) or {}).items():
                    seconds.setdefault(f"phase.{role}.{name}{suffix}_s", []).append(value)
    return {name: mean(values) for name, values in seconds.items()}


def samples(row: Row) -> dict[str, list[tuple[int, float]]]:
    """Series over processes (`process_speedup`, the ratios whose median is the speedup, and `process_wall_clock_s`)
    and over pairs (`pair_speedup`, `pair_wall_clock_s`). Seconds are those of one pass."""
    if row.summary is None:
        return {}
    pairs = [pair for process in row.processes for pair in process["pairs"]]
    passes = [mean(sum(pair["method_ns"]) for pair in process["pairs"]) / 1e9 for process in row.processes]
    series = {
        "process_speedup": row.summary.ratios,
        "process_wall_clock_s": passes,
        "pair_wall_clock_s": [sum(pair["method_ns"]) / 1e9 for pair in pairs],
    }
    if row.summary.ratios:
        series["pair_speedup"] = [sum(pair["baseline_ns"]) / sum(pair["method_ns"]) for pair in pairs]
    return {name: list(enumerate(values)) for name, values in series.items() if values}


def counts(verdicts: Verdicts, time_ms: int) -> list[Metric]:
    """How many verdicts on what stands at this scale have each outcome: `claims.holds`, ..., `targets.holds`, ..."""
    found: list[Metric] = []
    for kind, judgements in (("claims", verdicts.claims), ("targets", verdicts.targets)):
        of = Counter(verdict.outcome for verdict in judgements if verdict.is_here)
        names = get_args(Outcome) if judgements else ()
        found += [Metric(f"{kind}.{name.replace(' ', '_')}", of[name], time_ms, 0) for name in names]
    return found


def dataset(row: Row) -> DatasetInput | None:
    """The task's data by content hash, with the facts that the task reports of it."""
    digest = row.hashes.get("data")
    if not digest:
        return None
    name = str(row.facts.get("corpus") or row.facts.get("data") or row.task)
    source = json.dumps({"task": row.task, "params": row.params.get("task", {})}, sort_keys=True)
    profile = json.dumps(row.facts, sort_keys=True)
    data = Dataset(name=name, digest=digest[:36], source_type="task", source=source, profile=profile)
    return DatasetInput(data, [InputTag("mlflow.data.context", "evaluation")])


def allowed(text: str) -> str:
    """A name of a parameter, tag or metric that MLflow accepts."""
    return re.sub(r"[^\w\-. :/]", "_", text)[:250]
