"""What GAD's drafter learns from, its loss, and what it cannot be trained on."""

from __future__ import annotations

import random
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import MachineError, RequestError
from methods.aggressive import glancing, nar_training, trial
from methods.aggressive.gad import Gad, Nar
from methods.aggressive.markov import MarkovHead
from tests.methods.aggressive.test_gad import decode, logits_by_module, whole_logits

TINY = runpy.run_path(str(Path(__file__).parents[1] / "decoding/engine/model_types.py"))


@pytest.fixture
def drafter(tiny):
    model = tiny.make("marian", 0, dtype=torch.float32)
    return nar_training.new_drafter(model, nar_training.DrafterOptions(dropout=0.0)).eval()


def test_a_batch_hides_what_follows_a_prefix():
    pairs = [([5, 6], list(range(10, 19))), ([7], [11, 12])]
    seen = []
    for seed in range(60):
        batch = glancing.masked(pairs, np.random.default_rng(seed), 4, 99, 1, prefixes=2)
        assert len(batch.sources) == 2 and len(batch.inputs) == 4
        for row, inputs in enumerate(batch.inputs):
            target = pairs[row // 2][1]
            inputs = inputs[batch.real[row]].tolist()
            prefix, masks = inputs.index(99) - 1, inputs.count(99)
            seen.append((row // 2, prefix, masks))
            assert inputs == [1, *target[:prefix], *[99] * masks]
            hidden = batch.targets[row][batch.hidden[row]].tolist()
            assert hidden == target[prefix : prefix + masks]
            assert torch.equal(batch.hidden[row].nonzero()[:, 0], 1 + prefix + torch.arange(len(hidden)))
    assert {prefix for pair, prefix, _ in seen if pair == 0} == set(range(9))
    assert {prefix for pair, prefix, _ in seen if pair == 1} == {0, 1}
    assert {masks for *_, masks in seen} == {1, 2, 3, 4}
    begins, whole = (np.mean([one[at] == value for one in seen if one[0] == 0]) for at, value in ((1, 0), (2, 4)))
    assert 0.25 < begins < 0.55 and 0.5 < whole < 0.75  # 0.3 + 0.7 / 9, 0.5 + 0.5 / 4


def test_prefixes_of_one_source_are_learned_as_those_of_several(drafter):
    """The source is encoded once for both."""
    pairs = [([5, 6], list(range(3, 12))), ([7], [11, 12])]
    batch = glancing.masked(pairs, np.random.default_rng(0), 4, 40, 39, prefixes=3)
    alone = replace(batch, sources=batch.sources.repeat_interleave(3, 0),
                    source_real=batch.source_real.repeat_interleave(3, 0))  # fmt: skip
    loss, right = glancing.held_out_loss(drafter, batch, 40)
    expected, expected_right = glancing.held_out_loss(drafter, alone, 40)
    assert np.allclose(loss, expected, atol=1e-5) and right == expected_right


def test_glancing_shows_a_share_of_what_is_wrong(drafter):
    drafter.train()
    pairs = [([5, 6], list(range(start, start + 9))) for start in (3, 10, 20, 30)]
    batch = glancing.masked(pairs, np.random.default_rng(0), 8, 40, 39, empty=1.0, whole=1.0)
    found = whole_logits(drafter, batch)[..., :40].argmax(-1)
    wrong = ((found != batch.targets) & batch.hidden).sum(1)
    assert int(wrong.min()) > 0 and int(wrong.max()) > 4
    asked = []
    hook = drafter.model.decoder.register_forward_pre_hook(
        lambda module, args, kwargs: asked.append(kwargs["input_ids"]), with_kwargs=True
    )
    for share in (0.0, 0.5, 1.0):
        batch.shown = share
        asked.clear()
        glancing.glancing_loss(drafter, batch, 40)
        assert torch.equal(asked[0], batch.inputs)
        shown = asked[1] != batch.inputs
        assert torch.equal(shown.sum(1), (wrong * share).round().long())
        assert torch.equal(asked[1][shown], batch.targets[shown]) and not (shown & ~batch.hidden).any()
    hook.remove()


def test_right_tokens_before_the_first_wrong_one_are_counted(drafter, monkeypatch):
    batch = glancing.masked(
        [([5], [3, 4, 5, 6])] * 3, np.random.default_rng(0), 4, 40, 39, empty=1.0, whole=1.0
    )  # fmt: skip
    said = torch.tensor([[3, 4, 9, 6], [3, 4, 5, 6], [9, 4, 5, 6]]).flatten()
    answer = torch.nn.functional.one_hot(said, 41).float()
    monkeypatch.setattr(glancing, "logits_of", lambda *given: answer)
    assert glancing.held_out_loss(drafter, batch, 40)[1] == [2, 4, 0]


@pytest.mark.parametrize("rank", [None, 3])
def test_every_weight_learns_in_mixed_precision(drafter, rank):
    """What is cast without a gradient, to see what is wrong, must not be used again where one is wanted."""
    if rank is not None:
        drafter.markov = MarkovHead(41, rank)
    drafter.train()
    batch = glancing.masked([([5, 6], list(range(3, 12)))], np.random.default_rng(0), 8, 40, 39)
    batch.shown = 0.5
    with torch.autocast("cpu", torch.bfloat16):
        loss = glancing.glancing_loss(drafter, batch, 40)
    loss.backward()
    still = [name for name, one in drafter.named_parameters() if one.requires_grad and one.grad is None]
    assert not still


@pytest.mark.parametrize("own_encoder", [True, False])
def test_a_drafter_learns_what_it_is_trained_on(tiny, tmp_path, own_encoder):
    """Three sentences, by the first token of the source: soon learned, also behind a prefix."""
    model = tiny.make("marian", 0, torch.float32, init_std=0.1)
    wanted = {5: [10, 11, 12, 13, 14, 15, 0], 6: [20, 21, 22, 0], 7: [30, 31, 30, 32, 30, 0]}
    chosen = random.Random(0)
    sources = [[chosen.choice([5, 6, 7]), *chosen.choices(range(8, 39), k=3), 0] for _ in range(300)]
    pairs = [(source, wanted[source[0]]) for source in sources]
    method = Nar(block=4, steps=150, batch_ids=256, learning_rate=1e-2, dropout=0.0, trained_block=4,
                 own_encoder=own_encoder)  # fmt: skip
    artifacts = CellArtifacts(Cache(tmp_path))
    method.fit(model, (), pairs, artifacts)
    method.open(model, artifacts)
    found = decode(method, model, sources[:40], 12)
    assert sum(one.ids == wanted[source[0]] for one, source in zip(found, sources, strict=False)) > 35
    assert max(one.trace.iterations for one in found) <= 3
    sizes = method.counters()
    assert sizes["drafter_bytes"] == 4 * sizes["drafter_parameters"] > 0


def test_a_markov_head_learns_what_masks_cannot_know_of_each_other(tiny, tmp_path):
    """The source says nothing about which pair of tokens follows: the second one can only be told from the first."""
    model = tiny.make("marian", 0, torch.float32, init_std=0.1)
    firsts, source = [10, 11, 12, 13], [5, 6, 0]
    pairs = [(source, [first, first + 10, 0]) for first in random.Random(0).choices(firsts, k=300)]
    right = {}
    for rank in (None, 8):
        method = Nar(block=3, steps=150, batch_ids=256, learning_rate=1e-2, dropout=0.0, trained_block=3,
                     markov_rank=rank)  # fmt: skip
        artifacts = CellArtifacts(Cache(tmp_path))
        method.fit(model, (), pairs, artifacts)
        method.open(model, artifacts)
        logits = logits_by_module(method._drafting.module, source, [model.start_id], 3)[1]
        before, after = method._head
        found = logits + torch.from_numpy(before[firsts] @ after[:40].T)
        right[rank] = int((found.argmax(-1) == torch.tensor(firsts) + 10).sum())
    assert right == {None: 1, 8: 4}


def test_a_model_without_such_a_decoder_is_refused(tiny, tmp_path):
    with pytest.raises(RequestError, match="takes over the decoder of a model such as Marian or BART"):
        Gad().fit(tiny.make("t5", 0), (), [([5], [6])], CellArtifacts(Cache(tmp_path)))


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("fsmt", "TypeError"), ("nllb-moe", "AttributeError"), ("mvp", "ValueError"), ("two vocabularies", "IndexError")],
)
def test_a_model_whose_drafter_does_not_run_is_refused_before_training(tiny, tmp_path, kind, cause):
    if kind == "two vocabularies":
        apart = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 44, "tie_word_embeddings": False}
        model = replace(tiny.make("marian", 0, torch.float32, **apart), vocabulary_size=44)
    else:
        model = tiny.Model(TINY["tiny_module"](kind), 2, (2,), 64, vocabulary_size=TINY["VOCABULARY"])
    refused = rf"a drafter of tiny, a \w+, does not run \({cause}: .*such as Marian"
    with pytest.raises(RequestError, match=refused) as raised:
        Gad().fit(model, (), [([5], [6])], CellArtifacts(Cache(tmp_path)))
    assert "\n" not in str(raised.value) and not list(tmp_path.rglob("*.partial/*"))


