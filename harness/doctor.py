"""`harness doctor`: what this machine offers, what is missing, and what that means for a run."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from harness.common.files import data_roots, default_cache
from harness.common.sources import ROOT
from harness.measure import environment
from harness.show.formats import number

State = Literal["ok", "warn", "problem"]
OPTIONAL = {  # import name -> what its absence means; the distribution may require it all the same
    "faiss": "no approximate indexes (IVF, PQ, HNSW): exact search still works; pip install faiss-cpu",
    "mlflow": "no tracking: use --tracking none, or pip install mlflow",
}
_DISTRIBUTIONS = {"faiss": ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12"), "mlflow": ("mlflow",)}
LEAST_FREE = 10 * 2**30  # bytes free below which datastores of scale small may not fit


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `text` says what was found and, unless it is fine, what to do."""

    name: str
    state: State
    text: str


def report(deep: bool = False, results: Path = Path("results")) -> list[Check]:
    """All checks. `deep` imports torch to see whether it sees a GPU (about two seconds)."""
    env = environment.capture()
    checks = [
        _python(), *_packages(), _cores(env), _memory(env), _threads(os.environ, env["cores"]["usable"]),
        _gpu(deep), *_data(data_roots()), _cache(default_cache()), _tracking(results / "runs"),
        _code(),
    ]  # fmt: skip
    return [*checks, *_optional(lambda name: find_spec(name) is not None)]


def show(checks: list[Check], as_json: bool = False) -> None:
    """Print the checks as a table, or as JSON."""
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    colours = {"ok": "green", "warn": "yellow", "problem": "red"}
    for check in checks:
        table.add_row(Text(check.state, colours[check.state]), check.name, Text(check.text))
    Console().print(table)


def _python() -> Check:
    return Check("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.prefix}")


def _packages() -> list[Check]:
    """Required packages that are absent, and installed ones that differ from `constraints.txt`."""
    try:
        declared = requires(environment.DISTRIBUTION) or []
    except PackageNotFoundError:
        return [Check("packages", "problem", f"{environment.DISTRIBUTION} is not installed: run ./reproduce.sh")]
    required = [re.split(r"[^\w.\-]", line, maxsplit=1)[0] for line in declared if "extra ==" not in line]
    optional = {name for names in _DISTRIBUTIONS.values() for name in names}
    absent = [name for name in required if name not in optional and _version(name) is None]
    if absent:
        return [Check("packages", "problem", f"not installed: {', '.join(absent)}; run ./reproduce.sh")]
    pinned = _constraints(ROOT / "constraints.txt")
    differing = [
        f"{name} {found} (checked with {wanted})"
        for name, wanted in pinned.items()
        if (found := _version(name)) is not None and found.partition("+")[0] != wanted.partition("+")[0]
    ]
    if differing:
        shown = ", ".join(differing[:6]) + (f" and {len(differing) - 6} more" if len(differing) > 6 else "")
        return [Check("packages", "warn", f"other versions than constraints.txt: {shown}")]
    against = f", as in constraints.txt ({len(pinned)} pins)" if pinned else "; no constraints.txt to compare with"
    return [Check("packages", "ok", f"{len(required)} required packages installed{against}")]


def _constraints(file: Path) -> dict[str, str]:
    """Package -> version of the lines `name==version`."""
    if not file.is_file():
        return {}
    found = (re.match(r"\s*([\w.\-]+)\s*==\s*([^\s;#]+)", line) for line in file.read_text().splitlines())
    return {match[1]: match[2] for match in found if match}


def _cores(env: Mapping[str, Any]) -> Check:
    load, cores = env["load"][0], env["cores"]
    text = f"{env['cpu']['model']}, {cores['usable']} of {cores['total']} cores usable, load {load:.1f}"
    if load > 0.7 * (cores["total"] or 1):
        return Check("cpu", "warn", f"{text}: something else is running, timings will be noisy")
    return Check("cpu", "ok", text)


def _memory(env: Mapping[str, Any]) -> Check:
    total, free = env["memory"]["total"], env["memory"]["available"]
    if total is None or free is None:
        return Check("memory", "warn", "unknown: /proc/meminfo cannot be read")
    text = f"{_bytes(free)} of {_bytes(total)} available"
    return Check("memory", "ok" if free > 4 * 2**30 else "warn", text + ("" if free > 4 * 2**30 else ": little"))


