"""One step of a cell in a process of its own: `python -m harness.measure.worker MODE REQUEST RESPONSE`.

prepare   load the task (train and cache its model where the scale says so), report hashes and facts
fit       fit method and baselines, run the quality pass, report metrics, fidelity, counters, artifact manifests
time      open the artifacts, time pairs of baseline and method on items of its own, report samples, phases and how the
          answers of the timed calls compare with the baseline's
analysis  call a named analysis, report its metrics and counters; fit it where it is a timed one
compare   open a timed analysis, time pairs of its two sides on items of its own, report samples and sums

The response is written atomically; without one the runner knows that the process died. An error travels in the response
as one line. One that is no `HarnessError` travels with its file and line, and its traceback goes to standard error, the
cell's log.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.common.cache import CellArtifacts, SharedResults
from harness.common.cores import usable_cores
from harness.common.errors import CellFailedError, HarnessError, NotInstalledError, place
from harness.common.files import write_atomically
from harness.common.parts import makers
from harness.common.phases import NoPhases, PhaseTimer
from harness.contracts import Decoded
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.metrics import described
from harness.contracts.tasks import Measure
from harness.measure.drawing import passes
from harness.measure.drivers import SEQUENCES, Driver, Essence
from harness.measure.memory import peak_of, peak_resident
from harness.measure.prepared import PreparedCell, Request
from harness.measure.quiet import Watch
from harness.measure.timing import Measured, Side, measure
from harness.plan.registry import Registry

Response = dict[str, Any]


def prepare(request: Request) -> Response:
    cell = PreparedCell(request)
    return {"hashes": cell.setting.hashes, "facts": cell.setting.facts}


def _quality(cell: PreparedCell, method: Any, shared: SharedResults) -> Any:
    """Answers to the whole evaluation set, with the results that cells share."""
    return cell.driver.answer(method, cell.setting, cell.setting.evaluation, NoPhases(), shared)


def _fitted(cell: PreparedCell) -> tuple[dict[str, Any], dict[str, float]]:
    """Of each role, what fitting left for other processes, and the seconds that it takes."""
    manifests: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for role in cell.roles("speed_baseline", "fidelity_baseline", "method"):
        artifacts = CellArtifacts(cell.cache, salt=cell.salt_of(role), parts=makers(cell.request.get("cluster")))
        started = time.perf_counter()
        needs = cell.registry.entry("method", cell.request[role]["name"]).needs
        cell.driver.fit(cell.named(role), cell.setting, artifacts, needs)
        seconds[role] = time.perf_counter() - started - artifacts.spent + artifacts.cost
        manifests[role] = artifacts.manifest()
    return manifests, seconds


def build(request: Request) -> Response:
    return {"seconds": _fitted(PreparedCell(request))[1]}


def fit(request: Request) -> Response:
    cell = PreparedCell(request)
    manifests, seconds = _fitted(cell)
    method = cell.opened("method", manifests["method"])
    shared = SharedResults(cell.cache, salt=cell.salt_of("method"))
    cell.progress.update("quality pass", 0, None)
    answers = _quality(cell, method, shared)
    essence = cell.driver.essence(answers)
    metrics: dict[str, Measure] = cell.task.metrics(cell.setting, answers) | cell.task.evaluate(cell.setting, method)
    if request.get("fidelity_baseline"):
        baseline = request["fidelity_baseline"]
        theirs = SharedResults(cell.cache, salt=cell.salt_of("fidelity_baseline"))

        def exact() -> Any:
            opened = cell.opened("fidelity_baseline", manifests["fidelity_baseline"])
            return cell.driver.essence(_quality(cell, opened, theirs))

        key = {**baseline, "task": request["task"], "hashes": cell.setting.hashes, "code": request["baseline_code"]}
        if cell.named("fidelity_baseline").random_fit:
            key["fit"] = request.get("fit", 0)
        expected = theirs.arrays("essence", key, exact)
        metrics |= cell.driver.fidelity(essence, expected)
        metrics |= cell.driver.differences(method, cell.setting, cell.setting.evaluation, essence, expected)
        metrics |= cell.driver.compared(cell.task, cell.setting, essence, expected)
    _keep_answers(request, {"method": essence})
    return {
        "random": method.random_fit,
        "ratios": {name: asdict(ratio) for name, ratio in method.ratios.items()},
        "hashes": cell.setting.hashes,
        "facts": cell.setting.facts,
        "manifests": manifests,
        "fit_s": seconds["method"],
        **_numbers(metrics),
        "counters": cell.driver.counters(answers) | cell.driver.costs(method, cell.setting),
        "described": described(*cell.task.measures, *method.measures),
        "series": cell.driver.series(answers) | cell.task.series(cell.setting, answers),
        "examples": cell.task.examples(cell.setting, method, answers),
        "timing_counters": cell.driver.timing_counters(answers),
        "memory_mib": peak_resident(),
    }


def _numbers(metrics: Mapping[str, Measure]) -> Response:
    """Values and intervals of metrics, as rows have them."""
    intervals = {n: [m.low, m.high] for n, m in metrics.items() if m.low is not None and m.high is not None}
    return {"metrics": {name: m.value for name, m in metrics.items()}, "intervals": intervals}


def timed(request: Request) -> Response:
    cell = PreparedCell(request)
    driver, setting = cell.driver, cell.setting
    manifests, process, pairs = request["manifests"], request["process"], request["timing"]["pairs"]
    synchronise = _synchroniser(request["device"])
    watch = Watch()
    opens = getattr(setting, "between", None)
    between = opens() if opens is not None else None

    def side(method: Any) -> Side:
        timer = PhaseTimer(synchronise)
        return Side(
            driver.asker(method, setting, timer), partial(driver.inputs, setting),
            between=between, synchronise=synchronise, watch=watch, timer=timer,
        )  # fmt: skip

    methods = {role: cell.opened(role, manifests[role]) for role in cell.roles("method", "speed_baseline")}
    sides = {role: side(method) for role, method in methods.items()}
    drawn = passes(
        len(setting.timed), setting.sample, pairs + 1, process, request["seed"], consecutive=driver.consecutive
    )
    if len(drawn[0]) < (batch := getattr(setting, "batch", 1)):
        raise CellFailedError(
            f"{len(setting.timed)} items to time give {pairs + 1} passes of {len(drawn[0])}, less than a batch of "
            f"{batch}: give the task more items or longer passes (task.evaluation, task.timed)"
        )
    measured = measure(
        sides.get("speed_baseline"),
        sides["method"],
        drawn,
        swap=request["swap"],
        progress=lambda done, total: cell.progress.update("timing", done, total, "pairs"),
    )
    calls = {"method": measured.method, "speed_baseline": measured.baseline}
    answers = {role: driver.gathered(method, setting, measured.items, calls[role]) for role, method in methods.items()}
    essences = {role: driver.essence(given) for role, given in answers.items()}
    essences |= _expected(cell, essences, measured.items)
    found: dict[str, Measure] = {}
    if "fidelity_baseline" in essences:
        ours, theirs = essences["method"], essences["fidelity_baseline"]
        items = [setting.timed[i] for i in measured.items.tolist()]
        found = driver.fidelity(ours, theirs) | driver.differences(methods["method"], setting, items, ours, theirs)
    answer = _account(request, measured, essences, watch) | {
        "sums": _sums(driver, methods["method"], answers),
        "phases": {role: one.phases for role, one in sides.items()},
        "fidelity": {name: measure.value for name, measure in found.items()},
        "memory_mib": {},
    }
    if request["memory"]:  # it hardly varies: one process of a row tells
        first = measured.items[: getattr(setting, "batch", 1)]
        answer["memory_mib"] = {
            role: peak_of(partial(one.run, first), request["device"]) for role, one in sides.items()
        }
    return measured.sample.as_dict() | answer


def _sums(driver: Driver, method: Any, answers: dict[str, Any]) -> dict[str, float]:
    """Totals of the timed answers' counters that the method's ratios go by, as `ROLE.COUNTER`."""
    wanted = {name for ratio in method.ratios.values() for name in ratio.names}
    return {
        f"{role}.{name}": value
        for role, given in answers.items() if any(one.startswith(f"{role}.") for one in wanted)
        for name, value in driver.counters(given).items() if f"{role}.{name}" in wanted
    }  # fmt: skip


def _account(request: Request, measured: Measured, essences: dict[str, Essence], watch: Watch) -> Response:
    """Keep a timing process's answers and times, and say what every such process says of them and of itself."""
    times = {f"{name}_ns": values for name, values in measured.times.items()}
    _keep_answers(request, {**essences, "time": {"items": measured.items, **times}})
    return {
        "threads": _threads(),
        "quiet": watch.as_dict(),
        "answers_sha256": {role: _hash(essence) for role, essence in essences.items()},
    }


