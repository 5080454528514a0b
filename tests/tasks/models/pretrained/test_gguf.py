"""GGUF files become folders in the hub's layout; models that cannot be opened are refused in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from harness.common import checkpoints, memory
from harness.common.cache import Cache
from harness.common.checkpoints import Checkpoint
from harness.common.errors import RequestError
from methods.ralmspec.passages.encoders import Pretrained
from tasks.models.pretrained.generation import TextGenerator
from tasks.models.pretrained.language import CausalLM
from tasks.models.pretrained.places import find
from tests import gguf_files

TOKENS = [*sorted(ByteLevel.alphabet()), "th", "the", "<end>"]


def random_module(*, tied: bool) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(TOKENS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3, tie_word_embeddings=tied,
        )
    ).eval()  # fmt: skip


def write(file: Path, module: Qwen2ForCausalLM, *, kind: str = "F32", architecture: str = "qwen2") -> Path:
    return gguf_files.write(file, module, TOKENS, ["t h", "th e"], numbers=kind, architecture=architecture)


@torch.no_grad()
def logits(module, ids: list[int]) -> torch.Tensor:
    return module(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_gives_the_logits_of_its_weights(tmp_path, cache_home, tied):
    module, cache = random_module(tied=tied), Cache(cache_home)
    file = write(tmp_path / "tiny.gguf", module)
    model = TextGenerator.load(str(file), cache=cache)
    ids = model.encode(["the end<end>"])[0]
    assert [TOKENS[token] for token in ids[:1]] == ["the"] and ids[-1] == model.eos_ids[0] == len(TOKENS) - 1
    torch.testing.assert_close(logits(model.module, ids), logits(module, ids), rtol=1e-4, atol=1e-4)
    assert model.gguf == file and model.module.config.tie_word_embeddings is tied
    assert model.facts == {
        "source": "file tiny.gguf", "sha256": checkpoints.sha256(file, cache),
        "stored_as": "F32, dequantised to float32", "licence": "mit",
    }  # fmt: skip
    again = CausalLM.load(str(file.rename(tmp_path / "moved.gguf")), cache=cache, dtype="bfloat16")
    assert again.folder == find(str(tmp_path / "moved.gguf"), cache).folder  # converted once
    assert again.facts["source"] == "file moved.gguf" and again.module.dtype == torch.bfloat16


def test_quantised_weights_are_dequantised_and_a_table_knows_their_licence(tmp_path, cache_home, monkeypatch):
    module, cache = random_module(tied=False), Cache(cache_home)
    file = write(tmp_path / "tiny.gguf", module, kind="Q8_0")
    entry = Checkpoint("some/tiny", "Our Terms", sha256=checkpoints.sha256(file, cache))
    monkeypatch.setitem(checkpoints.CHECKPOINTS, "tiny", entry)
    model = CausalLM.load(str(file), cache=cache)
    assert (model.facts["stored_as"], model.facts["licence"]) == ("Q8_0, dequantised to float32", "Our Terms")
    found, expected = (one.model.layers[0].mlp.up_proj.weight.detach() for one in (model.module, module))
    assert found.dtype == torch.float32 and 0 < float((found - expected).abs().max()) < 0.01


def refusal(model: object, load=TextGenerator.load) -> str:
    """What a model's refusal says, in one line."""
    with pytest.raises(RequestError, match=r"\A[^\n]+\Z") as error:
        load(str(model))
    return str(error.value)


