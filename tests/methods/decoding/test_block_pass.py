"""A pass over a block and its single steps: the same words, from the same place, timed against each other."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import torch

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts.tasks import DecodingSetting
from harness.measure.timed import passes
from methods.decoding.block_pass import BlockPass
from tests.harness.made import ratio_in, timed_once

from ..generation_models import make


@pytest.fixture
def artifacts(tmp_path):
    return CellArtifacts(Cache(tmp_path))


def opened(kind, artifacts, **options):
    model = make(kind, 0, torch.float32)
    rng = np.random.default_rng(0)
    longer = 24 if kind == "gpt2" else 0
    prompts = [rng.integers(3, 39, size).tolist() for size in (2, *(longer + size for size in (9, 12, 15, 20)))]
    on = DecodingSetting(hashes={}, model=model, evaluation=prompts, timed=prompts, sample=2, limit=4)
    found = BlockPass(**options)
    found.fit(on, artifacts, Progress(quiet=True))
    found.open(on, CellArtifacts(artifacts.cache, **artifacts.manifest()))
    return found, model, prompts


@pytest.mark.parametrize("engine", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["gpt2", "bart", "t5"])
def test_a_pass_and_its_steps_give_the_same_words_again_and_again(kind, engine, artifacts):
    found, _, _ = opened(kind, artifacts, tokens=5, engine=engine)
    for given in found.inputs(np.arange(4)):
        first = found.baseline(given)
        assert len(first) == 5 and first == found.method(given) == found.method(given) == found.baseline(given)


def test_the_words_are_those_of_the_module(artifacts):
    found, model, prompts = opened("gpt2", artifacts, tokens=4)
    for given, prompt in zip(found.inputs(np.arange(4)), prompts[1:], strict=True):
        assert given[1] == prompt[-32:-28]
        with torch.inference_mode():
            expected = model.module(torch.tensor([prompt])).logits[0, -32:-28].argmax(-1).tolist()
        assert found.method(given) == expected
        assert found.answers(expected) == [[word] for word in expected]


def test_ratios_hang_together(artifacts):
    found, _, _ = opened("gpt2", artifacts, tokens=3, prompts=2)
    pool, sample = found.items()
    assert (pool, sample) == (4, 2)
    _, stored = timed_once(found, passes(pool, sample, 4, 0, 1))
    of = {name: ratio_in(asdict(one), stored) for name, one in found.ratios.items()}
    assert of["pass_in_steps"] == pytest.approx(of["pass_ms"] / of["step_ms"])
    assert artifacts.values["baseline_bytes_read"] == 3 * artifacts.values["bytes_read"] > 0


def test_a_block_needs_a_longer_prompt(artifacts):
    with pytest.raises(RequestError, match="no prompt has more than 44 tokens"):
        opened("gpt2", artifacts, tokens=44)
    with pytest.raises(RequestError, match="no prompt has more than 20 tokens"):
        opened("bart", artifacts, tokens=20)
