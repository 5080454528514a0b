"""The compiled step against the same engine's own layers, and rounded weights against the module that has them."""

from __future__ import annotations

import math
import random
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MBartConfig, MBartForConditionalGeneration

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from harness.contracts.answers import near_tie
from methods.aggressive.iad import Iad
from methods.decoding.drafting.decoder import gap_of_best
from methods.decoding.engine import transformer_session
from methods.decoding.engine.causal import Rotations
from methods.decoding.engine.compiled import gathered
from methods.decoding.engine.dense import FEW, Dense, rounded
from methods.decoding.engine.engines import engine_of, with_rounded_decoder
from methods.decoding.engine.kernels import _attend_in_threads as in_threads
from methods.decoding.engine.kernels import attend_to_cache
from methods.decoding.engine.selection import largest
from methods.decoding.search.beam import Beam
from methods.decoding.search.greedy import Greedy
from tasks.models.pretrained.generation import TextGenerator

KINDS = ["marian", "bart", "mbart"]
CAUSAL = ["gemma3_text", "gpt2", "llama", "mistral", "qwen2", "qwen3"]
TYPES = runpy.run_path(str(Path(__file__).with_name("model_types.py")))
SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12]]


def made(tiny, kind, seed, **changes):
    """A random model in float32, each with another activation; mBART normalises before its layers. Of the causal types
    Gemma and Mistral have a window of six positions, and all but GPT-2 share keys."""
    if kind in CAUSAL:
        return TextGenerator(TYPES["tiny_module"](kind, seed), name="tiny", hash_of_weights="none")
    if kind == "marian":
        changes.setdefault("activation_function", "relu")
    model = tiny.make("bart" if kind == "mbart" else kind, seed, torch.float32, **changes)
    if kind == "mbart":
        torch.manual_seed(seed)
        config = model.module.config.to_dict() | {"activation_function": "silu"}
        config.pop("model_type")
        model.module = MBartForConditionalGeneration(MBartConfig(**config)).eval()
    return model


def steps(session, seed):
    """Logits along a walk: single tokens, blocks, rows of different lengths, crops, a choice of rows."""
    chosen = random.Random(seed)
    seen = [session.logits(session.advance(session.first)).clone()]
    for turn in range(8):
        counts = [chosen.randrange(1, 3) if turn % 2 else 1 for _ in session.lengths]
        tokens = [[chosen.randrange(3, 38) for _ in range(count)] for count in counts]
        seen.append(session.logits(session.advance(tokens, last=bool(turn % 3))).clone())
        if turn % 2:
            session.lengths = [length - chosen.randrange(2) for length in session.lengths]
        if turn == 3:
            session.select([0, 0, 2])
        if turn == 5:
            session.select([2, 1])
    rows = [[5, 6, 7, 8, 9, 10, 11, 12], [9]]  # longer than a window
    whole = session.bidirectional(rows, [8, 1])  # which leaves the cache as it was
    part = session.bidirectional(rows, [2, 1])
    torch.testing.assert_close(part, whole[6:], atol=1e-5, rtol=1e-5)
    return [*seen, whole, part, session.bidirectional(rows, [0, 0]), session.logits(session.advance([[10], [11]]))]


@pytest.mark.parametrize("kind", [*KINDS, *CAUSAL])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_compiled_step_is_the_layers(tiny, kind, seed, threads, dtype, monkeypatch):
    monkeypatch.setattr(transformer_session, "PLACES", 3)  # so that the cache grows
    model, before = made(tiny, kind, seed), torch.get_num_threads()
    model.module.to(dtype)
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            engine = engine_of(model)
            assert engine.compiled is not None
            ours = steps(engine.start(SOURCES, [24] * 3), seed)
            engine.few = 0  # blocks: compiled between products only
            ours += steps(engine.start(SOURCES, [24] * 3), seed)
            engine.compiled = None
            wanted = 2 * steps(engine.start(SOURCES, [24] * 3), seed)
    finally:
        torch.set_num_threads(before)
    for one, other in zip(ours, wanted, strict=True):
        if dtype == torch.float32:
            torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-4)
        elif one.numel():  # another order of summation rounds a few numbers to the next bfloat16
            assert (one - other).square().mean().sqrt() <= 0.01 * other.std()


def test_a_layer_that_it_does_not_know_is_left_to_torch(tiny):
    assert engine_of(made(tiny, "marian", 1, activation_function="quick_gelu")).compiled is None
    assert engine_of(tiny.make("marian", 1)).compiled is None  # float64
    engine = engine_of(made(tiny, "marian", 1))
    assert gathered(engine.decoder, engine.heads, engine.size, engine.scale) is not None


