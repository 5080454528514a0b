"""What a process does off the clock: prepare a task, fit, ask for the answers of the quality pass, run an analysis."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from harness.common.cache import Cache, CellArtifacts, SharedResults
from harness.common.parts import HERE, ClusterParts
from harness.common.phases import NoPhases
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.metrics import described
from harness.contracts.tasks import Measure
from harness.measure.prepared import PreparedCell, Request, keep_answers
from harness.measure.usage import peak_of, peak_resident

Response = dict[str, Any]


def prepare(request: Request) -> Response:
    cell = PreparedCell(request)
    return {"hashes": cell.setting.hashes, "facts": cell.setting.facts}


def _quality(cell: PreparedCell, method: Any, shared: SharedResults, stage: str = "quality pass") -> Any:
    """Answers to the whole evaluation set, with the results that cells share."""
    answers: list[Any] = []
    cell.progress.update(stage, 0, None)
    for part in (parts := cell.driver.parts(cell.setting)):
        answers += cell.driver.answer(method, cell.setting, part, NoPhases(), shared)
        if len(parts) > 1:
            cell.progress.update(stage, len(answers), len(cell.setting.evaluation), "items")
    return answers


def _fitted(cell: PreparedCell) -> tuple[dict[str, Any], dict[str, float]]:
    """Of each role, what fitting left for other processes, and the seconds that it takes."""
    manifests: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for role in ("speed_baseline", "fidelity_baseline", "method"):
        if (wanted := cell.request.get(role)) is None:
            continue
        number, cluster = cell.request["fit"], cell.request.get("cluster")
        parts = ClusterParts(cluster) if cluster else HERE
        artifacts = CellArtifacts(cell.cache, salt=cell.salt_of(wanted, number), parts=parts)
        started = time.perf_counter()
        needs = cell.registry.entry("method", wanted["name"]).needs
        cell.driver.fit(cell.named(wanted, number), cell.setting, artifacts, needs)
        seconds[role] = time.perf_counter() - started - artifacts.spent + artifacts.cost
        manifests[role] = artifacts.manifest()
    return manifests, seconds


def build(request: Request) -> Response:
    return {"seconds": _fitted(PreparedCell(request))[1]}


def fit(request: Request) -> Response:
    cell = PreparedCell(request)
    manifests, seconds = _fitted(cell)
    number, wanted = request["fit"], request["method"]
    method = cell.opened(wanted, manifests["method"], number)
    shared = SharedResults(cell.cache, salt=cell.salt_of(wanted, number))
    answers = _quality(cell, method, shared)
    cell.driver.consistent(method, cell.setting)
    essence = cell.driver.essence(answers)
    metrics: dict[str, Measure] = cell.task.metrics(cell.setting, answers) | cell.task.evaluate(cell.setting, method)
    # a method without a fidelity baseline may be that of other cells: its answers are kept where these look for them
    baseline = request["fidelity_baseline"] or wanted
    theirs = SharedResults(cell.cache, salt=cell.salt_of(baseline, number))
    kept = SharedResults(Cache(Path(request["answers"]).parent), salt=cell.salt_of(baseline, number))

    def exact() -> Any:
        if baseline is wanted:
            return essence
        opened = cell.opened(baseline, manifests["fidelity_baseline"], number)
        return cell.driver.essence(_quality(cell, opened, theirs, "the baseline's quality pass"))

    key = {**baseline, "task": request["task"], "hashes": cell.setting.hashes, "code": request["baseline_code"]}
    if cell.named(baseline, number).random_fit:
        key["fit"] = number
    expected = kept.arrays("answers", key, exact)  # not where methods keep artifacts
    if baseline is not wanted:
        metrics |= cell.driver.fidelity(essence, expected)
        metrics |= cell.driver.differences(method, cell.setting, cell.setting.evaluation, essence, expected)
        metrics |= cell.driver.compared(cell.task, cell.setting, essence, expected)
    keep_answers(request["answers"], {"method": essence})
    return {
        "random": method.random_fit,
        "ratios": {name: asdict(ratio) for name, ratio in method.ratios.items()},
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


def memory(request: Request) -> Response:
    """Peak memory in a process that opens one method alone and asks the first items of a timed pass."""
    cell = PreparedCell(request)
    method = cell.opened(request["wanted"], request["manifest"], request["fit"])
    ask = cell.driver.asker(method, cell.setting, NoPhases())
    given = cell.driver.inputs(cell.setting, np.arange(getattr(cell.setting, "batch", 1)))
    return {"memory_mib": peak_of(lambda: [ask(one) for one in given], request["device"])}


def _numbers(metrics: Mapping[str, Measure]) -> Response:
    """Values and intervals of metrics, as rows have them."""
    intervals = {n: [m.low, m.high] for n, m in metrics.items() if m.low is not None and m.high is not None}
    return {"metrics": {name: m.value for name, m in metrics.items()}, "intervals": intervals}


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
        **_numbers(metrics),
        "counters": dict(artifacts.values),
        "described": described(*getattr(cell.registry.resolve("analysis", request["method"]["name"]), "measures", ())),
        "examples": getattr(run, "examples", list)(),
        "manifests": artifacts.manifest(),
        "ratios": ratios,
    }
