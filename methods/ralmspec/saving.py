"""How much of what asynchronous verification could save it saves (Zhang et al., 2024, section 4, asynchronous
verification): what two threads of a small machine make of the ideal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter

import numpy as np
import torch

from harness.contracts import Artifacts
from harness.phases import NoPhases
from harness.progress import Progress
from harness.registry import analysis
from harness.settings import Measure, RetrievalSetting
from harness.statistics import block_bootstrap, mean_interval
from methods.knnlm.ranges import within
from methods.ralmspec.ralm import IterativeOptions, RalmSpec
from methods.ralmspec.record import Record


@analysis("asynchronous-saving", summary="share of the ideal saving that asynchronous verification reaches")
@dataclass(kw_only=True)
class AsynchronousSaving(IterativeOptions):
    """The same requests at a fixed stride, synchronously on one thread, and asynchronously with one thread for the
    steps and one for the verifications, in turn. The ideal hides, in every round whose steps were all right, the
    shorter of a step and a verification, a and b as the request has them synchronously. It is the paper's, which lets
    one step overlap; here as many do as there is time for, so where b > a the share can exceed 1. `pipelined_s` is what
    could be saved so: the shorter of all the round's steps and its verification.

    prompts: the first so many are asked, or all the task has (counter `requests`). stride, prefetch: as in `ralmspec`.
    The others: see `IterativeOptions`.
    """

    prompts: int = 20
    stride: int = 3
    prefetch: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("prompts", "stride"):
            within(f"asynchronous-saving: {name}", getattr(self, name), 1)
        parameters = asdict(self)
        del parameters["prompts"]
        self.sides = [RalmSpec(**parameters, asynchronous=asynchronous) for asynchronous in (False, True)]

    def __call__(self, setting: RetrievalSetting, artifacts: Artifacts, progress: Progress) -> dict[str, Measure]:
        """`synchronous_s`, `asynchronous_s`, `ideal_s`, `pipelined_s` (of saving): means a request, with 95% intervals.
        `asynchronous_share`, `pipelined_share`: saved of the sum of either, with a bootstrap interval over requests.
        """
        self.sides[0].fit(setting.model, setting.knowledge, setting.validation, artifacts)
        chosen = setting.evaluation[: self.prompts]
        times, ideals = np.empty((2, len(chosen))), np.empty((2, len(chosen)))
        with _one_thread():
            for method in self.sides:
                method.open(setting.model, artifacts)
                method.generate(setting.model, chosen[0], setting.limit, NoPhases())  # warms up
            for number, prompt in enumerate(chosen):
                for side in (0, 1) if number % 2 else (1, 0):
                    seconds, record = _timed(self.sides[side], setting, prompt)
                    times[side, number] = seconds
                    if side == 0:
                        ideals[:, number] = _ideal(record)
                progress.update("requests", number + 1, len(chosen), "prompts")
        artifacts.values.update(requests=len(chosen))
        synchronous, asynchronous = times
        means = {
            "synchronous_s": synchronous,
            "asynchronous_s": asynchronous,
            "ideal_s": ideals[0],
            "pipelined_s": ideals[1],
        }
        result = {name: Measure(float(v.mean()), *(mean_interval(v) or (None, None))) for name, v in means.items()}
        saved = synchronous - asynchronous
        for name, ideal in zip(("asynchronous_share", "pipelined_share"), ideals, strict=True):
            if ideal.sum():
                interval = block_bootstrap([saved, ideal], lambda s, i: s / i, 1) or (None, None)
                result[name] = Measure(float(saved.sum() / ideal.sum()), *interval)
        return result


def _timed(method: RalmSpec, setting: RetrievalSetting, prompt: Sequence[int]) -> tuple[float, Record]:
    method.service.reset()
    started = perf_counter()
    method.generate(setting.model, prompt, setting.limit, NoPhases())
    return perf_counter() - started, method.service.record


def _ideal(record: Record) -> tuple[float, float]:
    """Seconds that a request could save, if one step overlaps and if all of a round may."""
    if not record.clean:
        return 0.0, 0.0
    a = (record.step_s[False] + record.guess_s) / record.steps[False]
    b = record.verification_s / record.rounds
    return record.clean.total() * min(a, b), sum(n * min(s * a, b) for s, n in record.clean.items())


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for torch and, where it is loaded, faiss; searches opened meanwhile have one, too."""
    faiss = sys.modules.get("faiss")
    threads = torch.get_num_threads(), faiss.omp_get_max_threads() if faiss else 0
    torch.set_num_threads(1)
    if faiss:
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads[0])
        if faiss:
            faiss.omp_set_num_threads(threads[1])
