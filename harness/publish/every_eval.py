"""Rows as records of Every Eval Ever, a schema in which evaluations are shared (version 0.3.0).

The schema has no place for latency: a speedup is a metric like any other here, its baseline in the details.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from harness.contracts.metrics import Metric
from harness.machine import describe
from harness.measure.environment import DISTRIBUTION
from harness.rows import Row

SCHEMA = "0.3.0"
ORGANISATION = "shortcut-harness"
SHARES = ("precision_at_", "accuracy_at_", "exact_match", "agreement")  # metrics from 0 to 1, or to 100 %
UNBOUNDED = sys.float_info.max  # the schema has no word for "no bound"


def records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A record for each finished row with a quality or a speed."""
    measured = [_record(row) for row in rows if row.status == "ok"]
    return [record for record in measured if record["evaluation_results"]]


def _record(row: Row) -> dict[str, Any]:
    started = str(int(datetime.fromisoformat(row.started).timestamp())) if row.started else "0"
    model = str(row.facts.get("model") or row.params["task"].get("model") or row.task)
    about_model = _texts(**row.params["method"], model_hash=row.hashes.get("model"))
    environment = row.environment.get("before")
    common: dict[str, Any] = {
        "source_data": {
            "dataset_name": str(row.facts.get("data") or row.facts.get("corpus") or row.task), "source_type": "other",
            "additional_details": _texts(**row.hashes),
        },
        "evaluation_timestamp": started,
    }  # fmt: skip
    if environment:
        common["generation_config"] = {"additional_details": _texts(machine=describe(environment))}
    return {
        "schema_version": SCHEMA, "evaluation_id": f"{row.recipe}/{row.cell}/{row.scale}/{started}",
        "retrieved_timestamp": started,
        "source_metadata": {
            "source_type": "evaluation_run", "source_organization_name": ORGANISATION,
            "evaluator_relationship": "first_party",
        },
        "evaluation_timestamp": started,
        "eval_library": {
            "name": DISTRIBUTION, "version": str(row.code.get("version") or "unknown"),
            "additional_details": _texts(revision=row.code.get("revision"), recipe=row.recipe),
        },
        "model_info": {
            "name": model, "id": _identity(model), "inference_engine": {"name": row.method},
            "additional_details": about_model | {"deployment_type": "self_deployed", "model_availability": "unknown"},
        },
        "evaluation_results": [_result(row, metric) | common for metric in _shared(row)],
    }  # fmt: skip


def _shared(row: Row) -> list[Metric]:
    """Qualities and speeds with a direction. A timed analysis has no speedup: it names ratios of its own."""
    every = [row.metric(name) for name in row.numbers if row.speed_baseline or name != "speedup"]
    return [metric for metric in every if metric.better != "neither" and metric.kind in ("quality", "speed")]


def _result(row: Row, metric: Metric) -> dict[str, Any]:
    value, interval = row.numbers[metric.name]
    details: dict[str, Any] = {"row": row.row, "column": row.column, "unit": metric.unit, "scale": row.scale}
    if metric.kind == "speed":
        details |= {"baseline": (row.speed_baseline or {}).get("method"), "decision": row.decision}
    score: dict[str, Any] = {"score": value, "details": _texts(**details)}
    if interval:
        ends = {"lower": interval[0], "upper": interval[1], "confidence_level": 0.95}
        score["uncertainty"] = {"confidence_interval": ends}
    bounds = (0.0, 100.0 if metric.unit == "%" else 1.0) if metric.name.startswith(SHARES) else (-UNBOUNDED, UNBOUNDED)
    return {
        "evaluation_name": f"{row.task}: {metric.label}", "score_details": score,
        "metric_config": {
            "lower_is_better": metric.better == "lower", "score_type": "continuous",
            "min_score": bounds[0], "max_score": bounds[1],
        },
    }  # fmt: skip


def _identity(model: str) -> str:
    """`developer/model`, by which the schema's data store files a record: letters, digits, dots, dashes. A checkpoint
    of the hub has such a name already."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        return model
    return f"{ORGANISATION}/{re.sub(r'[^A-Za-z0-9.]+', '-', model.replace('+', 'plus')).strip('-.') or 'model'}"


def _texts(**values: Any) -> dict[str, str]:
    """The schema's details are texts."""
    return {name: str(value) for name, value in values.items() if value not in (None, "")}
