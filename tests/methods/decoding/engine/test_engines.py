"""Engines and sessions against the modules of transformers."""

from __future__ import annotations

import gc
import runpy
import weakref
from pathlib import Path

import pytest
import torch
from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.t5gemma.configuration_t5gemma import T5GemmaModuleConfig

from harness.common.errors import RequestError
from methods.aggressive.iad import Iad
from methods.decoding.engine.engines import engine_of, shared_engine
from methods.decoding.engine.transformer_session import TransformerEngine, TransformerSession
from methods.decoding.search.greedy import Greedy

KINDS = ["marian", "bart", "t5", "umt5", "gpt2"]
SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12]]
ROWS = [[20, 21, 22, 39], [23, 24], [25, 26, 27, 28, 29]]


def unmasked(model, source, row, encoded=None):
    """The module's logits of one row with a mask that blocks nothing."""
    mask = torch.zeros(1, 1, len(row), len(row), dtype=model.module.dtype)
    if model.kind == "causal":
        return model.module(torch.tensor([row]), attention_mask=mask).logits[0]
    given = {"input_ids": torch.tensor([source])}
    if encoded is not None:
        given = {"encoder_outputs": BaseModelOutput(last_hidden_state=encoded)}
    return model.module(**given, decoder_input_ids=torch.tensor([row]), decoder_attention_mask=mask).logits[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ragged", [True, False])
def test_a_bidirectional_pass_is_the_modules_without_a_causal_mask(tiny, kind, ragged):
    model = tiny.make(kind, 6)
    rows = ROWS if ragged else [row[:2] for row in ROWS]
    with torch.inference_mode():
        session = engine_of(model).start(SOURCES, [0] * 3)
        ours = session.logits(session.bidirectional(rows, list(map(len, rows))))
        wanted = [unmasked(model, source, row) for source, row in zip(SOURCES, rows, strict=True)]
        torch.testing.assert_close(ours, torch.cat(wanted), atol=1e-10, rtol=0)
        session.select([2, 0])
        again = session.logits(session.bidirectional([rows[2], rows[0]], [1, 2]))
        torch.testing.assert_close(again, torch.cat([wanted[2][-1:], wanted[0][-2:]]), atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_later_changes_a_bidirectional_pass_and_no_other(tiny, kind):
    model = tiny.make(kind, 6)
    with torch.inference_mode():
        session = engine_of(model).start([[5, 6, 7]], [8])
        one, other = (session.bidirectional([[11, 12, last]], [3])[0] for last in (13, 14))
        assert (one - other).abs().max() > 1e-3
        one, other = (engine_of(model).start([[5, 6, 7]], [8]).advance([[11, 12, last]])[0] for last in (13, 14))
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bidirectional_pass_leaves_the_cache_as_it_was(tiny, kind):
    model = tiny.make(kind, 7)
    steps = []
    with torch.inference_mode():
        for between in (False, True):
            session = engine_of(model).start([[5, 6, 7], [8, 9, 10]], [8] * 2)
            session.advance(session.first)
            session.advance([[11, 12], [13, 14]])
            held = list(session.lengths)
            if between:
                session.bidirectional([[20, 21, 22, 23, 24, 25], [26, 27]], [6, 2])
            assert session.lengths == held
            steps.append(session.logits(session.advance([[15], [16]])))
    assert torch.equal(*steps)


@pytest.mark.parametrize(
    ("encoder", "decoder"), [("marian", "marian"), ("marian", "bart"), ("t5", "marian"), ("bart", "t5")]
)
def test_a_second_decoder_reads_what_another_models_encoder_made(tiny, encoder, decoder):
    one, two = tiny.make(encoder, 1), tiny.make(decoder, 2)
    with torch.inference_mode():
        encoded = engine_of(one).encode(SOURCES)
        session = engine_of(two).open(encoded, [8] * 3)
        ours = session.logits(session.bidirectional(ROWS, list(map(len, ROWS))))
        wanted = []
        for source, row in zip(SOURCES, ROWS, strict=True):
            states = one.module.get_encoder()(input_ids=torch.tensor([source])).last_hidden_state
            wanted.append(unmasked(two, source, row, states))
        torch.testing.assert_close(ours, torch.cat(wanted), atol=1e-10, rtol=0)
        other = engine_of(two).start(SOURCES, [8] * 3)
        assert (ours - other.logits(other.bidirectional(ROWS, list(map(len, ROWS))))).abs().max() > 1e-3
        causal = session.logits(session.advance([[11, 12]] * 3))
        given = {"encoder_outputs": BaseModelOutput(last_hidden_state=states)}
        last = two.module(**given, decoder_input_ids=torch.tensor([[11, 12]])).logits[0]
        torch.testing.assert_close(causal[4:], last, atol=1e-10, rtol=0)


def test_encoder_outputs_of_another_width_are_refused(tiny):
    engine = engine_of(tiny.make("marian", 0))
    wider = engine_of(tiny.make("marian", 0, d_model=32))
    with (
        torch.inference_mode(),
        pytest.raises(RequestError, match="width 16, given 32: encode the sources"),
    ):
        engine.open(wider.encode([[5, 6]]), [4])
    with pytest.raises(RequestError, match="width 16, given none"):
        engine.open(engine_of(tiny.make("gpt2", 0)).encode([[5, 6]]), [4])


@pytest.mark.parametrize("kind", ["marian", "bart", "t5"])
def test_the_lean_engine_gives_the_modules_logits(tiny, kind):
    model = tiny.make(kind, 5)
    engine = engine_of(model)
    assert isinstance(engine, TransformerEngine)
    source, target = [7, 8, 9, 4], [model.start_id, 11, 12, 13, 14, 15]
    with torch.inference_mode():
        wanted = model.module(torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0]
        session = engine.start([source], [8])
        parts = [session.logits(session.advance([part])) for part in (target[:1], target[1:4], target[4:])]
        torch.testing.assert_close(torch.cat(parts), wanted, atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", ["marian", "gpt2"])
def test_rows_advance_and_are_cropped_independently(tiny, kind):
    model = tiny.make(kind, 6)
    engine = engine_of(model)
    sources, rejected = [[5, 6, 7], [8], [9, 10]], [[20, 21, 22], [23], [24, 25, 26, 27]]
    kept = [[11, 12], [13, 14, 15, 16], [17]]
    with torch.inference_mode():
        session = engine.start(sources, [12] * 3)
        session.advance(session.first)
        held = list(session.lengths)
        session.advance(rejected)
        session.lengths = held
        ragged = session.logits(session.advance(kept))
        session.select([2, 0])
        ragged = torch.cat([ragged, session.logits(session.advance([[30, 31], [32]]))])
        alone = []
        for source, tokens in zip(sources, kept, strict=True):
            one = engine.start([source], [12])
            one.advance(one.first)
            alone.append(one.logits(one.advance([tokens])))
        for number, tokens in ((2, [30, 31]), (0, [32])):
            one = engine.start([sources[number]], [12])
            one.advance(one.first)
            one.advance([kept[number]])
            alone.append(one.logits(one.advance([tokens])))
    torch.testing.assert_close(ragged, torch.cat(alone), atol=1e-10, rtol=0)


def one_sees_all(self, weights, tokens, last, places, sees, cache, step=TransformerSession._compiled_step):
    """A compiled step whose tokens see all others of the step."""
    return step(self, weights, tokens, last, places, [max(sees)] * len(sees), cache)


@pytest.mark.parametrize(
    ("name", "broken"), [("_causal", lambda *_: None), ("_compiled_step", one_sees_all)], ids=["long", "short"]
)
@pytest.mark.parametrize("width", [16, 272])
def test_an_engine_is_tried_with_blocks_that_are_compiled_and_with_others(tiny, monkeypatch, width, name, broken):
    model = tiny.make("marian", 2, torch.float32, d_model=width)
    assert engine_of(model).compiled is not None
    monkeypatch.setattr(TransformerSession, name, broken)
    with pytest.raises(RequestError, match="other logits with a key-value cache"):
        engine_of(model)


def test_an_engine_is_tried_with_a_long_block_of_uneven_rows(tiny, monkeypatch):
    model = tiny.make("marian", 1, torch.float32)
    assert engine_of(model).ragged
    monkeypatch.setattr(TransformerSession, "_scattered_mask", lambda *_: None)
    assert not engine_of(model).ragged


@pytest.mark.parametrize("kind", ["umt5", "opt"])
def test_the_cache_of_a_modules_own_pass_grows_as_it_is_used(tiny, kind):
    model = tiny.make(kind, 3)
    if kind == "opt":
        tiny_module = runpy.run_path(str(Path(__file__).with_name("model_types.py")))["tiny_module"]
        model.module = tiny_module(kind)
    with torch.inference_mode():
        session = engine_of(model).start([[5, 6, 7]], [40])
        prompt = len(session.first[0])
        session.advance(session.first)
        places = [session.layers[0].keys.shape[2]]
        for token in range(3, 39):
            session.advance([[token]])
            places.append(session.layers[0].keys.shape[2])
    assert places[0] == prompt and places[-1] == prompt + 40
    assert all(held <= 2 * (prompt + fed) for fed, held in enumerate(places))
    assert len(set(places)) <= 7


@pytest.mark.parametrize("window", [4, 64])
def test_an_encoder_that_reads_a_short_source_otherwise_next_to_a_long_one_is_refused(tiny, window):
    """T5Gemma in float64: a window that holds only padding gives NaN. Sources within the window do not show it."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "vocab_size": 40}
    stack = T5GemmaModuleConfig(sliding_window=window, **sizes)
    config = T5GemmaConfig(**dict.fromkeys(("encoder", "decoder"), stack), vocab_size=40)
    model = tiny.Model(T5GemmaForConditionalGeneration(config).double().eval(), 2, (2,), 64)
    if window == 64:
        assert not engine_of(model).ragged
        return
    with pytest.raises(RequestError, match="type 't5gemma' encodes a source in a batch otherwise than alone"):
        engine_of(model)


def test_methods_share_one_engine_of_a_model_until_its_module_is_replaced(tiny):
    model = tiny.make("gpt2", 0, torch.float32)
    shared = shared_engine(model)
    assert Greedy().engine_of(model) is Iad().engine_of(model) is shared
    assert shared_engine(model, "int8") is not shared and shared_engine(model, "int8") is shared_engine(model, "int8")
    before, model.module = model.module, tiny.make("gpt2", 1, torch.float32).module
    assert shared_engine(model) is not shared and shared_engine(model) is Greedy().engine_of(model)
    place = weakref.ref(before)
    del before, shared
    gc.collect()
    assert place() is None
