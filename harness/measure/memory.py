"""Peak memory: of this process, and of one call in it."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # written to clear_refs, it resets Linux's high-water mark, see proc(5)


def peak_resident() -> float:
    """Peak resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def peak_of(call: Callable[[], object], device: str) -> float | None:
    """Peak memory in MiB while `call` runs: resident memory on the CPU, allocated memory on a GPU.

    Weights and whatever else the process holds count too, so compare it with another call's in the same process.
    None where the system cannot tell (the CPU outside Linux).
    """
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats()
        call()
        return float(torch.cuda.max_memory_allocated() / 2**20)
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what an earlier call freed must not count as this one's
        _CLEAR.write_text(_RESET_PEAK)
    except (OSError, AttributeError):
        return None
    call()
    marks = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM")]
    return float(marks[0].split()[1]) / 2**10 if marks else None