def _expected(cell: PreparedCell, essences: dict[str, Essence], items: Any) -> dict[str, Essence]:
    """The fidelity baseline's answers to the timed items: the timed ones where it is the speed baseline as well."""
    request = cell.request
    wanted = request.get("fidelity_baseline") or request.get("speed_baseline")
    if not wanted:
        return {}
    if wanted == request.get("speed_baseline"):
        return {"fidelity_baseline": essences["speed_baseline"]}
    method = cell.opened("fidelity_baseline", request["manifests"]["fidelity_baseline"])
    ask = cell.driver.asker(method, cell.setting, NoPhases())
    calls = [ask(one) for one in cell.driver.inputs(cell.setting, items)]
    return {"fidelity_baseline": cell.driver.essence(cell.driver.gathered(method, cell.setting, items, calls))}


def _keep_answers(request: Request, groups: dict[str, Essence]) -> None:
    """Write the answers of a pass, by role, where the request says, so that a new metric needs no new run."""
    if path := request.get("answers"):
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial_file = target.with_suffix(".partial.npz")
        arrays: dict[str, Any] = {f"{role}.{n}": array for role, group in groups.items() for n, array in group.items()}
        np.savez_compressed(partial_file, **arrays)
        partial_file.replace(target)


def _hash(essence: Essence) -> str:
    """SHA-256 of answers: names, types, shapes and bytes of their arrays."""
    state = hashlib.sha256()
    for name, array in sorted(essence.items()):
        state.update(f"{name} {array.dtype.str} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def analysis(request: Request) -> Response:
    cell = PreparedCell(request)
    run = cell.analysis()
    artifacts = CellArtifacts(cell.cache, salt=cell.salt)
    metrics: dict[str, Measure] = {}
    ratios: dict[str, Any] = {}
    if isinstance(run, TimedAnalysis):
        run.fit(cell.setting, artifacts, cell.progress)
        ratios = {name: asdict(ratio) for name, ratio in run.ratios.items()}
    else:
        metrics = run(cell.setting, artifacts, cell.progress)
    return {
        "hashes": cell.setting.hashes,
        "facts": cell.setting.facts,
        **_numbers(metrics),
        "counters": dict(artifacts.values),
        "described": described(*getattr(cell.registry.resolve("analysis", request["method"]["name"]), "measures", ())),
        "examples": getattr(run, "examples", list)(),
        "manifests": artifacts.manifest(),
        "ratios": ratios,
    }


def compare(request: Request) -> Response:
    cell = PreparedCell(request)
    run: TimedAnalysis = cell.analysis()
    run.open(cell.setting, CellArtifacts(cell.cache, salt=cell.salt, **request["manifests"]))
    synchronise, watch = _synchroniser(request["device"]), Watch()
    baseline, method = (
        Side(ask, run.inputs, synchronise=synchronise, watch=watch) for ask in (run.baseline, run.method)
    )
    process, (pool, sample) = request["process"], run.items()
    measured = measure(
        baseline,
        method,
        passes(pool, sample, request["timing"]["pairs"] + 1, process, request["seed"]),
        swap=request["swap"],
        progress=lambda done, total: cell.progress.update("timing", done, total, "pairs"),
    )
    essences = {
        role: SEQUENCES.essence([Decoded(list(ids)) for call in calls for ids in run.answers(call)])
        for role, calls in (("method", measured.method), ("fidelity_baseline", measured.baseline))
    }
    return measured.sample.as_dict() | _account(request, measured, essences, watch) | {
        "sums": run.sums(measured.baseline), "phases": {}, "fidelity": {}, "memory_mib": {},
    }  # fmt: skip


MODES: dict[str, Callable[[Request], Response]] = {
    "prepare": prepare, "build": build, "fit": fit, "time": timed, "analysis": analysis, "compare": compare,
}  # fmt: skip


def _synchroniser(device: str) -> Callable[[], None] | None:
    if not device.startswith("cuda"):
        return None
    import torch

    return torch.cuda.synchronize


def _threads() -> dict[str, int]:
    """Threads that each loaded library will really use in this process (installing one can change another's)."""
    counts = {"usable_cores": usable_cores()}
    for library, function in (
        ("torch", "get_num_threads"),
        ("numba", "get_num_threads"),
        ("faiss", "omp_get_max_threads"),
    ):
        if library in sys.modules:
            counts[library] = int(getattr(sys.modules[library], function)())
    return counts


def _die_with(runner: int) -> None:
    """Ask Linux to end this process when the runner dies without a word (`kill -9`), so that no orphan goes on
    while another run resumes its cell. On other systems nothing is done: the orphan finishes its step."""
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
        response["skipped"] = isinstance(error, NotInstalledError)
    except Exception as error:
        traceback.print_exc()
        last = traceback.format_exception_only(error)[-1].strip()
        response, code = {"error": f"{last} ({place(error, Registry().packages)})", "exit_code": 1}, 1
    write_atomically(Path(response_file), json.dumps(response))
    return code


if __name__ == "__main__":
    sys.exit(main())
