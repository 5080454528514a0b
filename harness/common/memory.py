"""Memory of this machine."""

from __future__ import annotations

import psutil

from harness.common.errors import RequestError
from harness.common.files import contents


def memory() -> dict[str, int]:
    """Bytes in all (or the container's limit) and available."""
    machine = psutil.virtual_memory()
    total, available = machine.total, machine.available
    limit, used = (contents(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if limit.isdigit():
        total = min(total, int(limit))
        left = max(total - int(used), 0) if used.isdigit() else total  # files that it caches count as used
        available = min(available, left)
    return {"total": total, "available": available}


def check_room(name: str, size: int) -> None:
    """Raise `RequestError` if loading a model takes more bytes than are available."""
    free = memory()["available"]
    if size > free:
        raise RequestError(
            f"loading {name} takes {size / 2**30:.1f} GiB and {free / 2**30:.1f} GiB of memory are available: take a "
            "smaller model or dtype"
        )
