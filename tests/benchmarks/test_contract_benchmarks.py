"""A group for each contract: the baseline and methods side by side, over one small input.

`extra_info` has what a regression would change: the ratio of the baseline's time to the method's, whose rounds are
interleaved so that it holds on a busy machine, and counters that do not depend on the machine. `pytest-benchmark
compare` shows both over revisions. The bounds are loose; the recipes say how fast a method is.
"""

from __future__ import annotations

import random
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numba
import numpy as np
import pytest
import torch

from harness.common.cache import Cache, CellArtifacts
from harness.common.phases import NoPhases
from harness.common.threads import one_thread
from harness.plan.registry import Registry, construct
from tasks.models.pretrained.language import CausalLM
from tests.benchmarks.test_ralmspec_benchmarks import SENTENCE, model, word  # noqa: F401 - a fixture
from tests.benchmarks.test_softmax_benchmarks import structured
from tests.methods.knnlm.conftest import save_gpt2

ROUNDS = 5
GENERATION_MODELS = Path(__file__).parents[1] / "methods" / "generation_models.py"
KNN = {"lambda": 0.3, "temperature": 20.0, "k": 256}
PASSAGES = {"retriever": "exact", "dimension": 64, "sample": 1000, "passage_tokens": 48, "query_tokens": 32}

Totals = dict[str, float]


@dataclass
class Workload:
    """A contract's input. answer(method) gives the totals of its counters; made holds the opened methods by name."""

    open: Callable[[str, dict[str, Any]], Any]
    answer: Callable[[Any], Totals]
    made: dict[str, Any] = field(default_factory=dict)

    def method(self, name: str, **parameters: Any) -> Any:
        if name not in self.made:
            self.made[name] = self.open(name, parameters)
        return self.made[name]


def named(name: str, parameters: dict[str, Any]) -> Any:
    return construct(Registry().resolve("method", name), parameters)


def summed(traces: list[Totals]) -> Totals:
    return {name: sum(trace.get(name, 0) for trace in traces) for name in {name for trace in traces for name in trace}}


@pytest.fixture(scope="module", autouse=True)
def on_one_thread():
    """Of torch, BLAS and numba: ratios must not depend on how many cores there are."""
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    with one_thread():
        yield
    numba.set_num_threads(threads)


