"""`harness doctor`: what this machine offers, what is missing, and what that means for a run."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import distributions, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.filesize import decimal

from harness.common.checkpoints import CHECKPOINTS, INSTALL, whereabouts
from harness.common.files import data_roots, default_cache
from harness.common.sources import ROOT
from harness.machine import describe
from harness.measure import environment

State = Literal["ok", "warn", "problem"]
FAISS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12")  # each has the module
WITHOUT = {  # what the absence of a required package means where much works all the same
    "faiss-cpu": "no approximate indexes (IVF, PQ, HNSW): exact search still works; pip install faiss-cpu",
    "mlflow": "no tracking: use --tracking none, or pip install mlflow",
}
LEAST_FREE = 10 * 2**30  # bytes free below which datastores of scale small may not fit


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `text` says what was found and, unless it is fine, what to do."""

    name: str
    state: State
    text: str


def report(results: Path = Path("results")) -> list[Check]:
    """All checks. Imports torch to see whether it sees a GPU (about two seconds)."""
    env, installed = environment.capture(copies=True), {_name(one.name): one.version for one in distributions()}
    return [
        Check("python", "ok", f"{platform.python_version()} at {sys.prefix}"),
        *_packages(installed, _constraints(ROOT / "constraints.txt")), _cores(env), _memory(env),
        _threads(os.environ, env["cores"]["usable"]), _gpu(), *_data(data_roots()), _cache(default_cache()),
        _checkpoints(whereabouts()), _tracking(results / "runs"), _code(),
    ]  # fmt: skip


def show(checks: list[Check], as_json: bool = False) -> None:
    """Print the checks as a table, or as JSON."""
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
        return
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = Column(no_wrap=True), Column(no_wrap=True), Column(overflow="fold")
    table = Table(*columns, box=None, show_header=False, pad_edge=False)
    colours = {"ok": "green", "warn": "yellow", "problem": "red"}
    for check in checks:
        table.add_row(Text(check.state, colours[check.state]), check.name, Text(check.text))
    Console().print(table)


def _packages(installed: Mapping[str, str], pins: Mapping[str, str]) -> list[Check]:
    """Required packages that are absent, and installed ones whose version is not the pinned one."""
    if environment.DISTRIBUTION not in installed:
        return [Check("packages", "problem", f"{environment.DISTRIBUTION} is not installed: run ./reproduce.sh")]
    required = {_name(line) for line in requires(environment.DISTRIBUTION) or [] if "extra ==" not in line}
    absent = required - installed.keys() - ({"faiss-cpu"} if installed.keys() & set(FAISS) else set())
    optional = [Check(name, "warn", f"not installed: {text}") for name, text in WITHOUT.items() if name in absent]
    if lacking := sorted(absent - WITHOUT.keys()):
        return [Check("packages", "problem", f"not installed: {', '.join(lacking)}; run ./reproduce.sh"), *optional]
    both = [(name, installed.get(name, pin).partition("+")[0], pin.partition("+")[0]) for name, pin in pins.items()]
    if differing := [f"{name} {found} (checked with {pin})" for name, found, pin in both if found != pin]:
        text = f"other versions than constraints.txt: {_some(differing, 6)}"
        return [Check("packages", "warn", text), *optional]
    against = f", as in constraints.txt ({len(pins)} pins)" if pins else "; no constraints.txt to compare with"
    return [Check("packages", "ok", f"{len(required)} required packages installed{against}"), *optional]


def _constraints(file: Path) -> dict[str, str]:
    """Package -> version of the lines `name==version`."""
    lines = file.read_text().splitlines() if file.is_file() else []
    return {_name(found[1]): found[2] for line in lines if (found := re.match(r"\s*([\w.-]+)\s*==\s*([^\s;#]+)", line))}


