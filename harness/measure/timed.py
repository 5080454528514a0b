"""What a process does on the clock: draws items of its own, times pairs of baseline and method on them, and compares
answers.

Every process of a cell draws other items, none of them twice, so that the interval over processes covers the items as
well as the machine. A pass is what one side of one pair answers. The first pass of a process warms up and is not
counted.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.common.cores import usable_cores
from harness.common.errors import CellFailedError
from harness.common.phases import NoPhases, PhaseTimer
from harness.contracts.tasks import Measure
from harness.measure.drivers import Essence
from harness.measure.prepared import PreparedCell, Request, Sides, keep_answers
from harness.measure.timing import Side, measure
from harness.measure.usage import Watch, peak_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def timed(request: Request) -> dict[str, Any]:
    """Samples, phases, how the answers of the timed calls compare with the baseline's, and peak memory."""
    cell = PreparedCell(request)
    sides = cell.sides()
    driver, setting = sides.driver, sides.setting
    synchronise, watch = _synchroniser(request["device"]), Watch()
    opens = getattr(setting, "between", None)
    between = opens() if opens is not None else None

    def side(method: Any) -> Side:
        timer = PhaseTimer(synchronise)
        return Side(
            driver.asker(method, setting, timer), partial(driver.inputs, setting),
            between=between, synchronise=synchronise, watch=watch, timer=timer,
        )  # fmt: skip

    clocked = {role: side(method) for role, method in sides.methods.items()}
    measured = measure(
        clocked.get("speed_baseline"),
        clocked["method"],
        _drawn(request, sides),
        swap=request["swap"],
        progress=lambda done, total: cell.progress.update("timing", done, total, "pairs"),
    )
    calls = {"method": measured.method, "speed_baseline": measured.baseline}
    answers = {
        role: driver.gathered(method, setting, measured.items, calls[role]) for role, method in sides.methods.items()
    }
    essences = {role: driver.essence(given) for role, given in answers.items()}
    essences |= _expected(cell, sides, essences, measured.items)
    found: dict[str, Measure] = {}
    if "fidelity_baseline" in essences:
        ours, theirs = essences["method"], essences["fidelity_baseline"]
        items = [setting.timed[i] for i in measured.items.tolist()]
        found = driver.fidelity(ours, theirs)
        found |= driver.differences(sides.methods["method"], setting, items, ours, theirs)
    times = {f"{name}_ns": values for name, values in measured.times.items()}
    keep_answers(request, {**essences, "time": {"items": measured.items, **times}})
    memory: dict[str, float | None] = {}
    if request["memory"]:  # it hardly varies: one process of a row tells
        first = measured.items[: getattr(setting, "batch", 1)]
        memory = {role: peak_of(partial(one.run, first), request["device"]) for role, one in clocked.items()}
    return measured.sample.as_dict() | {
        "threads": _threads(),
        "quiet": watch.as_dict(),
        "answers_sha256": {role: _hash(essence) for role, essence in essences.items()},
        "sums": driver.sums(sides.methods["method"], calls, answers),
        "phases": {role: one.phases for role, one in clocked.items()},
        "fidelity": {name: measure.value for name, measure in found.items()},
        "memory_mib": memory,
    }


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


def _expected(cell: PreparedCell, sides: Sides, essences: dict[str, Essence], items: Any) -> dict[str, Essence]:
    """The fidelity baseline's answers to the timed items: the timed ones where it is the speed baseline as well."""
    request, driver = cell.request, sides.driver
    if request.get("fidelity_baseline") in (None, request.get("speed_baseline")):
        return {"fidelity_baseline": essences["speed_baseline"]} if "speed_baseline" in essences else {}
    method = cell.opened("fidelity_baseline", request["manifests"]["fidelity_baseline"])
    ask = driver.asker(method, sides.setting, NoPhases())
    calls = [ask(one) for one in driver.inputs(sides.setting, items)]
    return {"fidelity_baseline": driver.essence(driver.gathered(method, sides.setting, items, calls))}


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
