"""Generation models loaded from folders in the hub's layout."""

from __future__ import annotations

import shutil

import pytest
import torch
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
)

from harness.errors import RequestError
from harness.measure.artifacts import Cache
from tasks.models.pretrained.generation import TextGenerator


@pytest.fixture
def saved(tmp_path, subwords_folder):
    """Save a module with the tests' tokenizer and return its folder."""

    def save(module):
        folder = tmp_path / type(module).__name__
        module.save_pretrained(folder)
        AutoTokenizer.from_pretrained(subwords_folder).save_pretrained(folder)
        return folder

    return save


def test_marian_starts_with_its_pad_and_text_goes_round(copier_folder, cache_home):
    model = TextGenerator.load(str(copier_folder))
    assert (model.kind, model.start_id, model.eos_ids, model.window) == ("encoder-decoder", 0, (1,), 128)
    assert model.language_model is None
    [ids] = model.encode(["do n't stop ."])
    assert ids[-1] == 1
    assert model.decode(ids) == "do n't stop ."
    assert model.encode([]) == []


def test_bart_and_causal_models_load_too(saved, cache_home):
    shape = {"vocab_size": 400, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    bart = TextGenerator.load(str(saved(BartForConditionalGeneration(BartConfig(**shape, **heads)))))
    assert (bart.kind, bart.start_id, bart.eos_ids) == ("encoder-decoder", 2, (2,))
    small = {"vocab_size": 400, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    gpt = TextGenerator.load(str(saved(GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=1, **small)))))
    assert (gpt.kind, gpt.start_id, gpt.eos_ids, gpt.window) == ("causal", 0, (1,), 32)
    assert gpt.language_model is not None
    assert gpt.language_model.window == 32


def test_the_hash_follows_weights_and_precision(copier_folder, tmp_path, cache_home):
    model = TextGenerator.load(str(copier_folder))
    assert TextGenerator.load(str(copier_folder), name="other name").hash == model.hash
    assert TextGenerator.load(str(copier_folder), dtype="float64").hash != model.hash
    with torch.no_grad():
        model.module.model.shared.weight[5] += 1
    model.module.save_pretrained(tmp_path / "other")
    model.tokenizer.save_pretrained(tmp_path / "other")
    assert TextGenerator.load(str(tmp_path / "other")).hash != model.hash


def test_the_hash_follows_tokenizer_and_the_tokens_that_rule_an_output(copier_folder, cache_home):
    def made(**settings):
        model = TextGenerator.load(str(copier_folder))
        for name, value in settings.items():
            setattr(model.module.generation_config, name, value)
        return TextGenerator(model.module, name="copier", hash_of_weights="weights", folder=copier_folder)

    first = made()
    assert made().hash == first.hash
    forbidding = made(bad_words_ids=[[7], [8, 9]], suppress_tokens=[3])
    assert forbidding.constraints.suppressed == (3, 7)
    assert made(eos_token_id=[1, 5]).eos_ids == (1, 5)
    others = [forbidding.hash, made(eos_token_id=[1, 5]).hash, made(decoder_start_token_id=2).hash]
    no_tokenizer = TextGenerator(made().module, name="copier", hash_of_weights="weights", folder=None)
    assert len({first.hash, no_tokenizer.hash, *others}) == 5


def test_what_cannot_be_loaded_is_one_line(copier_folder, tmp_path, saved, cache_home):
    with pytest.raises(RequestError, match="no model folder"):
        TextGenerator.load(str(tmp_path / "nowhere"))
    with pytest.raises(RequestError, match=r"unknown dtype 'int3'.*float32"):
        TextGenerator.load(str(copier_folder), dtype="int3")
    no_tokenizer = tmp_path / "bare"
    shutil.copytree(copier_folder, no_tokenizer, ignore=shutil.ignore_patterns("token*", "special*"))
    with pytest.raises(RequestError, match=r"has no usable tokenizer.*tokenizer\.json"):
        TextGenerator.load(str(no_tokenizer), cache=Cache(tmp_path / "cache"))
    shape = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    with pytest.raises(RequestError, match="cannot be loaded"):
        TextGenerator.load(str(saved(BertModel(BertConfig(intermediate_size=8, **shape)))))
    broken = tmp_path / "broken"
    shutil.copytree(copier_folder, broken)
    (broken / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(RequestError, match="cannot be loaded"):
        TextGenerator.load(str(broken))
