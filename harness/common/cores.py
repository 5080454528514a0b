"""Number of cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores of this process's affinity, at most the container's quota (rounded up)."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, _, period = _QUOTA.read_text().partition(" ")
    except OSError:
        return affinity
    if quota.isdigit() and period.strip().isdigit():
        return max(1, min(affinity, math.ceil(int(quota) / int(period))))
    return affinity
