"""What this process and the machine used while a sample was taken: CPU time of others, CPU time that the host withheld,
peak memory of this process and of one call in it.

Processes that a method starts (an engine in a process of its own) are no others.

`/proc/stat` counts in ticks of 10 ms, so figures of single samples are added up before they are judged. Outside Linux
nothing is known or reported.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import psutil

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # written to clear_refs, it resets Linux's high-water mark, see proc(5)
STAT = Path("/proc/stat")
TELLING = 0.5  # seconds from which the ticks of a single process say something
DISTURBED = 0.10  # cores' worth of CPU time taken by others, or withheld, from which a row says so


class Watch:
    """Adds up between `start` and `stop`: seconds on the clock, CPU time of other processes, CPU time withheld."""

    def __init__(self) -> None:
        self.seconds = self.others = self.stolen = 0.0
        self._before: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    def start(self) -> None:
        self._before = _now()

    def stop(self) -> None:
        seconds, own, busy, stolen = (after - before for after, before in zip(_now(), self._before, strict=True))
        self.seconds += seconds
        self.others += busy - own
        self.stolen += stolen

    def as_dict(self) -> dict[str, float | None]:
        """{"seconds", "others", "stolen"}: the last two in cores; None where the system cannot tell."""
        cores = {"others": self.others, "stolen": self.stolen}
        known = STAT.exists() and self.seconds > 0
        return {"seconds": self.seconds, **{n: max(0.0, s / self.seconds) if known else None for n, s in cores.items()}}


def disturbance(processes: Iterable[Mapping[str, Any] | None]) -> str:
    """What disturbed the samples of a cell, in words; empty when nothing did or nothing is known."""
    known = [p for p in processes if p and p.get("others") is not None and p["seconds"]]
    total = sum(p["seconds"] for p in known)
    if not total:
        return ""
    parts = []
    for name, words in (("others", "other processes took"), ("stolen", "the host withheld")):
        cores = sum(p[name] * p["seconds"] for p in known) / total
        worst = max((p[name] for p in known if p["seconds"] >= TELLING), default=0.0)
        if max(cores, worst) > DISTURBED:
            worst = max(cores, worst)
            parts.append(f"{words} {cores:.2f} of a core while it was timed ({worst:.2f} in the worst process)")
    return " and ".join(parts)


def wait_until_quiet(report: Callable[[str], None], seconds: float = 2.0) -> None:
    """Return once other processes have taken less than `DISTURBED` of a core for so many seconds, on Linux; elsewhere
    after them. report: is told once what is waited for."""
    told = False
    while True:
        watch = Watch()
        watch.start()
        sleep(seconds)
        watch.stop()
        others = watch.as_dict()["others"] or 0.0
        if others < DISTURBED:
            return
        if not told:
            report(f"waiting for a quiet machine: other processes take {others:.1f} cores")
            told = True


def _now() -> tuple[float, float, float, float]:
    """Seconds: on the clock, of this process and those it started on all cores, of all processes, withheld."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages) + _of_children("self")
    machine = psutil.cpu_times()
    busy = sum(getattr(machine, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
    return perf_counter(), own, busy, getattr(machine, "steal", 0.0)


def _of_children(process: str) -> float:
    """Seconds of CPU time of the running processes that a process has started, and of those that they have."""
    tick, seconds = 1 / os.sysconf("SC_CLK_TCK"), 0.0
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            for child in thread.read_text(encoding="ascii").split():
                # after the name, which may hold spaces: state, and from the 12th field user, system, and those of
                # its own children that have ended
                fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                seconds += sum(map(int, fields[11:15])) * tick + _of_children(child)
        except OSError:  # ended meanwhile
            continue
    return seconds


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
