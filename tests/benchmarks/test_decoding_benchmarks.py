"""Our decoders against `generate` of transformers and against each other, one sentence at a time, one thread.

The model has the shape of the GEC models (6 + 6 layers) and copies its source by construction, so that outputs are
what a trained corrector's are: mostly the source. Ratios are of interleaved rounds in one process; on a busy machine
the bounds are loose, DECODING_BENCHMARK=strict asserts what the project states.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
import torch

from harness.phases import NoPhases
from methods.aggressive.iad import Iad
from methods.decoding.beam import Beam
from methods.decoding.greedy import Greedy
from methods.decoding.peers import TransformersBeam, TransformersGreedy, TransformersPromptLookup

STRICT = os.environ.get("DECODING_BENCHMARK") == "strict"
ROUNDS, SENTENCES, WORDS, VOCABULARY = (15, 6, 26, 8000) if STRICT else (5, 2, 26, 8000)
MODELS = Path(__file__).parents[1] / "methods" / "generation_models.py"


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model(**changes):
    spec = importlib.util.spec_from_file_location("generation_models_of_benchmarks", MODELS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    shape = {"vocabulary": VOCABULARY, "part": 84, "layers": 6, "places": 64}
    return module.copier(0, 0.0, torch.float32, **{"replaced": VOCABULARY // 20, **shape, **changes})


@pytest.fixture(scope="module")
def corrector():
    """Replaces one token in twenty: an edit ratio as in grammatical error correction."""
    return model()


@pytest.fixture(scope="module")
def stranger():
    """Writes nothing that its source holds."""
    return model(replaced=0, shift=VOCABULARY // 2)


def sources(highest=VOCABULARY):
    chosen = random.Random(0)
    return [[*(chosen.randrange(3, highest) for _ in range(WORDS)), 2] for _ in range(SENTENCES)]


def ratio(benchmark, model, slow, fast, batches):
    """Seconds of `slow` over seconds of `fast`, the median of interleaved rounds."""
    pairs = []
    for _ in range(ROUNDS + 1):  # the first one warms up
        seconds = []
        for method in (slow, fast):
            started = perf_counter()
            for batch in batches:
                method.decode(model, batch, 60, NoPhases())
            seconds.append(perf_counter() - started)
        pairs.append(seconds)
    pairs = pairs[1:]
    benchmark.pedantic(lambda: fast.decode(model, batches[0], 60, NoPhases()), rounds=1)
    result = median(theirs / ours for theirs, ours in pairs)
    benchmark.extra_info.update(ratio=result, ms=1e3 * median(ours for _, ours in pairs) / sum(map(len, batches)))
    return result


def one_by_one(highest=VOCABULARY):
    return [[source] for source in sources(highest)]


def test_greedy_keeps_up_with_transformers(benchmark, corrector):
    assert ratio(benchmark, corrector, TransformersGreedy(), Greedy(), one_by_one()) > 1


def test_beam_keeps_up_with_transformers(benchmark, corrector):
    assert ratio(benchmark, corrector, TransformersBeam(), Beam(), one_by_one()) > 1


def test_batched_greedy_keeps_up_with_transformers(benchmark, corrector):
    assert ratio(benchmark, corrector, TransformersGreedy(), Greedy(), [sources()]) > (1 if STRICT else 0.8)


def test_iad_is_ahead_of_prompt_lookup_where_the_output_is_like_the_source(benchmark, corrector):
    assert ratio(benchmark, corrector, TransformersPromptLookup(), Iad(), one_by_one()) > 1


def test_iad_is_ahead_of_beam_search_where_the_output_is_like_the_source(benchmark, corrector):
    assert ratio(benchmark, corrector, Beam(), Iad(), one_by_one()) > 2


def test_iad_is_as_fast_as_greedy_where_nothing_is_shared(benchmark, stranger):
    batches = one_by_one(VOCABULARY // 2)
    [decoded] = Iad().decode(stranger, batches[0], 60, NoPhases())
    assert not set(decoded.ids[:-1]) & set(batches[0][0])
    assert ratio(benchmark, stranger, Greedy(), Iad(), batches) > (0.95 if STRICT else 0.8)


def test_iad_takes_no_more_memory_than_greedy():
    """Peak resident memory of a process of its own that decodes a batch of long sources."""
    peaks = {name: _peak(name) for name in ("Greedy", "Iad")}
    assert peaks["Iad"] <= 1.1 * peaks["Greedy"], peaks


def _peak(name):
    code = f"""
import importlib.util, resource, sys, torch
from harness.phases import NoPhases
from methods.aggressive.iad import Iad
from methods.decoding.greedy import Greedy
torch.set_num_threads(1)
spec = importlib.util.spec_from_file_location("models", {str(MODELS)!r})
models = importlib.util.module_from_spec(spec); sys.modules["models"] = models; spec.loader.exec_module(models)
model = models.copier(0, 0.0, torch.float32, replaced=100, vocabulary=8000, part=40, layers=2, places=256)
sources = [[*range(3 + n, 103 + n), 2] for n in range(4)]
{name}().decode(model, [[3, 2]], 4, NoPhases())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{name}().decode(model, sources, 110, NoPhases())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, before)
"""
    growth, before = map(
        int, subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    return growth + before
