"""Greedy outputs that tasks sort sentences by."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from harness.common.cache import Cache
from harness.common.progress import Progress
from tasks.models.pretrained.generation import TextGenerator
from tasks.models.pretrained.greedy import greedy_outputs

QUIET = Progress(quiet=True)


def naive(model, source, limit):
    """Token by token, one sentence, no cache, no padding."""
    output: list[int] = []
    room = limit if model.kind == "encoder-decoder" else min(limit, model.window - len(source) + 1)
    while len(output) < room and not (output and output[-1] in model.eos_ids):
        with torch.no_grad():
            if model.kind == "encoder-decoder":
                given = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([[0, *output]])}
            else:
                given = {"input_ids": torch.tensor([[*source, *output]])}
            logits = model.module(**given).logits[0, -1]
        logits[list(model.constraints.suppressed)] = -torch.inf
        output.append(int(logits.argmax()))
    return output


@pytest.fixture
def causal(tmp_path, subwords_folder, cache_home):
    torch.manual_seed(3)
    shape = {"vocab_size": 400, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 24, "initializer_range": 0.5}
    GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=1, **shape)).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(subwords_folder).save_pretrained(tmp_path)
    return TextGenerator.load(str(tmp_path))


SOURCES = [[5, 6, 7], [9, 10, 11, 12, 13, 14], [20], [5, 6, 7, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43]]


def test_they_are_the_best_tokens_one_by_one(copier_folder, cache_home, tmp_path):
    model = TextGenerator.load(str(copier_folder))
    texts = ["The old house .", "She reads two books every week .", "An engineer"]
    sources = model.encode(texts)
    made = greedy_outputs(model, sources, 20, Cache(tmp_path), QUIET)
    assert made == [naive(model, source, 20) for source in sources]
    assert greedy_outputs(model, sources, 0, Cache(tmp_path), QUIET) == [[], [], []]


def test_sources_of_a_causal_model_are_padded_on_the_left_and_stop_at_its_window(causal, tmp_path):
    made = greedy_outputs(causal, SOURCES, 12, Cache(tmp_path), QUIET)
    assert made == [naive(causal, source, 12) for source in SOURCES]
    assert len(made[-1]) <= 24 - len(SOURCES[-1]) + 1


def test_suppressed_tokens_do_not_come(causal, tmp_path):
    first = greedy_outputs(causal, SOURCES[:1], 3, Cache(tmp_path), QUIET)[0][0]
    causal.module.generation_config.suppress_tokens = [first]
    model = TextGenerator(causal.module, name="muted", hash_of_weights="the same")
    made = greedy_outputs(model, SOURCES[:1], 3, Cache(tmp_path), QUIET)
    assert first not in made[0]
    assert made == [naive(model, SOURCES[0], 3)]
