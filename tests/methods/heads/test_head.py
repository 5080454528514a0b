"""Greedy decoding with a screened output layer: with `exact` it is greedy decoding, whatever the screen finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from harness.plan.registry import Registry
from methods.aggressive.iad import InputGuided
from methods.decoding.engine.engines import shared_engine

PROMPTS = [[5, 7, 9], [11], [3, 4, 5, 6, 7, 8, 9]]
SHORT = {"screen": "shortlist", "knobs": {"common": 12}}
SVD = {"screen": "svd-softmax", "knobs": {"width": 4, "refined": 4, "weighted": True, "numbers": "int8"}}
INT8 = {"screen": "quantized", "knobs": {"refined": 1}}
PQ = {"screen": "pq", "knobs": {"width": 2, "refined": 3}}
ALL = {"screen": "shortlist", "knobs": {"common": 40}}
TWO = {"screen": "two-sided", "knobs": {"clusters": 4, "probes": 1, "cluster_words": 4, "row_probes": 2}}


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch):
    for name, tokens in (("WINDOW", 24), ("BEGINNING", 6), ("WRITTEN", 12)):
        monkeypatch.setattr(f"methods.heads.training.{name}", tokens)


def decoded(name, model, folder, limit=20, prompts=PROMPTS, **parameters):
    """Outputs of a method fitted in one object and opened in another, and the latter."""
    target = Registry().resolve("method", name)
    if name == "head":
        parameters = {"contexts": 480, "written": 60, **parameters}
    artifacts = CellArtifacts(Cache(folder))
    reference = [np.random.default_rng(0).integers(3, 40, 400) for _ in range(4)]
    target(**parameters).fit(model, reference, [], artifacts)
    method = target(**parameters)
    method.open(model, CellArtifacts(artifacts.cache, **artifacts.manifest()))
    return method.decode(model, prompts, limit, NoPhases()), method


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("block", "screen", "dtype", "engine"),
    [
        (2, SHORT, torch.float32, "float32"), (5, SHORT, torch.float32, "float32"), (8, TWO, torch.float32, "float32"),
        (5, SHORT, torch.bfloat16, "float32"), (8, TWO, torch.bfloat16, "float32"), (5, SHORT, torch.float32, "int8"),
        (5, SVD, torch.float32, "float32"), (5, INT8, torch.float32, "float32"), (5, PQ, torch.float32, "float32"),
        (12, ALL, torch.float32, "float32"), (8, {**TWO, "copied": 4}, torch.float32, "float32"),
        (8, {**TWO, "copied": 4}, torch.bfloat16, "float32"),
    ],
)  # fmt: skip
def test_verified_outputs_are_those_of_greedy_decoding(tiny, tmp_path, seed, block, screen, dtype, engine):
    model = tiny.make("gpt2", seed, dtype)
    expected, _ = decoded("greedy", model, tmp_path, engine=engine)
    found, method = decoded("head", model, tmp_path, block=block, engine=engine, **screen)
    for prompt, one, other in zip(PROMPTS, found, expected, strict=True):
        if one.ids != other.ids:
            assert method.gap(model, prompt, one.ids, other.ids, 20) <= method.near_tie(model)
        assert sum(one.trace.accepted) == len(one.ids)
        assert max(one.trace.accepted) <= block
        assert len(one.trace.drafts) == one.trace.iterations
    if screen is ALL:
        assert max(max(one.trace.accepted) for one in found) > 8


def guessing(expected, wrong):
    """A drafter that knows how each output goes on. wrong: every so many of its words are; 0: none."""

    class Guesses(InputGuided):
        def __init__(self, sources, ends, **_):
            self.matches = [
                [(word + (wrong > 0 and place % wrong == 0)) % 40 for place, word in enumerate(one.ids)]
                for one in expected
            ]

        def draft(self, outputs, most):
            return [self.matches[output][: min(count, 4)] for output, count in zip(outputs, most, strict=True)]

        def accept(self, output, tokens, drafted):
            self.matches[output] = self.matches[output][len(tokens) :]

    return Guesses


def passes_of(outputs):
    return sum(one.trace.counters["passes"] for one in outputs)


@pytest.mark.parametrize("few", [20, 2])
@pytest.mark.parametrize("wrong", [0, 3, 1])
@pytest.mark.parametrize("screen", [ALL, SHORT])
def test_words_read_along_save_passes_and_change_no_output(tiny, tmp_path, monkeypatch, screen, wrong, few):
    """few: tokens that the compiled step takes; more are a block."""
    model = tiny.make("gpt2", 0, torch.float32)
    shared_engine(model).few = few
    expected, _ = decoded("greedy", model, tmp_path)
    plain, _ = decoded("head", model, tmp_path, **screen)
    monkeypatch.setattr("methods.heads.head.InputGuided", guessing(expected, wrong))
    found, _ = decoded("head", model, tmp_path, copied=4, **screen)
    assert [one.ids for one in found] == [one.ids for one in expected]
    if screen is ALL and wrong == 1:
        assert passes_of(found) == passes_of(plain)
    elif screen is ALL:
        assert passes_of(found) < 0.75 * passes_of(plain)
    else:
        assert passes_of(found) <= passes_of(plain)


@pytest.mark.parametrize("wrong", [0, 3, 1])
def test_rows_that_end_among_words_read_along(tiny, tmp_path, monkeypatch, wrong):
    made = tiny.make("gpt2", 0, torch.float32)
    whole, _ = decoded("greedy", made, tmp_path / "whole")
    end = whole[0].ids[6]
    model = tiny.Model(made.module, made.start_id, (end,), 64, "causal")
    expected, _ = decoded("greedy", model, tmp_path)
    assert len(expected[0].ids) <= 7 < max(len(one.ids) for one in expected)

    class BeyondTheEnd(guessing(whole, wrong)):
        def accept(self, output, tokens, drafted):
            assert end not in tokens  # nothing is asked of a row that has ended
            super().accept(output, tokens, drafted)

    for guesses in (guessing(expected, wrong), BeyondTheEnd, InputGuided):
        monkeypatch.setattr("methods.heads.head.InputGuided", guesses)
        found, _ = decoded("head", model, tmp_path, copied=4, **ALL)
        assert [one.ids for one in found] == [one.ids for one in expected]


@pytest.mark.parametrize("wrong", [0, 3])
def test_passes_with_words_read_along_are_counted_as_they_were_made(tiny, tmp_path, monkeypatch, wrong):
    model = tiny.make("gpt2", 0, torch.float32)
    expected, _ = decoded("greedy", model, tmp_path, prompts=PROMPTS[:1])
    monkeypatch.setattr("methods.heads.head.InputGuided", guessing(expected, wrong))
    [one], method = decoded("head", model, tmp_path, prompts=PROMPTS[:1], copied=4, **ALL)
    layer, weights = 40 * 16 * 4, method.engine_of(model).weights
    if not wrong:
        assert one.trace.accepted == [8, 8, 4]
        assert passes_of([one]) == 3 + 3 + 2  # what is pending; a word and four read along; a word and what is left
    drafted = sum(map(len, one.trace.drafts))  # each of them is a choice of the screen, also where a guess was wrong
    read = passes_of([one]) * (weights.each_pass - layer) + drafted * 40 * (16 + 1) * 4 + one.trace.iterations * layer
    assert one.trace.counters["bytes_read"] == pytest.approx(read)


def test_words_that_no_screen_has_are_written_by_the_exact_layer(tiny, tmp_path):
    """A shortlist of one word."""
    model = tiny.make("gpt2", 3, torch.float32)
    found, _ = decoded("head", model, tmp_path, screen="shortlist", knobs={"common": 1})
    assert len({token for one in found for token in one.ids}) > 1


@pytest.mark.parametrize("seed", range(2))
def test_without_verifying_a_screen_of_all_words_is_greedy_decoding(tiny, tmp_path, seed):
    model = tiny.make("gpt2", seed, torch.float32)
    expected, _ = decoded("greedy", model, tmp_path)
    found, method = decoded("head", model, tmp_path, exact=False, **ALL)
    assert [one.ids for one in found] == [one.ids for one in expected]
    assert passes_of(found) == pytest.approx(20)
    assert method.gap(model, PROMPTS[0], [1], [2], 1) is None
    few, _ = decoded("head", model, tmp_path, exact=False, screen="shortlist", knobs={"common": 1})
    assert len({token for one in few for token in one.ids}) == 1


def test_a_block_is_read_as_bodies_and_screens_and_one_layer(tiny, tmp_path):
    model = tiny.make("gpt2", 0, torch.float32)
    [one, *_], method = decoded("head", model, tmp_path, block=4, limit=12, **ALL)
    layer, weights = 40 * 16 * 4, method.engine_of(model).weights
    assert one.trace.accepted == [4, 4, 4]
    screens = 40 * (16 + 1) * 4
    bodies = 12 * (weights.each_pass - layer)
    assert one.trace.counters["bytes_read"] * len(PROMPTS) == pytest.approx(bodies + 9 * screens + 3 * layer)


def test_rotary_positions_windows_and_shared_keys(tiny, tmp_path, monkeypatch):
    """Gemma-3 with a window shorter than the prompts."""
    kind = transformers.Gemma3TextConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=4,
        num_key_value_heads=2, sliding_window=4, layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    for seed in range(4):
        torch.manual_seed(seed)
        model = tiny.Model(transformers.Gemma3ForCausalLM(kind).eval(), 1, (2,), 64, "causal")
        expected, _ = decoded("greedy", model, tmp_path / str(seed))
        monkeypatch.setattr("methods.heads.head.InputGuided", guessing(expected, 3))
        for screen in (SHORT, {**TWO, "copied": 4}):
            found, _ = decoded("head", model, tmp_path / str(seed), **screen)
            assert [one.ids for one in found] == [one.ids for one in expected]


def test_text_too_short_to_learn_from_is_refused(tiny, tmp_path):
    method = Registry().resolve("method", "head")(**ALL)
    with pytest.raises(RequestError, match="no document of 24 tokens"):
        method.fit(tiny.make("gpt2", 0, torch.float32), [np.arange(3, 20)], [], CellArtifacts(Cache(tmp_path)))


def test_what_cannot_be_screened_is_refused_in_a_line(tiny, tmp_path):
    resolve = Registry().resolve
    with pytest.raises(RequestError, match="finds no candidate words"):
        resolve("method", "head")(screen="exact")
    with pytest.raises(RequestError, match="common"):
        resolve("method", "head")(screen="shortlist", knobs={"common": 0})
    for unfit in ({"exact": False}, {"block": 2}):
        with pytest.raises(RequestError, match="copied=4 needs exact=true"):
            resolve("method", "head")(copied=4, **unfit)
    with pytest.raises(RequestError, match="lean engine"):
        decoded("head", tiny.make("gpt2", 0, torch.float64), tmp_path, **ALL)
    model = tiny.make("gpt2", 0, torch.float32)
    model.module.generation_config.suppress_tokens = [7]
    with pytest.raises(RequestError, match=r"set method\.exact"):
        decoded("head", model, tmp_path, exact=False, **ALL)
    assert all(7 not in one.ids for one in decoded("head", model, tmp_path, **ALL)[0])