@pytest.fixture(scope="module")
def token_scoring(tmp_path_factory) -> Workload:
    """A random GPT-2 over phrases that come again, 20,000 tokens of them as reference text."""
    folder = tmp_path_factory.mktemp("scoring")
    lm = CausalLM.load(str(save_gpt2(folder / "model", width=64, words=1000)), window=32, stride=16)
    phrases, rng = np.random.default_rng(0).integers(0, 1000, (250, 8)), np.random.default_rng(1)
    reference, validation, evaluation = (
        [phrases[rng.integers(len(phrases), size=n // 8)].reshape(-1) for n in lengths]
        for lengths in ([20_000], [400], [64] * 8)
    )
    artifacts = CellArtifacts(Cache(folder / "cache"))

    def opened(name: str, parameters: dict[str, Any]) -> Any:
        method = named(name, parameters)
        method.fit(lm, reference, validation, artifacts)
        method.open(lm, artifacts)
        return method

    return Workload(opened, lambda method: summed([a.counters for a in method.score(lm, evaluation, NoPhases())]))


@pytest.fixture(scope="module")
def softmax_screening(tmp_path_factory) -> Workload:
    """A layer of 10,000 words and width 200, 500 contexts."""
    layer, contexts, test = structured(10_000, 200, 5000)
    artifacts = CellArtifacts(Cache(tmp_path_factory.mktemp("softmax")))

    def opened(name: str, parameters: dict[str, Any]) -> Any:
        method = named(name, parameters)
        method.fit(layer, contexts, np.zeros(len(contexts), np.int64), artifacts)
        method.open(layer, artifacts)
        return method

    def answer(method: Any) -> Totals:
        found = sum(int(method.topk(context, 5).ids.sum()) for context in test[:500])
        return {"multiply_adds": method.counters()["multiply_adds"], "sum_of_ids": found}

    return Workload(opened, answer)


@pytest.fixture(scope="module")
def sequence_decoding(tmp_path_factory) -> Workload:
    """A BART of 3 + 3 layers that copies its source but for one token in twenty, 3 sources of 26 tokens."""
    copier, words = runpy.run_path(str(GENERATION_MODELS))["copier"], 4000
    corrector = copier(0, 0.0, torch.float32, vocabulary=words, part=84, layers=3, replaced=words // 20, places=64)
    chosen = random.Random(0)
    sources = [[*(chosen.randrange(3, words) for _ in range(26)), 2] for _ in range(3)]
    artifacts = CellArtifacts(Cache(tmp_path_factory.mktemp("decoding")))

    def opened(name: str, parameters: dict[str, Any]) -> Any:
        method = named(name, parameters)
        method.fit(corrector, (), (), artifacts)
        method.open(corrector, artifacts)
        return method

    def answer(method: Any) -> Totals:
        outputs = [method.decode(corrector, [source], 60, NoPhases())[0] for source in sources]
        return {"tokens": sum(len(one.ids) for one in outputs), "iterations": sum(o.trace.iterations for o in outputs)}

    return Workload(opened, answer)


@pytest.fixture(scope="module")
def retrieval_generation(tmp_path_factory, model) -> Workload:  # noqa: F811
    """A random GPT-2 that continues 2 prompts, with a passage of 4,000 found every 4 tokens."""
    rng, share = np.random.default_rng(0), 1 / np.arange(1, 4001)
    passages = [" ".join(map(word, row)) for row in rng.choice(4000, (4000, SENTENCE), p=share / share.sum())]
    artifacts = CellArtifacts(Cache(tmp_path_factory.mktemp("passages")))

    def opened(name: str, parameters: dict[str, Any]) -> Any:
        method = named(name, parameters)
        method.fit(model, passages, [], artifacts)
        return method

    def answer(method: Any) -> Totals:
        outputs = [method.generate(model, [*range(5 + n, 15 + n)], 32, NoPhases()) for n in range(2)]
        return summed([{"tokens": len(one.ids)} | one.trace.counters for one in outputs])

    return Workload(opened, answer)


# contract, the baseline's name and parameters, method, parameters, least ratio
SIDES = [
    ("token-scoring", ("lm", {}), "lm", {}, 0.5),
    ("token-scoring", ("knnlm", KNN), "knnlm", KNN, 0.5),
    ("token-scoring", ("knnlm", KNN), "retomaton", {**KNN, "tau": 4, "clusters": 200, "streams": 8}, 0.2),
    ("token-scoring", ("lm", {}), "infinigram-lm", {}, 0.02),
    ("softmax-screening", ("exact", {}), "exact", {}, 0.5),
    ("softmax-screening", ("exact", {}), "l2s", {"budget": 100}, 5.0),
    ("softmax-screening", ("exact", {}), "svd-softmax", {}, 0.3),
    ("sequence-decoding", ("greedy", {}), "greedy", {}, 0.5),
    ("sequence-decoding", ("greedy", {}), "beam", {}, 0.1),
    ("sequence-decoding", ("greedy", {}), "iad", {}, 0.7),
    ("retrieval-generation", ("ralmseq", PASSAGES), "ralmseq", PASSAGES, 0.5),
    ("retrieval-generation", ("ralmseq", PASSAGES), "ralmspec", {**PASSAGES, "prefetch": 20, "scheduler": "os3"}, 0.5),
]  # fmt: skip


def of_contract(contract: str) -> Any:
    """Its group, and its sides as parameters."""
    mine = [pytest.param(*side[1:], id=side[2]) for side in SIDES if side[0] == contract]
    parametrised = pytest.mark.parametrize(("baseline", "name", "parameters", "least"), mine)
    return lambda test: pytest.mark.benchmark(group=contract)(parametrised(test))


def compared(benchmark, workload: Workload, baseline: tuple[str, dict[str, Any]], name: str, parameters, least) -> None:
    base, method = workload.method(baseline[0], **baseline[1]), workload.method(name, **parameters)
    totals = workload.answer(method)  # warms up
    workload.answer(base)
    ratios = []
    for number in range(ROUNDS):
        seconds = {}
        for side in ("base", "method") if number % 2 else ("method", "base"):
            started = perf_counter()
            workload.answer(base if side == "base" else method)
            seconds[side] = perf_counter() - started
        ratios.append(seconds["base"] / seconds["method"])
    again = benchmark.pedantic(workload.answer, args=(method,), rounds=ROUNDS)
    benchmark.extra_info.update(baseline=baseline[0], ratio=median(ratios), **totals)
    assert totals and again == totals, "these counters do not depend on the run"
    assert median(ratios) >= least


@of_contract("token-scoring")
def test_token_scoring(benchmark, token_scoring, baseline, name, parameters, least):
    compared(benchmark, token_scoring, baseline, name, parameters, least)


@of_contract("softmax-screening")
def test_softmax_screening(benchmark, softmax_screening, baseline, name, parameters, least):
    compared(benchmark, softmax_screening, baseline, name, parameters, least)


@of_contract("sequence-decoding")
def test_sequence_decoding(benchmark, sequence_decoding, baseline, name, parameters, least):
    compared(benchmark, sequence_decoding, baseline, name, parameters, least)


@of_contract("retrieval-generation")
def test_retrieval_generation(benchmark, retrieval_generation, baseline, name, parameters, least):
    compared(benchmark, retrieval_generation, baseline, name, parameters, least)