@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
def test_a_rounded_layer_reads_eight_bits_as_the_numbers_they_stand_for(rows):
    layer = torch.nn.Linear(12, 7)
    with torch.inference_mode():
        layer.weight[3] = 0
        weight = rounded(layer.weight)
        assert (weight - layer.weight).abs().max() <= layer.weight.abs().max() / 254
        torch.testing.assert_close(rounded(weight), weight)
        x = torch.randn(rows, 12)
        dense = Dense(weight, layer.bias, int8=True)
        assert dense.plain[0].dtype == "int8"
        torch.testing.assert_close(dense(x), x @ weight.T + layer.bias, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_decoding_in_int8_is_decoding_the_rounded_model(tiny, kind, seed):
    model = made(tiny, kind, seed)
    other = with_rounded_decoder(model)
    assert model.module.get_output_embeddings().weight is not other.module.get_output_embeddings().weight

    def outputs(method, of):
        return [answer.ids for answer in method.decode(of, SOURCES, 12, NoPhases())]

    for method in (Greedy, Beam, Iad):
        assert outputs(method(engine="int8"), model) == outputs(method(), other)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(-3, 3) | st.just(-math.inf), min_size=1, max_size=40), st.integers(1, 12), st.integers(0, 9)
)
def test_the_largest_values_are_those_of_topk(numbers, count, seed):
    generator = torch.Generator().manual_seed(seed)
    for values in (torch.tensor(numbers, dtype=torch.float32), torch.randn(len(numbers), generator=generator)):
        count = min(count, len(values))
        best, places, tied = largest(values.numpy(), count)
        expected = values.topk(min(count + 1, len(values)))
        assert best.tolist() == expected.values[:count].tolist() == values[torch.tensor(places)].tolist()
        assert len(set(places.tolist())) == count
        if not tied:
            assert len(set(expected.values.tolist())) == len(expected.values)
            assert places.tolist() == expected.indices[:count].tolist()


@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_of_a_causal_model_decodes_the_rounded_model(tiny, kind, dtype):
    """In bfloat16 inputs are rounded as well, and outputs part at near ties."""
    model = made(tiny, kind, 1)
    model.module.to(dtype)
    other, method = with_rounded_decoder(model), Greedy(engine="int8")
    engine = method.engine_of(model)
    assert engine.compiled.matrix.dtype == "int8" and engine.compiled.bfloat16 == (dtype == torch.bfloat16)
    for source in SOURCES:
        [ours], [wanted] = (
            how.decode(of, [source], 12, NoPhases()) for how, of in ((method, model), (Greedy(), other))
        )
        if ours.ids != wanted.ids:
            assert dtype == torch.bfloat16
            assert gap_of_best(engine, model, source, ours.ids, wanted.ids, 12) <= near_tie(model)


@pytest.mark.parametrize("kind", [*KINDS, *CAUSAL])
def test_drafts_in_bfloat16_leave_greedy_outputs_but_for_near_ties(tiny, kind):
    model, chosen, iad = made(tiny, kind, 2), random.Random(2), Iad()
    model.module.to(torch.bfloat16)
    sources = [[chosen.randrange(3, 38) for _ in range(length)] for length in (9, 1, 5, 12, 7, 3)]
    for source in sources:
        [ours], [wanted] = (how.decode(model, [source], 16, NoPhases()) for how in (iad, Greedy()))
        assert ours.ids == wanted.ids or iad.gap(model, source, ours.ids, wanted.ids, 16) <= near_tie(model) == 0.25


def test_attention_split_over_threads_is_attention():
    generator = np.random.default_rng(1)
    query, held = (generator.standard_normal(shape).astype(np.float32) for shape in (6 * 8, (40, 2, 3, 8)))
    one, both = np.empty_like(query), np.empty_like(query)
    attend_to_cache(query, held, 5, 37, np.float32(0.3), one, 0, 6)
    in_threads(query, held, 5, 37, np.float32(0.3), both, 6, 2)
    np.testing.assert_allclose(both, one, rtol=1e-6)
    keys, values = (torch.from_numpy(held[5:37, part]).repeat_interleave(2, 1) for part in (0, 1))
    weights = (torch.einsum("hd,phd->hp", torch.from_numpy(query).view(6, 8), keys) * 0.3).softmax(-1)
    np.testing.assert_allclose(one, torch.einsum("hp,phd->hd", weights, values).flatten(), rtol=1e-4, atol=1e-5)


def test_tables_of_rotations_grow_with_positions():
    module = TYPES["tiny_module"]("gemma3_text")
    stack = module.get_decoder()
    kinds = list(stack.rotary_emb.layer_types)
    rotations = Rotations(stack, kinds)
    for places in (3, 300, 10, 900):
        table = rotations(places, "cpu")
        assert table.shape[1] >= places
        for kind, found in zip(kinds, table, strict=True):
            cosine, sine = stack.rotary_emb(torch.empty(0), torch.tensor([[places - 1]]), kind)
            half = cosine.shape[-1] // 2
            torch.testing.assert_close(found[places - 1], torch.stack([cosine[0, 0, :half], sine[0, 0, :half]]))


def test_int8_is_refused_where_the_lean_engine_does_not_decode(tiny):
    for model in (tiny.make("umt5", 1, torch.float32), tiny.make("marian", 1), tiny.make("gpt2", 1)):
        with pytest.raises(RequestError, match="int8 knows Marian"):
            Greedy(engine="int8").decode(model, [[5, 6]], 4, NoPhases())
