"""Where a task runs."""

from __future__ import annotations

import os
from pathlib import Path

from harness.contracts.tasks import Context, Scale
from harness.files import default_cache


def context(scale: Scale, device: str, seed: int, cache: Path | None = None) -> Context:
    """Where a task runs, with the data folders of $HARNESS_DATA (several separated by the path separator)."""
    roots = tuple(Path(p).expanduser() for p in os.environ.get("HARNESS_DATA", "").split(os.pathsep) if p)
    return Context(scale=scale, device=device, seed=seed, data=roots, cache=cache or default_cache())
