"""One step of a cell in a process of its own: `python -m harness.worker MODE REQUEST RESPONSE`.

prepare   load the task (train and cache its model where the scale says so), report hashes and facts
fit       fit method and baselines, run the quality pass, report metrics, fidelity, counters, artifact manifests
time      open the artifacts, time pairs of baseline and method, report samples and phases
analysis  call a named analysis, report its metrics and counters

The response is written atomically; without one the runner knows that the process died. An error that a user can act on
travels in the response; any other one ends in a traceback on standard error, which is the cell's log.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.artifacts import Cache, CellArtifacts, SharedResults, write_atomically
from harness.drivers import DRIVERS, Driver, context, quality
from harness.errors import HarnessError
from harness.memory import peak_of, peak_resident
from harness.phases import PhaseTimer
from harness.progress import Progress
from harness.registry import Registry, construct
from harness.settings import Measure, Setting
from harness.timing import measure

Request = dict[str, Any]
Response = dict[str, Any]


class _Cell:
    """A request's cell with its task prepared and its methods at hand."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.registry = Registry()
        self.progress = Progress()
        self.context = context(request["scale"], request["device"], request["seed"], Path(request["cache"]))
        self.cache = Cache(self.context.cache)
        self.salt = {"device": request["device"], "libraries": request["libraries"]}
        self.task = construct(self.registry.resolve("task", request["task"]["name"]), request["task"]["params"])
        self.setting: Setting = self.task.prepare(self.context, self.progress)
        self.driver: Driver = DRIVERS[self.registry.entry("task", request["task"]["name"]).contract]

    def named(self, role: str) -> Any:
        """A fresh instance of the method in this role (`method`, `speed_baseline`, `fidelity_baseline`)."""
        wanted = self.request[role]
        return construct(self.registry.resolve("method", wanted["name"]), wanted["params"])

    def opened(self, role: str, manifest: dict[str, Any]) -> Any:
        """The method in this role, opened from its artifacts as a process that did not fit it would."""
        method = self.named(role)
        method.open(self.driver.subject(self.setting), CellArtifacts(self.cache, salt=self.salt, **manifest))
        return method

    def roles(self, *names: str) -> list[str]:
        return [name for name in names if self.request.get(name)]


def prepare(request: Request) -> Response:
    cell = _Cell(request)
    return {"hashes": cell.setting.hashes, "facts": cell.setting.facts}


def fit(request: Request) -> Response:
    cell = _Cell(request)
    manifests: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for role in cell.roles("speed_baseline", "fidelity_baseline", "method"):
        artifacts = CellArtifacts(cell.cache, salt=cell.salt)
        started = time.perf_counter()
        cell.driver.fit(cell.named(role), cell.setting, artifacts)
        seconds[role] = time.perf_counter() - started - artifacts.spent + artifacts.cost
        manifests[role] = artifacts.manifest()

    shared = SharedResults(cell.cache, salt=cell.salt)
    method = cell.opened("method", manifests["method"])
    cell.progress.update("quality pass", 0, None)
    answers = quality(cell.driver, method, cell.setting, shared)
    essence = cell.driver.essence(answers)
    metrics: dict[str, Measure] = cell.task.metrics(cell.setting, answers) | cell.task.evaluate(cell.setting, method)
    if request.get("fidelity_baseline"):
        baseline = request["fidelity_baseline"]

        def exact() -> Any:
            opened = cell.opened("fidelity_baseline", manifests["fidelity_baseline"])
            return cell.driver.essence(quality(cell.driver, opened, cell.setting, shared))

        key = {**baseline, "task": request["task"], "hashes": cell.setting.hashes, "code": request["code"]}
        expected = shared.arrays("essence", key, exact)
        metrics |= cell.driver.fidelity(essence, expected)
        metrics |= cell.driver.differences(method, cell.setting, essence, expected)
    costs = cell.driver.costs(method, cell.setting)
    return {
        "hashes": cell.setting.hashes,
        "facts": cell.setting.facts,
        "manifests": manifests,
        "fit_s": seconds["method"],
        "metrics": {name: m.value for name, m in metrics.items()},
        "intervals": {n: [m.low, m.high] for n, m in metrics.items() if m.low is not None and m.high is not None},
        "counters": cell.driver.counters(answers) | costs | _limit(cell, costs, manifests),
        "series": cell.driver.series(answers) | cell.task.series(cell.setting, answers),
        "examples": cell.task.examples(cell.setting, method, answers),
        "timing_counters": cell.driver.timing_counters(answers),
        "memory_mib": peak_resident(),
    }


