"""Generation models loaded from folders in the hub's layout."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GPT2Config,
    GPT2LMHeadModel,
    LEDConfig,
    LEDForConditionalGeneration,
    RobertaConfig,
)

from harness.common.cache import Cache
from harness.common.errors import RequestError
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


def led(**positions):
    shape = {"vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention_window": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    return LEDForConditionalGeneration(LEDConfig(**shape, **heads, **positions))


def test_sources_and_outputs_have_positions_of_their_own(copier_folder, relative_folder, cache_home):
    module = led(max_encoder_position_embeddings=64, max_decoder_position_embeddings=24)
    model = TextGenerator(module, name="led", hash_of_weights="none")
    assert (model.longest_source, model.window) == (64, 24)
    assert TextGenerator.load(str(copier_folder)).longest_source == 128
    assert TextGenerator.load(str(relative_folder)).longest_source is None
    sizes = {"vocab_size": 60, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 1, "max_position_embeddings": 32, "pad_token_id": 1, "eos_token_id": 2}
    pair = EncoderDecoderConfig.from_encoder_decoder_configs(RobertaConfig(**sizes), BertConfig(**sizes))
    pair.decoder_start_token_id = 0
    model = TextGenerator(EncoderDecoderModel(pair), name="pair", hash_of_weights="none")
    assert (model.longest_source, model.window) == (30, 32)


# ---------------------------------------------------------------- outputs as a model writes them


def test_a_causal_model_writes_no_start_token_and_an_end(saved, cache_home):
    small = {"vocab_size": 400, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    folder = saved(GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=1, **small)))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    frame = TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", 0)])
    tokenizer.backend_tokenizer.post_processor = frame
    tokenizer.save_pretrained(folder)
    model = TextGenerator.load(str(folder))
    [source], [output] = model.encode(["the old house"]), model.encode_outputs(["the old house"])
    assert source[0] == 0 and output == [*source[1:], 1]
    model.eos_ids = ()
    with pytest.raises(RequestError, match="does not encode texts as the model writes them"):
        model.encode_outputs(["the old house"])


def test_an_output_that_the_tokenizer_frames_otherwise_is_refused(copier_folder, cache_home):
    model = TextGenerator.load(str(copier_folder))
    assert model.encode_outputs(["the old house"]) == model.encode(["the old house"])
    assert model.encode_outputs([]) == []
    for change in ({"first": 7}, {}):
        model = TextGenerator.load(str(copier_folder))
        model.constraints = replace(model.constraints, **change)
        model.eos_ids = model.eos_ids if change else (9,)
        with pytest.raises(RequestError, match="its first token, its end token or its vocabulary is another"):
            model.encode_outputs(["the old house"])


# ---------------------------------------------------------------- hashes


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
