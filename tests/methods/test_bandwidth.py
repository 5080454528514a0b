"""What a model reads is the size of its parameters."""

from types import SimpleNamespace

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from methods.bandwidth import Weights, counted, weights_of

WIDTH, INNER, WORDS = 8, 12, 40
LINEAR, NORM = WIDTH * WIDTH + WIDTH, 2 * WIDTH


def model(module):
    return SimpleNamespace(module=module)


def test_a_causal_model_reads_all_but_its_tables_in_each_pass_and_an_output_layer_that_shares_one():
    module = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=16, n_embd=WIDTH, n_layer=2, n_head=2))
    tables = WORDS * WIDTH + 16 * WIDTH
    layers = sum(weight.numel() for weight in module.parameters()) - tables
    assert weights_of(model(module)) == Weights(0, 0, 4 * (layers + WORDS * WIDTH))
    halves = GPT2LMHeadModel(module.config).to(torch.bfloat16)
    assert weights_of(model(halves)) == Weights(0, 0, 2 * (layers + WORDS * WIDTH))


@pytest.mark.parametrize("tied", [True, False])
def test_an_encoder_is_read_once_and_so_is_what_makes_keys_and_values_of_its_outputs(tied):
    config = BartConfig(
        vocab_size=WORDS, d_model=WIDTH, encoder_layers=1, decoder_layers=3, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=INNER, decoder_ffn_dim=INNER, max_position_embeddings=16,
        tie_word_embeddings=tied,
    )  # fmt: skip
    feed_forward = 2 * WIDTH * INNER + WIDTH + INNER
    encoder = 4 * LINEAR + feed_forward + 3 * NORM  # with the norm of embeddings
    sources = 3 * 2 * LINEAR  # of three decoder layers
    each = 3 * (6 * LINEAR + feed_forward + 3 * NORM) + NORM + WORDS * WIDTH
    found = weights_of(model(BartForConditionalGeneration(config)))
    assert found == Weights(4 * encoder, 4 * sources, 4 * each) and found.once == 4 * (encoder + sources)


def test_t5_projects_its_sources_once_too():
    config = T5Config(vocab_size=WORDS, d_model=WIDTH, d_kv=4, num_heads=2, d_ff=INNER, num_layers=1)
    encoder = 4 * WIDTH * WIDTH + 2 * WIDTH * INNER + 3 * WIDTH
    each = 6 * WIDTH * WIDTH + 2 * WIDTH * INNER + 4 * WIDTH + WORDS * WIDTH
    found = weights_of(model(T5ForConditionalGeneration(config)))
    assert found == Weights(4 * encoder, 4 * 2 * WIDTH * WIDTH, 4 * each)


def test_what_is_no_module_of_transformers_reads_nothing_known():
    assert weights_of(model(lambda ids: 0)) is None and weights_of(object()) is None
    assert counted(object(), 3, 10) == {}
