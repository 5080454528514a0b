"""One row as MLflow's records. Imports MLflow; only `harness.show.mlflow_tracker` imports this."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from statistics import mean
from typing import Any, get_args

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

from harness.contracts.rows import Row
from harness.measure.decision import decide, of_row
from harness.measure.environment import describe
from harness.measure.evidence import shape
from harness.show.report.claims import Outcome, Verdicts

LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000


def parameters(row: Row) -> list[Param]:
    """What was asked for: labels, method, task and all of their parameters."""
    values: dict[str, Any] = {key: row[key] for key in ("row", "column", "scale", "method", "task", "seed", "device")}
    for side in ("method", "task"):
        values |= {f"{side}.{name}": value for name, value in row["params"].get(side, {}).items()}
    for role in ("speed_baseline", "fidelity_baseline"):
        if baseline := row[role]:
            values[role] = f"{baseline['method']} {json.dumps(baseline['params'], sort_keys=True)}"
    return [Param(allowed(k), str(v)[:LONGEST_PARAMETER]) for k, v in values.items() if v not in (None, "")]


def tags(row: Row) -> dict[str, str]:
    """What to search and filter runs by."""
    timing, code, environment = row["timing"] or {}, row["code"], row["environment"].get("before")
    values = {
        "status": row["status"], "cell": row["cell"], "recipe": row["recipe"], "scale": row["scale"],
        "decision": timing.get("decision"), "reason": timing.get("reason"), "revision": code.get("revision"),
        "dirty": code.get("dirty"), "error": (row["error"] or {}).get("message"),
        "processes x pairs": " x ".join(map(str, shape(row))) if timing else None,
        "disturbed": timing.get("disturbed") or None,
        "machine": describe(environment) if environment else None,
        "environment": json.dumps(environment, sort_keys=True) if environment else None,
        **{f"hash.{name}": value for name, value in row["hashes"].items()},
    }  # fmt: skip
    return {allowed(name): str(value)[:LONGEST_TAG] for name, value in values.items() if value is not None}


def metrics(row: Row, time_ms: int) -> list[Metric]:
    """Every finite number of the row: metrics, intervals (`_low`, `_high`), counters, what follows from the samples and
    counters that depend on timing (`timing.`), phases, samples as steps."""
    numbers: dict[str, Any] = {**row["counters"], **row["metrics"]}
    for name, (low, high) in row["intervals"].items():
        numbers |= {f"{name}_low": low, f"{name}_high": high}
    timing = row["timing"] or {}
    numbers |= {f"timing.{name}": value for name, value in {**timing, **timing.get("counters", {})}.items()}
    numbers |= phases(timing)
    numbers["cell_s"] = row["seconds"]
    series = {name: [(0, value)] for name, value in numbers.items()} | samples(timing)
    series |= {f"series.{name}": list(enumerate(values)) for name, values in (row["series"] or {}).items()}
    return [
        Metric(allowed(name), float(value), time_ms, step)
        for name, steps in series.items()
        for step, value in steps
        if isinstance(value, int | float) and math.isfinite(value)
    ]


def phases(timing: Mapping[str, Any]) -> dict[str, float]:
    """`phase.<role>.<phase>_s`: seconds of one pass, the mean over processes."""
    seconds: dict[str, list[float]] = {}
    for process in timing.get("processes") or ():
        for role, record in (process.get("phases") or {}).items():
            for kind, suffix in (("seconds", ""), ("overlapped", ".overlapped")):
                for name, value in (record.get(kind) or {}).items():
                    seconds.setdefault(f"phase.{role}.{name}{suffix}_s", []).append(value)
    return {name: mean(values) for name, values in seconds.items()}


def samples(timing: Mapping[str, Any]) -> dict[str, list[tuple[int, float]]]:
    """Series over processes (`process_speedup`, the ratios whose median is the speedup, and `process_wall_clock_s`)
    and over pairs (`pair_speedup`, `pair_wall_clock_s`). Seconds are those of one pass."""
    processes = of_row(timing.get("processes") or [])
    if not processes:
        return {}
    summary = decide(processes)
    pairs = [pair for process in processes for pair in process.pairs]
    series = {
        "process_speedup": summary.ratios,
        "process_wall_clock_s": [mean(sum(pair["method_ns"]) for pair in p.pairs) / 1e9 for p in processes],
        "pair_wall_clock_s": [sum(pair["method_ns"]) / 1e9 for pair in pairs],
    }
    if summary.ratios:
        series["pair_speedup"] = [sum(pair["baseline_ns"]) / sum(pair["method_ns"]) for pair in pairs]
    return {name: list(enumerate(values)) for name, values in series.items() if values}


def judged(verdicts: Verdicts) -> dict[str, list[str]]:
    """Verdicts as the columns of a table: the paper's claims, then the bench's own targets."""
    every = [("claim", verdict) for verdict in verdicts.claims] + [("target", verdict) for verdict in verdicts.targets]
    return {
        "kind": [kind for kind, _ in every],
        "outcome": [verdict.outcome for _, verdict in every],
        "text": [verdict.claim.text for _, verdict in every],
        "source": [verdict.claim.source for _, verdict in every],
        "detail": [verdict.detail for _, verdict in every],
        "settled by": [verdict.command or "" for _, verdict in every],
    }


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
    digest = row["hashes"].get("data")
    if not digest:
        return None
    name = str(row["facts"].get("corpus") or row["facts"].get("data") or row["task"])
    source = json.dumps({"task": row["task"], "params": row["params"].get("task", {})}, sort_keys=True)
    profile = json.dumps(row["facts"], sort_keys=True)
    data = Dataset(name=name, digest=digest[:36], source_type="task", source=source, profile=profile)
    return DatasetInput(data, [InputTag("mlflow.data.context", "evaluation")])


def allowed(text: str) -> str:
    """A name of a parameter, tag or metric that MLflow accepts."""
    return re.sub(r"[^\w\-. :/]", "_", text)[:250]
