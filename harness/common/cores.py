"""Number of cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

from harness.common.files import contents

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores of this process's affinity, at most the container's quota (rounded up)."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = contents(_QUOTA).partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        return max(1, min(affinity, math.ceil(int(quota) / int(period))))
    return affinity
