"""What a process does on the clock: draws items of its own, none of which another process of the block has, times
passes of a baseline and of the methods of a block on them, and compares answers.

The first pass of a process warms up and is not counted. On its items the baseline, which is opened first, is timed
alone, and once more when the methods are open: one that slows it shows.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.cores import usable_cores
from harness.common.errors import CellFailedError
from harness.common.files import digest
from harness.common.phases import NoPhases, PhaseTimer
from harness.contracts.tasks import Measure
from harness.measure.drivers import Essence
from harness.measure.prepared import BASELINE, PreparedCell, Request, Sides, keep_answers
from harness.measure.timing import MOST_TIMES, Side, clocked, measure, sample_of
from harness.measure.usage import Watch


def timed(request: Request) -> dict[str, Any]:
    """{"rows": for each cell of the block, its samples, phases, and how the answers of the timed calls compare with the
    baseline's}."""
    run_calls = clocked()  # before any method's code is loaded
    cell = PreparedCell(request)
    sides = cell.sides()
    driver, setting = sides.driver, sides.setting
    drawn = _drawn(request, sides)
    synchronise, watch = _synchroniser(request["device"]), Watch()
    opens = getattr(setting, "between", None)
    between = opens() if opens is not None else None
    methods: dict[str, Any] = {}
    clocks: dict[str, Side] = {}
    open_s: dict[str, float] = {}
    alone: dict[str, int] | None = None
    for name, opener in sides.openers.items():
        running, started = set(threading.enumerate()), perf_counter()
        methods[name] = opener()
        open_s[name] = perf_counter() - started
        timer = PhaseTimer(synchronise)
        clocks[name] = Side(
            driver.asker(methods[name], setting, timer), partial(driver.inputs, setting), run_calls=run_calls,
            vary=driver.vary if driver.varies else None, between=between, synchronise=synchronise, watch=watch,
            timer=timer,
        )  # fmt: skip
        clocks[name].threads = set(threading.enumerate()) - running
        if name == BASELINE and len(sides.openers) > 1:
            clocks[name].warm(drawn[0])
            alone = {"alone_ns": sum(clocks[name].run(drawn[0])[0])}
    if alone is not None:
        alone["beside_ns"] = sum(clocks[BASELINE].run(drawn[0])[0])
    found = measure(
        clocks, drawn, _order(request, list(clocks)), alone=len(clocks) == 1,
        progress=lambda done, total: cell.progress.update("timing", done, total, "passes"),
    )  # fmt: skip
    items = np.concatenate(drawn[1:])
    answers = {name: driver.gathered(method, setting, items, found[name].answers) for name, method in methods.items()}
    essences = {name: driver.essence(given) for name, given in answers.items()}
    expected: dict[str, Essence] = {}  # answers of other fidelity baselines
    common = {"threads": _threads(), "quiet": watch.as_dict(), "block": request["name"]}
    rows = []
    for place, one in enumerate(request["block"]):
        name = str(place) if str(place) in methods else BASELINE
        of = {"method": name} | ({BASELINE: BASELINE} if name != BASELINE and BASELINE in methods else {})
        ours = {role: essences[side] for role, side in of.items()}
        if (theirs := _expected(cell, sides, one, ours, items, expected)) is not None:
            ours["fidelity_baseline"] = theirs
        compared: dict[str, Measure] = {}
        if theirs is not None:
            compared = driver.fidelity(ours["method"], theirs)
            timed_items = [setting.timed[i] for i in items.tolist()]
            compared |= driver.differences(methods[name], setting, timed_items, ours["method"], theirs)
        times = {f"{role}_ns": np.concatenate(found[side].times) for role, side in of.items()}
        keep_answers(one["answers"], {**ours, "time": {"items": items, **times}})
        sample = sample_of(found[name], found.get(of.get(BASELINE, "")), *_numbered(setting, drawn[1:]), alone)
        sample.fit, sample.idle_ns = one["fit"], clocks[name].idle_ns
        sample.work = driver.work(answers[BASELINE]) if BASELINE in of else None
        sample.open_s = {role: open_s[side] for role, side in of.items()}
        rows.append(asdict(sample) | common | {
            "answers_sha256": {role: _hash(essence) for role, essence in ours.items()},
            "sums": driver.sums(
                {role: methods[side] for role, side in of.items()}, setting,
                {role: found[side].answers for role, side in of.items()},
                {role: answers[side] for role, side in of.items()},
            ),
            "phases": {role: clocks[side].phases for role, side in of.items()},
            "fidelity": {name: measure.value for name, measure in compared.items()},
        })  # fmt: skip
    return {"rows": rows}


def _order(request: Request, names: Sequence[str]) -> Callable[[int], list[str]]:
    """Who comes when in a pass: a drawn order, and in the next pass its reverse. The next process begins with the
    reverse, so that each side is early as often as late."""

    def order(number: int) -> list[str]:
        rng = np.random.default_rng([request["seed"], request["process"] // 2, number // 2])
        drawn = [names[i] for i in rng.permutation(len(names)).tolist()]
        return drawn if (number + request["process"]) % 2 == 0 else drawn[::-1]

    return order


def _numbered(setting: Any, passes: Sequence[NDArray[np.int64]]) -> tuple[list[int], list[list[int] | None]]:
    """Of each pass, how many items it has, and their places in the evaluation where they have one (`Setting.numbers`);
    None for a pass of too many to keep."""
    places = getattr(setting, "numbers", None)
    return [len(one) for one in passes], [
        None if len(one) > MOST_TIMES else [int(places[i]) if places is not None else i for i in one.tolist()]
        for one in passes
    ]


def _drawn(request: Request, sides: Sides) -> list[Any]:
    """The items of each pass of this process; the first pass warms up."""
    pool, pairs = len(sides.setting.timed), request["timing"]["pairs"]
    consecutive = sides.driver.consecutive
    drawn = passes(pool, sides.setting.sample, pairs + 1, request["process"], request["seed"], consecutive=consecutive)
    if len(drawn[0]) < (batch := getattr(sides.setting, "batch", 1)):
        raise CellFailedError(
            f"{pool} items to time give {pairs + 1} passes of {len(drawn[0])}, less than a batch of {batch}: give the "
            "task more items or longer passes (task.evaluation, task.timed)"
        )
    return drawn


def _expected(
    cell: PreparedCell, sides: Sides, one: Mapping[str, Any], ours: Mapping[str, Essence], items: Any,
    known: dict[str, Essence],
) -> Essence | None:  # fmt: skip
    """The answers to the timed items of a cell's fidelity baseline: the timed ones where it is the speed baseline as
    well. known: answers of others by what they are."""
    driver, wanted = sides.driver, one["fidelity_baseline"]
    if wanted in (None, cell.request.get(BASELINE)):
        return ours.get(BASELINE)
    if (name := digest([wanted, one["fit"]])) not in known:
        method = cell.opened(wanted, one["manifests"]["fidelity_baseline"], one["fit"])
        ask = driver.asker(method, sides.setting, NoPhases())
        calls = [ask(given) for given in driver.inputs(sides.setting, items)]
        known[name] = driver.essence(driver.gathered(method, sides.setting, items, calls))
    return known[name]


def _hash(essence: Essence) -> str:
    """SHA-256 of answers: names, types, shapes and bytes of their arrays."""
    state = hashlib.sha256()
    for name, array in sorted(essence.items()):
        state.update(f"{name} {array.dtype.str} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


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


def passes(
    pool: int, sample: int, number: int, process: int, seed: int, consecutive: bool = False
) -> list[NDArray[np.int64]]:
    """`number` passes of `sample` item numbers below `pool`, int64 [sample] each, for one process of a cell.

    Processes take consecutive stretches of one seeded order, so that items are used again only when the pool is used
    up, and never twice in one process. consecutive: a pass holds neighbours of the pool. A pool too small for the
    passes of a single process makes them shorter. Raises `CellFailedError` for a pool with fewer items than passes.
    """
    if pool < number:
        raise CellFailedError(
            f"{pool} items to time are fewer than the {number} passes of a process: give the task more items, or ask "
            "for fewer pairs (--pairs)"
        )
    sample = min(sample, pool // number)
    blocks = _blocks(pool, sample, seed, consecutive)
    every = len(blocks) // number  # processes that share no item
    rounds, place = divmod(process, every)
    if rounds:  # the pool is used up: another order of it, so that processes do not get the same passes again
        blocks = _blocks(pool, sample, seed + 7919 * rounds, consecutive)
    return blocks[place * number : (place + 1) * number]


def _blocks(pool: int, sample: int, seed: int, consecutive: bool) -> list[NDArray[np.int64]]:
    """The pool in a seeded order, cut into blocks of `sample`; what is left over is left out."""
    rng = np.random.default_rng([seed, pool])
    whole = pool // sample
    if consecutive:
        first = int(rng.integers(pool - whole * sample + 1))
        return [np.arange(first + b * sample, first + (b + 1) * sample) for b in rng.permutation(whole).tolist()]
    return list(rng.permutation(pool)[: whole * sample].reshape(whole, sample))
