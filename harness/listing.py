"""What is registered, as lines: methods, tasks, analyses, recipes, and which method runs on which task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.contracts.tasks import SCALES
from harness.plan.registry import Kind, Registry, refusal
from harness.show.formats import aligned

KINDS: dict[str, Kind] = {"methods": "method", "tasks": "task", "analyses": "analysis"}


def listed(what: str, registry: Registry, results: Path) -> list[dict[str, Any]]:
    """One dictionary a line. what: `pairs`, `recipes`, or a name of `KINDS`. results: folder of stored rows."""
    if what in KINDS:
        return _named(registry, KINDS[what])
    return _pairs(registry) if what == "pairs" else _recipes(registry, results)


def lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Aligned columns under their names."""
    return aligned([list(found[0]), *([_cell(value) for value in line.values()] for line in found)])


def _named(registry: Registry, kind: Kind) -> list[dict[str, Any]]:
    entries = [registry.entry(kind, name) for name in registry.names(kind)]
    if kind == "analysis":
        return [{"name": e.name, "summary": e.summary} for e in entries]
    side = "needs" if kind == "method" else "provides"
    return [
        {"name": e.name, "contract": e.contract, side: list(getattr(e, side)), "summary": e.summary} for e in entries
    ]


def _pairs(registry: Registry) -> list[dict[str, Any]]:
    result = []
    for name in registry.names("method"):
        for task in registry.names("task"):
            reason = refusal(registry.entry("method", name), registry.entry("task", task))
            result.append({"method": name, "task": task, "runs": reason is None, "reason": reason or ""})
    return result


def _recipes(registry: Registry, results: Path) -> list[dict[str, Any]]:
    """Read the top of each file only: a listing needs no schema. committed, here: scales of which rows are stored."""
    import yaml

    from harness.plan.recipe import files

    def stored(kind: str, name: str) -> list[str]:
        return [scale for scale in SCALES if (results / kind / name / scale / "rows.jsonl").exists()]

    result = []
    for name, path in sorted(files(registry).items()):
        raw = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        result.append(
            {
                "name": name, "headline": bool(raw.get("headline")), "committed": stored("measured", name),
                "here": stored("runs", name), "title": raw.get("title", ""),
            }
        )  # fmt: skip
    return result


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else {True: "yes", False: "no"}.get(value, str(value))
