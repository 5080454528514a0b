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


def decoded(name, model, folder, limit=20, **parameters):
    """Outputs of a method fitted in one object and opened in another, and the latter."""
    target = Registry().resolve("method", name)
    if name == "head":
        parameters = {"contexts": 480, "written": 60, **parameters}
    artifacts = CellArtifacts(Cache(folder))
    reference = [np.random.default_rng(0).integers(3, 40, 400) for _ in range(4)]
    target(**parameters).fit(model, reference, [], artifacts)
    method = target(**parameters)
    method.open(model, CellArtifacts(artifacts.cache, **artifacts.manifest()))
    return method.decode(model, PROMPTS, limit, NoPhases()), method


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


@pytest.mark.parametrize("wrong", [0, 3, 1])
@pytest.mark.parametrize("screen", [ALL, SHORT])
def test_words_read_along_save_passes_and_change_no_output(tiny, tmp_path, monkeypatch, screen, wrong):
    """wrong: every so many of the words that are read along are; 0: none."""
    model = tiny.make("gpt2", 0, torch.float32)
    expected, _ = decoded("greedy", model, tmp_path)
    plain, _ = decoded("head", model, tmp_path, **screen)

    class Guesses(InputGuided):
        """Knows how each output goes on."""

        def __init__(self, sources, ends, **_):
            self.matches = [
                [(word + (wrong > 0 and place % wrong == 0)) % 40 for place, word in enumerate(one.ids)]
                for one in expected
            ]

        def draft(self, outputs, most):
            return [self.matches[output][: min(count, 4)] for output, count in zip(outputs, most, strict=True)]

        def accept(self, output, tokens, drafted):
            self.matches[output] = self.matches[output][len(tokens) :]

    monkeypatch.setattr("methods.heads.head.InputGuided", Guesses)
    found, method = decoded("head", model, tmp_path, copied=4, **screen)
    assert [one.ids for one in found] == [one.ids for one in expected]
    passes, alone = (sum(one.trace.counters["passes"] for one in outputs) for outputs in (found, plain))
    if screen is SHORT or wrong == 1:
        assert passes <= alone
        return
    assert passes < 0.75 * alone
    if not wrong:
        layer, weights = 40 * 16 * 4, method.engine_of(model).weights
        blocks = max(one.trace.iterations for one in found)
        drafted = sum(len(draft) for one in found for draft in one.trace.drafts) / len(found)
        read = passes * (weights.each_pass - layer) + drafted * 40 * (16 + 1) * 4 + blocks * layer
        assert found[0].trace.counters["bytes_read"] * len(found) == pytest.approx(read)


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


def test_rotary_positions_windows_and_shared_keys(tiny, tmp_path):
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
        found, _ = decoded("head", model, tmp_path / str(seed), **SHORT)
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
    with pytest.raises(RequestError, match="needs exact=true"):
        resolve("method", "head")(exact=False, copied=4)
    with pytest.raises(RequestError, match="lean engine"):
        decoded("head", tiny.make("gpt2", 0, torch.float64), tmp_path, **ALL)
    model = tiny.make("gpt2", 0, torch.float32)
    model.module.generation_config.suppress_tokens = [7]
    with pytest.raises(RequestError, match=r"set method\.exact"):
        decoded("head", model, tmp_path, exact=False, **ALL)
    assert all(7 not in one.ids for one in decoded("head", model, tmp_path, **ALL)[0])
