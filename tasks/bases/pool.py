"""How many items a task offers for timing: enough that no process of a cell times what another one did."""

from __future__ import annotations

PASSES = 45  # 10 processes x (a pass that warms up, and 3 pairs), and a few to spare
LEAST = 200  # items of a pool that are texts of their own


def enough(sample: int, least: int = LEAST) -> int:
    """Items that serve `PASSES` passes of `sample` items, at least `least`."""
    return max(least, PASSES * sample)