def _name(requirement: str) -> str:
    """The normal form of the distribution's name with which a requirement begins."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]).lower()


def _cores(env: Mapping[str, Any]) -> Check:
    load, text = env["load"][0], f"{describe(env)}, load {env['load'][0]:.1f}"
    if load > 0.7 * (env["cores"]["total"] or 1):
        return Check("cpu", "warn", f"{text}: something else is running, timings will be noisy")
    return Check("cpu", "ok", text)


def _memory(env: Mapping[str, Any]) -> Check:
    total, free = env["memory"]["total"], env["memory"]["available"]
    text = f"{free / 2**30:.1f} of {total / 2**30:.0f} GiB available"
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
    if given.get("OMP_WAIT_POLICY", "").casefold() == "passive":
        slower = "threads sleep between products and are woken for each, which slows decoding by a fifth: unset it"
        return Check("threads", "warn", f"{text}: {slower}")
    return Check("threads", "ok", text or f"nothing set: libraries use all {cores} cores")


def _gpu() -> Check:
    captured = environment.capture("cuda")
    names = ", ".join(f"{g['name']} (driver {g['driver']})" for g in captured["gpus"] or [])
    if find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            text = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}"
            if captured["gpu_processes"]:
                return Check("gpu", "warn", f"{text}: other processes use it, timings support no claim")
            return Check("gpu", "ok", text)
        if names:
            return Check("gpu", "warn", f"{names}, but torch {torch.__version__} cannot use it: a CUDA build is needed")
    return Check("gpu", "ok", names or "none: scales mini and small run on the CPU")


def _data(roots: Sequence[Path]) -> list[Check]:
    """The folders of $HARNESS_DATA and the data sets in them."""
    if not roots:
        text = "HARNESS_DATA is not set: scale mini needs none, small and parts of paper its folders"
        return [Check("data", "ok", text)]
    checks = []
    for root in roots:
        if not root.is_dir():
            checks.append(Check("data", "problem", f"{root} (in HARNESS_DATA) is not a folder"))
            continue
        names = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        checks.append(Check("data", "ok" if names else "warn", f"{root}: {_some(names, 40) or 'no data sets in it'}"))
    return checks


def _cache(folder: Path) -> Check:
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{folder}: {decimal(_size(folder))} used, {decimal(free)} free on its disk"
    if not os.access(place, os.W_OK):
        return Check("cache", "problem", f"{text}; not writable: set HARNESS_CACHE")
    if free < LEAST_FREE:
        return Check("cache", "warn", f"{text}; little: set HARNESS_CACHE")
    return Check("cache", "ok", text)


def _checkpoints(places: Mapping[str, str]) -> Check:
    """Which published models are here. places: by name, empty for one that is not."""
    here = ", ".join(f"{name} ({place})" for name, place in places.items() if place)
    absent = [CHECKPOINTS[name] for name, place in places.items() if not place]
    commands = [INSTALL] if any(one.package for one in absent) else []
    commands += [f"hf download {one.hub}" for one in absent if not one.package]
    text = f"{here or 'none'}; the rest: {' && '.join(commands)}" if commands else here
    return Check("checkpoints", "ok", text)


def _tracking(runs: Path) -> Check:
    from harness.tracking.mlflow import shown_uri

    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        text = f"MLFLOW_TRACKING_URI={shown_uri(uri)}"
    elif (runs / "mlflow.db").exists():
        text = f"{runs / 'mlflow.db'}, {decimal((runs / 'mlflow.db').stat().st_size)}"
    else:
        text = f"{runs / 'mlflow.db'} (made by the first run)"
    return Check("tracking", "ok", text)


def _code() -> Check:
    code = environment.code_version(ROOT)
    if code["revision"] is None:
        return Check("code", "ok", f"version {code['version']}, not a git checkout: runs cannot be kept")
    text = f"version {code['version']} at {code['revision'][:10]}"
    return Check("code", "ok", f"{text}, with uncommitted changes: runs cannot be kept" if code["dirty"] else text)


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _size(folder: Path) -> int:
    """Bytes in all files of a folder."""
    return sum((Path(place) / name).lstat().st_size for place, _, names in os.walk(folder) for name in names)