def _limit(cell: _Cell, costs: dict[str, float], manifests: dict[str, Any]) -> dict[str, float]:
    """`limit`, the speedup if time were multiply-adds, where both the method and its baseline count them."""
    ours = costs.get("multiply_adds")
    if not ours or "speed_baseline" not in manifests:
        return {}
    baseline = cell.opened("speed_baseline", manifests["speed_baseline"])
    theirs = cell.driver.costs(baseline, cell.setting).get("multiply_adds")
    return {"limit": theirs / ours} if theirs else {}


def timed(request: Request) -> Response:
    cell = _Cell(request)
    manifests = request["manifests"]
    synchronise = _synchroniser(request["device"])
    phases: dict[str, list[PhaseTimer]] = {}

    def call(method: Any, role: str) -> Callable[[], object]:
        phases[role] = []

        def once() -> object:
            timer = PhaseTimer(synchronise)
            phases[role].append(timer)
            return cell.driver.timed(method, cell.setting, timer)

        return once

    opened = cell.opened("method", manifests["method"])
    method = call(opened, "method")
    baseline = method
    if request.get("speed_baseline"):
        baseline = call(cell.opened("speed_baseline", manifests["speed_baseline"]), "speed_baseline")
    timing = request["timing"]
    sample = measure(
        baseline,
        method,
        pairs=timing["pairs"],
        noise_pairs=1,
        swap=request["process"] % 2 == 1,
        synchronise=synchronise,
        progress=lambda done, total: cell.progress.update("timing", done, total, "pairs"),
    )
    answer = {
        "phases": {role: _phases(timers) for role, timers in phases.items()},
        "threads": _threads(),
        "memory_mib": {},
        "items": len(cell.setting.timed),
        "limit": opened.allowed_speedup(),
    }
    if request["process"] == 0:  # memory hardly varies: one process tells
        sides = {"method": method, "baseline": baseline}
        answer["memory_mib"] = {side: peak_of(side_call, request["device"]) for side, side_call in sides.items()}
    return sample.as_dict() | answer


def analysis(request: Request) -> Response:
    cell = _Cell(request)
    run = construct(cell.registry.resolve("analysis", request["method"]["name"]), request["method"]["params"])
    artifacts = CellArtifacts(cell.cache, salt=cell.salt)
    metrics: dict[str, Measure] = run(cell.setting, artifacts, cell.progress)
    return {
        "hashes": cell.setting.hashes,
        "facts": cell.setting.facts,
        "metrics": {name: m.value for name, m in metrics.items()},
        "intervals": {n: [m.low, m.high] for n, m in metrics.items() if m.low is not None and m.high is not None},
        "counters": dict(artifacts.values),
    }


MODES: dict[str, Callable[[Request], Response]] = {"prepare": prepare, "fit": fit, "time": timed, "analysis": analysis}


def _synchroniser(device: str) -> Callable[[], None] | None:
    if not device.startswith("cuda"):
        return None
    import torch

    return torch.cuda.synchronize


def _phases(timers: list[PhaseTimer]) -> dict[str, Any]:
    """Phases of one call, the mean over calls after the warm-up, with the timer's own estimated cost."""
    kept = timers[1:] or timers
    names = sorted({name for timer in kept for name in timer.seconds})
    late = sorted({name for timer in kept for name in timer.overlapped_seconds})
    return {
        "seconds": {n: sum(t.seconds.get(n, 0.0) for t in kept) / len(kept) for n in names},
        "overlapped": {n: sum(t.overlapped_seconds.get(n, 0.0) for t in kept) / len(kept) for n in late},
        "timer_s": kept[-1].overhead(),
    }


def _threads() -> dict[str, int]:
    """Threads that each loaded library will really use in this process (installing one can change another's)."""
    counts = {"usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1}
    for library, function in (
        ("torch", "get_num_threads"),
        ("numba", "get_num_threads"),
        ("faiss", "omp_get_max_threads"),
    ):
        if library in sys.modules:
            counts[library] = int(getattr(sys.modules[library], function)())
    return counts


def _die_with(runner: int) -> None:
    """Ask Linux to end this process when the runner dies without a word (`kill -9`), so that no orphan trains on
    beside the run that resumes it. Elsewhere nothing is done: the orphan finishes its step."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
        if os.getppid() != runner:  # it died before we asked
            sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    mode, request_file, response_file = sys.argv[1:] if arguments is None else arguments
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    _die_with(request["runner"])
    try:
        response = MODES[mode](request)
        code = 0
    except HarnessError as error:
        response, code = {"error": str(error), "exit_code": error.exit_code}, error.exit_code
    write_atomically(Path(response_file), json.dumps(response))
    return code


if __name__ == "__main__":
    sys.exit(main())