def _threads(variables: Mapping[str, str], cores: int) -> Check:
    """Thread settings that would make a timing mean something else than it says."""
    given = {name: variables[name] for name in environment.THREAD_VARIABLES if name in variables}
    text = ", ".join(f"{name}={value}" for name, value in given.items())
    if "OMP_NUM_THREADS" in given and "NUMBA_NUM_THREADS" not in given:
        return Check(
            "threads", "warn",
            f"{text}: the first parallel numba loop would set torch and faiss back to {cores} threads; "
            f"set NUMBA_NUM_THREADS={given['OMP_NUM_THREADS']} as well",
        )  # fmt: skip
    counts = {given[n] for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS") if n in given}
    if len(counts) > 1:
        return Check("threads", "warn", f"{text}: libraries would use different numbers of threads")
    if any(count.isdigit() and int(count) > cores for count in counts):
        return Check("threads", "warn", f"{text}: more threads than the {cores} usable cores")
    return Check("threads", "ok", text or f"nothing set: libraries use all {cores} cores")


def _gpu(deep: bool) -> Check:
    captured = environment.capture("cuda")
    gpus = captured["gpus"]
    names = ", ".join(f"{g['name']} (driver {g['driver']})" for g in gpus or [])
    busy = captured["gpu_processes"]
    if deep and find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            text = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}"
            if busy:
                return Check("gpu", "warn", f"{text}: other processes use it, timings support no claim")
            return Check("gpu", "ok", text)
        if gpus:
            return Check("gpu", "warn", f"{names}, but torch {torch.__version__} cannot use it: a CUDA build is needed")
    return Check("gpu", "ok", names or "none: scales mini and small run on the CPU")


def _data(roots: Sequence[Path]) -> list[Check]:
    """The folders of $HARNESS_DATA and the data sets in them."""
    if not roots:
        text = "HARNESS_DATA is not set: scale mini needs none, small and paper look on the Hugging Face hub"
        return [Check("data", "ok", text)]
    checks = []
    for root in roots:
        if not root.is_dir():
            checks.append(Check("data", "problem", f"{root} (in HARNESS_DATA) is not a folder"))
            continue
        names = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        shown = ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
        checks.append(Check("data", "ok" if names else "warn", f"{root}: {shown or 'no data sets in it'}"))
    return checks


def _cache(folder: Path) -> Check:
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{folder}: {_bytes(_size(folder))} used, {_bytes(free)} free on its disk"
    if not os.access(place, os.W_OK):
        return Check("cache", "problem", f"{text}; not writable: set HARNESS_CACHE")
    return (
        Check("cache", "ok", text)
        if free > LEAST_FREE
        else Check("cache", "warn", f"{text}; little: set HARNESS_CACHE")
    )


def _tracking(runs: Path) -> Check:
    from harness.tracking.mlflow import shown_uri

    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        text = f"MLFLOW_TRACKING_URI={shown_uri(uri)}"
    elif (runs / "mlflow.db").exists():
        text = f"{runs / 'mlflow.db'}, {_bytes((runs / 'mlflow.db').stat().st_size)}"
    else:
        text = f"{runs / 'mlflow.db'} (made by the first run)"
    unsent = sorted(runs.glob("*/*/unsent.*"))
    if unsent:
        return Check("tracking", "warn", f"{text}; rows not sent yet in {unsent[0]}: run `harness sync`")
    return Check("tracking", "ok", text)


def _code() -> Check:
    code = environment.code_version(ROOT)
    if code["revision"] is None:
        return Check("code", "ok", f"version {code['version']}, not a git checkout: runs cannot be kept")
    text = f"version {code['version']} at {code['revision'][:10]}"
    return Check("code", "ok", f"{text}, with uncommitted changes: runs cannot be kept" if code["dirty"] else text)


def _optional(installed: Callable[[str], bool]) -> list[Check]:
    return [
        Check(name, "ok", f"{name} {_version_of_any(name) or 'installed'}")
        if installed(name)
        else Check(name, "warn", f"not installed: {meaning}")
        for name, meaning in OPTIONAL.items()
    ]


def _version_of_any(name: str) -> str | None:
    return next((found for one in _DISTRIBUTIONS[name] if (found := _version(one))), None)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _size(folder: Path) -> int:
    """Bytes in all files of a folder."""
    return sum(
        (Path(place) / name).lstat().st_size for place, _, names in os.walk(folder) for name in names
    )  # fmt: skip


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{number(size, 3)} {unit}"
        size /= 1024
    return f"{number(size, 3)} GiB"