def test_files_that_transformers_cannot_read_are_refused(tmp_path, cache_home):
    (tmp_path / "text.gguf").write_text("no model, but long enough to have a header of some kind " * 9)
    assert "cannot read text.gguf as a GGUF model" in refusal(tmp_path / "text.gguf")
    whole = write(tmp_path / "whole.gguf", random_module(tied=True)).read_bytes()
    (tmp_path / "half.gguf").write_bytes(whole[: len(whole) // 2])
    assert "cannot read half.gguf as a GGUF model" in refusal(tmp_path / "half.gguf")
    strange = write(tmp_path / "strange.gguf", random_module(tied=True), architecture="strange")
    assert re.search("cannot read strange.gguf as a GGUF model: .*strange.*not supported", refusal(strange))
    assert not list(cache_home.glob("gguf/*/config.json"))


@pytest.fixture
def saved(tmp_path, subwords_folder):
    """A model's folder, as users have them."""
    folder = tmp_path / "saved"
    config = GPT2Config(vocab_size=400, n_embd=16, n_layer=1, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=1)
    GPT2LMHeadModel(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(subwords_folder).save_pretrained(folder)
    return folder


def test_a_model_larger_than_the_memory_is_refused_before_it_is_loaded(tmp_path, saved, cache_home, monkeypatch):
    file = write(tmp_path / "tiny.gguf", random_module(tied=True))
    TextGenerator.load(str(file))  # converted
    monkeypatch.setattr(memory, "memory", lambda: {"available": 2**14})
    words = r"loading .* takes 0\.0 GiB and 0\.0 GiB of memory are available"
    for model in (saved, file, write(tmp_path / "other.gguf", random_module(tied=False))):
        assert re.search(words, refusal(model))
    monkeypatch.setattr(memory, "memory", lambda: {"available": 2**16})
    TextGenerator.load(str(saved), dtype="bfloat16")  # half of the bytes


def test_an_adapter_is_refused_with_and_without_a_model_next_to_it(saved, cache_home):
    (saved / "adapter_config.json").write_text("{}")
    assert "holds an adapter, which is not loaded: merge it" in refusal(saved)
    (saved / "config.json").unlink()
    assert "holds an adapter" in refusal(saved)


def test_an_adapter_of_the_hub_and_of_an_encoder_is_refused(saved, cache_home, monkeypatch):
    (saved / "adapter_config.json").write_text("{}")
    with pytest.raises(RequestError, match="holds an adapter, which is not loaded"):
        Pretrained(str(saved))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(saved))
    assert "some/model holds an adapter" in refusal("some/model")


def test_code_of_a_model_is_not_run(saved, cache_home):
    stated = json.loads((saved / "config.json").read_text())
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (saved / "config.json").write_text(json.dumps(stated | {"auto_map": classes}))
    (saved / "own.py").write_text("raise SystemExit('run')")
    TextGenerator.load(str(saved))  # transformers has the type itself
    (saved / "config.json").write_text(json.dumps(stated | {"auto_map": classes, "model_type": "own"}))
    for load in (TextGenerator.load, CausalLM.load):
        assert "its type 'own' needs code of the model's own, which is not run" in refusal(saved, load)


def test_a_tokenizer_may_be_sentencepiece_alone(tmp_path, cache_home):
    import sentencepiece

    folder, text = tmp_path / "model", tmp_path / "text"
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=320, **sizes)).save_pretrained(folder)
    text.write_text("the student reads a book about the river\n" * 50)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "tokenizer"), vocab_size=300, model_type="bpe", byte_fallback=True,
        minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    said = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    model, given = CausalLM.load(str(folder), cache=Cache(cache_home)), "the river é"
    right = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model")).encode(given)
    assert model.tokenizer(given, add_special_tokens=False)["input_ids"] == right


@pytest.mark.parametrize("changed", [{"pad_token_id": -1}, {"vocab_size": 448}])
def test_a_folder_may_have_no_padding_and_more_embeddings_than_tokens(saved, cache_home, changed):
    config = GPT2Config.from_pretrained(saved, **changed)
    module = GPT2LMHeadModel(config).eval()
    module.save_pretrained(saved)  # without the output layer, which is the embedding
    model = TextGenerator.load(str(saved))
    ids = model.encode(["The student"])[0]
    torch.testing.assert_close(logits(model.module, ids), logits(module, ids))
    assert CausalLM.load(str(saved), cache=Cache(cache_home)).vocabulary_size == config.vocab_size


def test_a_token_without_an_embedding_is_refused_when_a_text_has_it(saved, cache_home):
    tokenizer = AutoTokenizer.from_pretrained(saved)
    tokenizer.add_tokens([f"<extra{number}>" for number in range(400)])
    tokenizer.save_pretrained(saved)
    model = TextGenerator.load(str(saved))
    assert model.encode(["The student likes"])
    for make in (model.encode, lambda texts: model.prompts(texts, 8, False)):
        with pytest.raises(RequestError, match=r"makes token \d+ of the text, and the model has 400 embeddings"):
            make(["The student <extra399>"])


def test_the_tokenizer_of_a_hub_model_is_fetched_if_another_program_left_it_out(saved, cache_home, monkeypatch):
    files = {file.name: file.read_bytes() for file in saved.glob("*token*")}
    for name in files:
        (saved / name).unlink()

    def download(
        hub_id: str, *, local_files_only: bool = False, revision: str = "", allow_patterns: object = None
    ) -> str:
        for name, content in (files if revision == saved.name and not local_files_only else {}).items():
            (saved / name).write_bytes(content)
        return str(saved)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    model = TextGenerator.load("some/model")
    assert model.encode(["The student"]) and model.facts["source"] == "hub some/model"


def test_what_says_how_texts_begin_and_end_is_fetched_once(saved, cache_home, monkeypatch):
    """Another program may have fetched weights and tokenizer.json alone."""
    said = (saved / "tokenizer_config.json").read_bytes()
    (saved / "tokenizer_config.json").unlink()
    asked: list[list[str]] = []

    def download(*_: object, allow_patterns: list[str] | None = None, **__: object) -> str:
        if allow_patterns:
            asked.append(allow_patterns)
            (saved / "tokenizer_config.json").write_bytes(said)
        return str(saved)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    for _ in range(2):
        assert find("some/model", Cache(cache_home)).folder == saved
    assert len(asked) == 1 and "*token*" in asked[0]
    assert (saved / "tokenizer_config.json").read_bytes() == said


def test_a_name_that_is_nowhere_says_all_three_ways(cache_home, monkeypatch):
    monkeypatch.delenv("HARNESS_DATA", raising=False)
    monkeypatch.setitem(checkpoints.CHECKPOINTS, "toy", Checkpoint("some/toy", "MIT", "not-installed"))

    def download(*_: object, **__: object) -> str:
        from huggingface_hub.errors import LocalEntryNotFoundError

        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    words = r"no models/toy\*\.gguf .* under HARNESS_DATA; the package not-installed is not installed .* the hub"
    assert re.search(words, refusal("toy"))
