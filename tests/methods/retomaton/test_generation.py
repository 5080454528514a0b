"""The automaton in `generate`: its probabilities are those of scoring what was generated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.retomaton.generation import RetoMatonProcessor
from methods.retomaton.scorer import RetoMaton
from tests.methods.knnlm.conftest import model, other_model
from tests.methods.retomaton.test_scorer import fitted

__all__ = ["model", "other_model"]  # fixtures


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache"))


class Kept(LogitsProcessor):
    """What the processor before it made of the logits."""

    def __init__(self):
        self.scores = []

    def __call__(self, input_ids, scores):
        self.scores.append(scores.clone())
        return scores


def generated(model, method, prompt, tokens, padding=None, **settings):
    processor, kept = RetoMatonProcessor(method, model, padding=padding), Kept()
    with processor.watching(), torch.inference_mode():
        ids = model.module.generate(
            torch.tensor(prompt), max_new_tokens=tokens, do_sample=False, pad_token_id=0, eos_token_id=None,
            logits_processor=LogitsProcessorList([processor, kept]), **settings,
        )  # fmt: skip
    return ids, torch.stack(kept.scores), processor


@pytest.mark.parametrize("tau", [1, 3, "inf"])
def test_a_step_s_probabilities_are_those_of_scoring_the_text(model, cache, tau):
    """A prompt of one token, so that both begin their walk at the same place."""
    method = fitted(model, cache, tau=tau, clusters=40, transitions="capped", max_knns=4096)
    ids, scores, processor = generated(model, method, [[7], [9]], 12)
    assert processor.tokens == 24
    for row in range(2):
        [answer] = method.score(model, [ids[row].numpy()], NoPhases())
        chosen = scores[:, row].gather(1, ids[row, 1:, None])[:, 0]
        np.testing.assert_allclose(chosen.numpy(), answer.log_probs, rtol=0, atol=1e-4)
    np.testing.assert_allclose(scores.exp().sum(-1).numpy(), 1, atol=1e-4)
    searches = sum(a.counters["searches"] for a in method.score(model, list(ids.numpy()), NoPhases()))
    assert processor.searches == searches


def test_the_automaton_saves_searches_while_generating(model, cache):
    method = fitted(model, cache, tau=1, clusters=20)
    *_, processor = generated(model, method, [[1, 2, 3]], 14)
    assert 0 < processor.searches < processor.tokens == 14


def test_a_row_that_has_ended_is_not_followed(model, cache):
    method = fitted(model, cache, tau=1, clusters=20)
    ids, _, whole = generated(model, method, [[1, 2, 3], [4, 5, 6]], 8)
    end = int(ids[0, 5])
    processor = RetoMatonProcessor(method, model, ends=[end])
    with processor.watching(), torch.inference_mode():
        model.module.generate(
            torch.tensor([[1, 2, 3], [4, 5, 6]]), max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=None,
            logits_processor=LogitsProcessorList([processor]),
        )  # fmt: skip
    assert processor.tokens < whole.tokens == 16


@pytest.mark.parametrize("where", ["call", "configuration", "model"])
def test_a_row_ends_where_the_call_does(model, cache, monkeypatch, where):
    method = fitted(model, cache, tau=1, clusters=20)
    ids, *_ = generated(model, method, [[1, 2, 3], [4, 5, 6]], 8)
    end, settings = [int(ids[0, 5])], {}
    monkeypatch.setattr(model.module.generation_config, "eos_token_id", end if where == "model" else [39])
    if where == "call":
        settings = {"eos_token_id": end}
    elif where == "configuration":
        settings = {"generation_config": GenerationConfig(max_new_tokens=8, pad_token_id=0, eos_token_id=end)}
    processor = RetoMatonProcessor(method, model)
    with processor.watching(), torch.inference_mode():
        found = model.module.generate(
            torch.tensor([[1, 2, 3], [4, 5, 6]]), max_new_tokens=8, do_sample=False, pad_token_id=0,
            logits_processor=LogitsProcessorList([processor]), **settings,
        )  # fmt: skip
    written = [row.index(end[0]) + 1 if end[0] in row else len(row) for row in found[:, 3:].tolist()]
    assert processor.ends == set(end) and processor.tokens == sum(written) < 16
    assert "generate" not in vars(model.module)


def test_contexts_may_be_nested(model, cache):
    outer, inner = (RetoMatonProcessor(fitted(model, cache), model) for _ in range(2))
    with outer.watching():
        with inner.watching():
            pass
        assert "generate" in vars(model.module)
    assert "generate" not in vars(model.module)


def test_a_query_that_is_no_number_is_refused_also_where_nothing_is_searched(model, cache):
    method = fitted(model, cache, tau=1, clusters=20)
    processor = RetoMatonProcessor(method, model)
    with processor.watching(), pytest.raises(RequestError, match="is not finite"):
        processor._keys.append(torch.full((1, 1, model.key_dimension(method.key)), torch.nan))
        processor(torch.tensor([[1]]), torch.zeros(1, 40))


def test_padding_on_the_left_changes_no_draw(model, cache):
    method = fitted(model, cache, tau=1, clusters=4, max_knns=5)
    alone, scores, _ = generated(model, method, [[7, 9]], 8)
    given = {"attention_mask": torch.tensor([[0, 0, 1, 1]])}
    _, others, _ = generated(model, method, [[0, 0, 7, 9]], 8, **given)
    assert not torch.allclose(others, scores, atol=1e-3)  # without a token for padding a row is what was given
    padded, others, _ = generated(model, method, [[0, 0, 7, 9]], 8, padding=0, **given)
    assert padded[0, 2:].tolist() == alone[0].tolist()
    torch.testing.assert_close(others, scores, rtol=0, atol=1e-4)


def test_a_beam_s_probability_is_that_of_scoring_its_text(model, cache):
    """A prompt of one token, so that both begin their walk at the same place."""
    method = fitted(model, cache, tau=2, clusters=40, transitions="capped", max_knns=4096)
    processor = RetoMatonProcessor(method, model)
    with processor.watching(), torch.inference_mode():
        found = model.module.generate(
            torch.tensor([[7], [9]]), max_new_tokens=9, do_sample=False, pad_token_id=0, eos_token_id=None,
            num_beams=4, num_return_sequences=4, length_penalty=0.0, return_dict_in_generate=True, output_scores=True,
            logits_processor=LogitsProcessorList([processor]),
        )  # fmt: skip
    for text, total in zip(found.sequences.numpy(), found.sequences_scores.tolist(), strict=True):
        [answer] = method.score(model, [text], NoPhases())
        assert total == pytest.approx(answer.log_probs.sum(), abs=1e-3)


def test_passes_that_were_not_seen_and_rows_of_another_text_are_refused(model, cache):
    method = fitted(model, cache, tau=1, clusters=20)
    with pytest.raises(RequestError, match="no forward pass was seen"):
        RetoMatonProcessor(method, model)(torch.tensor([[1]]), torch.zeros(1, 40))
    processor = RetoMatonProcessor(method, model)
    with processor.watching(), torch.inference_mode():
        given = {"max_new_tokens": 2, "pad_token_id": 0, "logits_processor": LogitsProcessorList([processor])}
        model.module.generate(torch.tensor([[1, 2, 3]]), **given)
        with pytest.raises(RequestError, match="a row continues none of the rows before it"):
            model.module.generate(torch.tensor([[4, 5, 6]]), **given)


@pytest.mark.parametrize("tokens", [1, 4])
def test_a_step_of_two_forward_passes_is_refused(model, cache, tokens):
    method = fitted(model, cache, tau=1, clusters=20)
    with pytest.raises(RequestError, match="several forward passes"):
        generated(model, method, [[1, 2, 3]], tokens, guidance_scale=2.0)


def test_another_model_s_datastore_and_an_unfitted_method_are_refused(model, other_model, cache):
    with pytest.raises(RequestError, match="the datastore was built with the model"):
        RetoMatonProcessor(fitted(model, cache, tau=1, clusters=20), other_model)
    with pytest.raises(RuntimeError, match="answers after fit or open"):
        RetoMatonProcessor(RetoMaton(), model)
