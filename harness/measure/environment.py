"""What a row says about the machine and the code it ran on, and whether that changed while it was measured.

Nothing here imports a measured library, apart from `bandwidth`: versions come from package metadata, the GPU from
`nvidia-smi`. A capture holds no host name, user name or path, so rows can be published.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import psutil

from harness.common.cores import usable_cores
from harness.common.files import contents
from harness.common.memory import memory
from harness.common.sources import SOURCES

DISTRIBUTION = "shortcut-harness"
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "OMP_PROC_BIND", "OMP_WAIT_POLICY", "KMP_AFFINITY", "GOMP_CPU_AFFINITY",
    "NUMBA_THREADING_LAYER", "TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
    "THP_MEM_ALLOC_ENABLE", "GLIBC_TUNABLES",
)  # fmt: skip
LIBRARIES = (
    "torch", "transformers", "tokenizers", "datasets", "faiss-cpu", "faiss-gpu", "faiss-gpu-cu12", "numpy",
    "numba", "scipy", "scikit-learn", "bm25s", "ctranslate2", "economize", "arctic-inference", "infini-gram",
    "tokengrams", "xllamacpp", "gguf", "ray",
)  # fmt: skip
NUMBERS = {  # of a processor, by their names in /proc/cpuinfo on x86 and on ARM
    "vendor": ("vendor_id", "CPU implementer"), "family": ("cpu family", "CPU architecture"),
    "number": ("model", "CPU part"), "stepping": ("stepping", "CPU revision"),
}  # fmt: skip
INSTRUCTIONS = (  # those that decide how fast matrices are multiplied
    "avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8",
    "asimd", "sve", "bf16", "i8mm",
)  # fmt: skip
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
COPIED = 2**28  # bytes of the buffer whose copying is timed, well above the caches
COPIES = 5


def capture(device: str = "cpu", copies: bool = False) -> dict[str, Any]:
    """JSON-able facts of this moment. Milliseconds on a CPU; `nvidia-smi` is asked when `device` is a GPU's. copies:
    include `bandwidth`, which takes a third of a second once in a process.

    cpu {model, vendor, family, number, stepping, instructions, caches {l1d_kib, l2_kib, l3_kib}, copy_gb_s}, those that
    the system tells, cores {total, usable}, load [1, 5, 15 minutes], memory {total, available} in bytes, threads
    {variable: value}, python, os, kernel, libraries {name: version}, gpus [{name, driver, memory_mib}],
    gpu_processes [{pid, name, memory_mib}] that are not ours; the last two are None when they cannot be known.
    """
    on_gpu = device.startswith("cuda")
    return {
        "cpu": _processor() | ({"copy_gb_s": bandwidth()} if copies else {}),
        "cores": {"total": os.cpu_count(), "usable": usable_cores()},
        "load": list(os.getloadavg()),
        "memory": memory(),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.machine()}",
        "kernel": platform.release(),
        "libraries": libraries(),
        "gpus": _gpus() if on_gpu else [],
        "gpu_processes": _foreign_gpu_processes() if on_gpu else [],
    }


@cache
def bandwidth() -> float:
    """GB/s (1e9 bytes) at which all usable cores together copy 256 MiB. Bytes read and bytes written are counted, as in
    STREAM's copy (McCalpin, 1995). The median of five copies, measured once in a process; needs 512 MiB."""
    import numpy as np

    count = usable_cores()
    parts = np.array_split(np.ones(COPIED // 8), count), np.array_split(np.zeros(COPIED // 8), count)
    seconds = []
    with ThreadPoolExecutor(count) as pool:  # NumPy lets other threads run while it copies
        for _ in range(COPIES):
            started = perf_counter()
            list(pool.map(np.copyto, parts[1], parts[0]))
            seconds.append(perf_counter() - started)
    return 2 * COPIED / median(seconds) / 1e9


@cache
def libraries() -> Mapping[str, str]:
    """Name -> version of the installed distributions that can change a number."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Reasons, in words, why times taken between two captures of a process support no claim; empty when there are none.

    A foreign process on the GPU counts on either side, and so does a GPU that could not be asked. What others do on the
    CPU meanwhile is measured in each sample (`harness.measure.usage`).
    """
    reasons = [f"{name}: {before[name]} -> {after[name]}" for name in ("cores", "gpus") if before[name] != after[name]]
    foreign = [p for capture in (before, after) for p in capture["gpu_processes"] or []]
    if foreign:
        reasons.append(f"other processes on the GPU: {', '.join(sorted({p['name'] for p in foreign}))}")
    if before["gpu_processes"] is None or after["gpu_processes"] is None:
        reasons.append("other processes on the GPU cannot be seen (nvidia-smi gave no answer)")
    free, had, total = after["memory"]["available"], before["memory"]["available"], after["memory"]["total"]
    if free and had and total and free < 0.1 * total and free < had / 2:
        reasons.append(f"available memory fell from {had / 2**30:.1f} to {free / 2**30:.1f} GiB")
    return reasons


def code_version(root: Path) -> dict[str, Any]:
    """{"version", "revision", "dirty"} of the checkout at `root`; revision and dirty are None where `root` is not the
    top of a git work tree.

    Dirty means that a file which can change a number (sources, dependencies) differs from the revision or is new;
    results and notes do not count.
    """
    top = _output("git", "-C", str(root), "rev-parse", "--show-toplevel")
    # An installation inside another repository is not that repository's code.
    ours = top is not None and Path(top).resolve() == root.resolve()
    revision = _output("git", "-C", str(root), "rev-parse", "HEAD") if ours else None
    watched = [name for name in (*SOURCES, "pyproject.toml", "constraints.txt") if (root / name).exists()]
    status = _output("git", "-C", str(root), "status", "--porcelain", "--", *watched) if revision and watched else None
    try:
        distribution = version(DISTRIBUTION)
    except PackageNotFoundError:
        distribution = None
    dirty = None if status is None else bool(status)
    return {"version": distribution, "revision": revision or None, "dirty": dirty}


@cache
def _processor() -> dict[str, Any]:
    """`cpu` of a capture. A guest's model name may be just "AMD EPYC": numbers and instructions tell more."""
    lines = (line.partition(":") for line in reversed(contents("/proc/cpuinfo").splitlines()))
    told = {name.strip(): " ".join(value.split()) for name, _, value in lines}  # of the first core
    asked = _output("sysctl", "-n", "machdep.cpu.brand_string") if "processor" not in told else None
    model = told.get("model name") or told.get("Model") or asked or platform.processor() or platform.machine()
    found: dict[str, Any] = {"model": model}
    found |= {part: told[name] for part, names in NUMBERS.items() for name in names if name in told}
    flags = {*told.get("flags", "").split(), *told.get("Features", "").split()}
    if instructions := [name for name in INSTRUCTIONS if name in flags]:
        found["instructions"] = instructions
    if caches := _caches():
        found["caches"] = caches
    return found


def _caches() -> dict[str, int]:
    """KiB of the data caches of the first core, shared ones whole: l1d_kib, l2_kib, l3_kib."""
    found = {}
    for index in sorted(CACHES.glob("index*")):
        level, kind, size = (contents(index / name).strip() for name in ("level", "type", "size"))
        if kind != "Instruction" and size.removesuffix("K").isdigit():
            found[f"l{level}{'d' if kind == 'Data' else ''}_kib"] = int(size.removesuffix("K"))
    return found


def _gpus() -> list[dict[str, Any]] | None:
    answer = _nvidia("--query-gpu=name,driver_version,memory.total")
    if answer is None:
        return None
    return [{"name": name, "driver": driver, "memory_mib": _number(memory)} for name, driver, memory in answer]


def _foreign_gpu_processes() -> list[dict[str, Any]] | None:
    """Compute processes on the GPUs apart from this one, its ancestors and its descendants."""
    answer = _nvidia("--query-compute-apps=pid,process_name,used_memory")
    if answer is None:
        return None
    return [
        {"pid": int(pid), "name": name.rpartition("/")[2], "memory_mib": _number(memory)}
        for pid, name, memory in answer
        if pid.isdigit() and not _is_ours(int(pid))
    ]


def _nvidia(query: str) -> list[list[str]] | None:
    text = _output("nvidia-smi", query, "--format=csv,noheader,nounits")
    if text is None:
        return None
    lines = [[field.strip() for field in line.split(",")] for line in text.splitlines() if line.count(",") >= 2]
    return [[first, ",".join(middle), last] for first, *middle, last in lines]  # a process name may hold commas


def _is_ours(pid: int) -> bool:
    try:
        me, other = psutil.Process(), psutil.Process(pid)
        return pid != 1 and (me in (other, *other.parents()) or other in me.parents())
    except psutil.Error:  # it has ended, or is not seen from inside a container
        return False


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]"
        return None


def _output(*command: str) -> str | None:
    """Standard output of a short command, or None when it does not exist, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