@pytest.mark.parametrize("error", [MachineError("no device"), MemoryError(), torch.OutOfMemoryError()])
def test_a_lack_of_memory_or_of_a_device_is_not_the_models_fault(tiny, tmp_path, monkeypatch, error):
    def engine_of(_):
        raise error

    monkeypatch.setattr(trial, "engine_of", engine_of)
    with pytest.raises(type(error)) as raised:
        Gad().fit(tiny.make("marian", 0), (), [([5], [6])], CellArtifacts(Cache(tmp_path)))
    assert raised.value is error


def test_a_drafter_that_the_cache_has_is_not_tried_again(tiny, tmp_path, monkeypatch):
    model, pairs = tiny.make("marian", 0, torch.float32), [([5, 0], [6, 7, 0]), ([9, 0], [10, 0])] * 4
    method, artifacts = Nar(block=2, trained_block=2, steps=1, batch_ids=64), CellArtifacts(Cache(tmp_path))
    method.fit(model, (), pairs, artifacts)
    tried = []
    monkeypatch.setattr(trial, "new_drafter", lambda *_: tried.append(1))
    method.fit(model, (), pairs, artifacts)
    assert not tried


def test_pairs_that_are_too_long_or_have_an_empty_target_are_left_out(tiny, tmp_path):
    model = tiny.make("marian", 0, torch.float32)
    method, artifacts = Nar(block=2, trained_block=2, steps=3, batch_ids=64), CellArtifacts(Cache(tmp_path))
    method.fit(model, (), [([5, 0], [6, 7, 0]), ([8, 0], []), ([9, 0], [10, 0])] * 4, artifacts)
    for pair in (([5], []), ([5] * 20, [6] * 20)):
        with pytest.raises(RequestError, match="no training pair fits the drafter"):
            Nar(block=2, trained_block=2, batch_ids=16).fit(model, (), [pair], artifacts)


@pytest.mark.parametrize("wrong", [{"width": 18}, {"width": 32, "own_encoder": False}])
def test_a_width_that_does_not_fit_is_refused(tiny, tmp_path, wrong):
    with pytest.raises(RequestError, match="give a multiple of the 4 heads, and own_encoder=true"):
        Gad(**wrong).fit(tiny.make("marian", 0), (), [([5], [6])], CellArtifacts(Cache(tmp_path)))
