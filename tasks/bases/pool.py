"""Number of items that a task offers for timing: enough that processes of a cell do not time the same items."""

from __future__ import annotations

PASSES = 45  # 10 processes x (a pass that warms up, and 3 pairs), and a few to spare
LEAST = 200  # fewest items of a pool of separate texts


def enough(sample: int, least: int = LEAST) -> int:
    """Number of items for `PASSES` passes of `sample` items, at least `least`."""
    return max(least, PASSES * sample)
