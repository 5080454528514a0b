"""Rows as records of Every Eval Ever, a schema in which evaluations are shared (version 0.3.0).

The schema has no place for latency: a speedup is a metric like any other here, its baseline in the details.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from harness.contracts.metrics import Metric
from harness.measure.environment import DISTRIBUTION
from harness.rows import Row, describe

SCHEMA = "0.3.0"
ORGANISATION = "shortcut-harness"
SHARES = ("precision_at_", "accuracy_at_", "exact_match", "agreement")  # metrics from 0 to 1, or to 100 %


def records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A record for each finished row with a quality or a speed."""
    measured = [_measured(row) for row in rows if row.status == "ok"]
    return [record for record in measured if record["evaluation_results"]]


def _measured(row: Row) -> dict[str, Any]:
    started = _epoch(row.started)
    model = str(row.facts.get("model") or row.params["task"].get("model") or row.task)
    environment = row.environment.get("before") or {}
    found = [_result(row, name, started) for name in row.numbers if _is_shared(row, name)]
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
            "additional_details": _texts({"revision": row.code.get("revision"), "recipe": row.recipe}),
        },
        "model_info": {
            "name": model, "id": _identity(model), "inference_engine": {"name": row.method},
            "additional_details": {
                **_texts({**row.params["method"], "model_hash": row.hashes.get("model")}),
                "deployment_type": "self_deployed", "model_availability": "unknown",
            },
        },
        "evaluation_results": [
            {**one, "generation_config": {"additional_details": _texts({"machine": describe(environment)})}}
            if environment
            else one
            for one in found
        ],
    }  # fmt: skip


def _result(row: Row, name: str, started: str) -> dict[str, Any]:
    metric, value = row.metric(name), row.value(name)
    data = str(row.facts.get("data") or row.facts.get("corpus") or row.task)
    details: dict[str, Any] = {"row": row.row, "column": row.column, "unit": metric.unit, "scale": row.scale}
    if metric.kind == "speed":
        details |= {"baseline": (row.speed_baseline or {}).get("method"), "decision": row.decision}
    score: dict[str, Any] = {"score": value, "details": _texts(details)}
    if interval := row.interval_of(name):
        score["uncertainty"] = {
            "confidence_interval": {"lower": interval[0], "upper": interval[1], "confidence_level": 0.95}
        }
    return {
        "evaluation_name": f"{row.task}: {metric.label}",
        "source_data": _source(data, row.hashes),
        "evaluation_timestamp": started, "metric_config": _config(metric), "score_details": score,
    }  # fmt: skip


def _config(metric: Metric) -> dict[str, Any]:
    bounded, whole = metric.name.startswith(SHARES), 100.0 if metric.unit == "%" else 1.0
    return {
        "lower_is_better": metric.better == "lower", "score_type": "continuous",
        "min_score": 0.0 if bounded else -sys.float_info.max,  # the schema has no word for "no bound"
        "max_score": whole if bounded else sys.float_info.max,
    }  # fmt: skip


def _identity(model: str) -> str:
    """`developer/model`, by which the schema's data store files a record: letters, digits, dots, dashes. A checkpoint
    of the hub has such a name already."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        return model
    return f"{ORGANISATION}/{re.sub(r'[^A-Za-z0-9.]+', '-', model.replace('+', 'plus')).strip('-.') or 'model'}"


def _source(name: str, details: Mapping[str, Any]) -> dict[str, Any]:
    return {"dataset_name": name, "source_type": "other", "additional_details": _texts(details)}


def _is_shared(row: Row, name: str) -> bool:
    if name == "speedup" and row.speed_baseline is None:  # a timed analysis, which names ratios of its own
        return False
    metric = row.metric(name)
    return metric.better != "neither" and metric.kind in ("quality", "speed")


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """The schema's details are texts."""
    return {name: str(value) for name, value in values.items() if value not in (None, "")}


def _epoch(started: str | None) -> str:
    return str(int(datetime.fromisoformat(started).timestamp())) if started else "0"
