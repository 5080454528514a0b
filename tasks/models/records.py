"""The record of a model's training in its folder (`training.json`): held-out perplexity by epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def training_record(folder: Path) -> dict[str, Any]:
    """The record; empty for a model that was not trained here."""
    file = folder / "training.json"
    record: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return record


def validation_curve(facts: Mapping[str, Any]) -> list[float]:
    """Perplexity after each epoch, from a setting's facts; empty if the training is not known."""
    return [float(value) for _, value in facts.get("training", {}).get("validation_perplexity", ())]


def as_facts(facts: Mapping[str, Any]) -> dict[str, str]:
    """The curve as a line of text for a row's facts; empty if it is not known."""
    curve = validation_curve(facts)
    return {"validation_perplexity_by_epoch": " ".join(f"{value:.1f}" for value in curve)} if curve else {}
