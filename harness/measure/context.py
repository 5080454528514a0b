"""Where a task runs."""

from __future__ import annotations

from pathlib import Path

from harness.contracts.tasks import Context, Scale
from harness.files import data_roots, default_cache


def context(scale: Scale, device: str, seed: int, cache: Path | None = None) -> Context:
    """Where a task runs, with the data folders of $HARNESS_DATA and, unless one is given, the user's cache folder."""
    return Context(scale=scale, device=device, seed=seed, data=data_roots(), cache=cache or default_cache())
