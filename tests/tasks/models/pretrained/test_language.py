"""A causal language model gives the same numbers as a naive loop, whatever its family, window and stride."""

from __future__ import annotations

import gc
import json
import math
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    CTRLConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MambaConfig,
    MptConfig,
    OPTConfig,
    PreTrainedModel,
)

from harness.common.cache import Cache
from harness.common.errors import MachineError, RequestError
from harness.contracts import LanguageModel
from tasks.models.pretrained.checkpoints import tokenizer_hash, weight_files
from tasks.models.pretrained.generation import TextGenerator
from tasks.models.pretrained.language import CausalLM, windows

SMALL = {"vocab_size": 61, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
CONFIGS = {
    "gpt2": GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=64, **SMALL),
    "llama": LlamaConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, intermediate_size=40,
        max_position_embeddings=64, **SMALL,
    ),
    "opt": OPTConfig(
        num_hidden_layers=2, hidden_size=16, ffn_dim=32, num_attention_heads=2, word_embed_proj_dim=12,
        max_position_embeddings=64, **SMALL,
    ),
    "gpt_neox": GPTNeoXConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=40, max_position_embeddings=64,
        **SMALL,
    ),
    "bloom": BloomConfig(n_layer=2, hidden_size=16, n_head=2, **SMALL),
}  # fmt: skip
FAMILIES = ("gpt2", "llama", "opt")


def random_module(family: str) -> PreTrainedModel:
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(CONFIGS[family]).eval()
    for parameter in module.parameters():  # the usual initialisation is nearly uniform; make the answers differ
        parameter.data.normal_(0, 0.3)
    return module


def wrapped(family: str, **sizes: int) -> CausalLM:
    return CausalLM(random_module(family), name=family, weights_hash="0", **sizes)


def text(length: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 61, length)


def last_inputs(module: PreTrainedModel, family: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Register hooks by each family's own names, which the code under test does not know."""
    block = {"gpt2": lambda: module.transformer.h[-1].mlp, "llama": lambda: module.model.layers[-1].mlp}
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    if family == "opt":
        layer = module.model.decoder.layers[-1]
        first: list[torch.Tensor] = []
        layer.fc1.register_forward_hook(lambda _, args, __: first.append(args[0]))
        layer.fc2.register_forward_hook(lambda _, __, out: seen.append((first.pop(), out)))
    else:
        block[family]().register_forward_hook(lambda _, args, out: seen.append((args[0], out)))
    return seen


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("window", "stride", "length"), [(8, 3, 30), (8, 8, 17), (16, 1, 21), (64, 32, 40), (1, 1, 5)])
def test_encode_equals_a_loop_over_single_tokens(family: str, window: int, stride: int, length: int) -> None:
    model, stream = wrapped(family, window=window, stride=stride), text(length)
    module = random_module(family)
    hooked = last_inputs(module, family)
    blocks = list(model.encode(stream, key="last_ffn_input", statistics=True))
    outputs = torch.cat([block.keys for block in model.encode(stream, key="last_ffn_output")])
    hidden = torch.cat([block.keys for block in model.encode(stream, key="last_hidden")])
    assert torch.cat([block.targets for block in blocks]).tolist() == stream[1:].tolist()
    assert [block.start for block in blocks] == np.cumsum([1, *(len(block.targets) for block in blocks)])[:-1].tolist()
    position = 0
    for block in blocks:
        distribution = block.log_distribution(torch.arange(len(block.targets)))
        for row in range(len(block.targets)):
            target = block.start + row
            begin = stride * max(0, math.ceil((target - window) / stride))
            hooked.clear()
            with torch.no_grad():
                answer = module(torch.tensor(stream[None, begin:target]), output_hidden_states=True)
            expected = answer.logits[0, -1].log_softmax(-1)
            torch.testing.assert_close(distribution[row], expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(block.log_prob[row], expected[stream[target]], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(block.max_log_prob[row], expected.max(), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(block.entropy[row], -(expected.exp() * expected).sum(), rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(block.keys[row], hooked[-1][0].reshape(-1, 16)[-1], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(outputs[position], hooked[-1][1].reshape(-1, 16)[-1], rtol=1e-4, atol=1e-4)
            from_hidden = model.module.lm_head(hidden[position]).log_softmax(-1)
            torch.testing.assert_close(from_hidden, expected, rtol=1e-4, atol=1e-4)
            position += 1
    assert position == length - 1


@pytest.mark.parametrize(("window", "stride", "length"), [(8, 3, 30), (8, 8, 17), (16, 1, 21), (64, 32, 40)])
@torch.no_grad()
def test_every_window_begins_with_bos_where_the_tokenizer_adds_it(window: int, stride: int, length: int) -> None:
    module, bos = random_module("llama"), 7
    model = CausalLM(module, name="llama", weights_hash="0", window=window, stride=stride, start=bos)
    stream = np.concatenate([[bos], text(length - 1)])
    blocks = list(model.encode(stream, key="last_hidden"))
    assert torch.cat([block.targets for block in blocks]).tolist() == stream[1:].tolist()
    for number, block in enumerate(blocks):
        begin = number * stride
        inputs = [bos, *stream[begin + 1 : begin + window].tolist()]  # up to window - 1 tokens after BOS
        answer = module(torch.tensor([inputs]), output_hidden_states=True)
        predicted = slice(block.start - 1 - begin, block.start - 1 - begin + len(block.targets))
        expected = answer.logits[0, predicted].log_softmax(-1)
        torch.testing.assert_close(block.log_prob, expected.gather(-1, block.targets[:, None])[:, 0])
        torch.testing.assert_close(block.keys, answer.hidden_states[-1][0, predicted], rtol=1e-4, atol=1e-5)
    plain = wrapped("llama", window=window, stride=stride)
    assert model.hash != plain.hash and model.facts == {"bos": "in front of every window"} and plain.facts == {}


def test_whether_bos_is_added_is_read_from_the_tokenizer(tmp_path: Path, subwords_folder: Path) -> None:
    cache = Cache(tmp_path / "cache")
    found = {}
    for adds in (False, True):
        folder = tmp_path / str(adds)
        tokenizer = AutoTokenizer.from_pretrained(subwords_folder, bos_token="</s>")
        if adds:
            tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
                single="</s> $A", special_tokens=[("</s>", tokenizer.bos_token_id)]
            )
        tokenizer.save_pretrained(folder)
        AutoModelForCausalLM.from_config(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=400)).save_pretrained(
            folder
        )
        found[adds] = CausalLM.load(str(folder), cache=cache)
        generator = TextGenerator.load(str(folder), cache=cache)
        assert generator.added_start == (tokenizer.bos_token_id if adds else None)
        assert generator.language_model.facts == found[adds].facts
    assert "bos" in found[True].facts and "bos" not in found[False].facts
    assert found[True].start_id == next(iter(found[True].tokenizer.encode("a")))


def test_batches_of_windows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, stream = wrapped("gpt2", window=8, stride=4), text(100)
    together = torch.cat([block.log_prob for block in model.encode(stream)])
    monkeypatch.setitem(__import__("tasks.models.pretrained.language", fromlist=["x"])._BATCH_TOKENS, "cpu", 8)
    alone = torch.cat([block.log_prob for block in model.encode(stream)])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_every_token_is_predicted_once_with_the_context_that_the_stride_leaves() -> None:
    for length, window, stride in [(1, 4, 2), (2, 4, 2), (50, 7, 3), (50, 7, 7), (51, 10, 1)]:
        spans = list(windows(length, window, stride))
        assert [t for _, first, end in spans for t in range(first, end + 1)] == list(range(1, length))
        for begin, first, end in spans:
            assert end - begin <= window
            assert begin == 0 or first - begin > window - stride


def test_hooks_are_removed_and_the_plain_path_carries_no_extras() -> None:
    model = wrapped("opt", window=8)
    block = next(model.encode(text(12), key="last_ffn_input"))
    assert block.keys is not None and block.max_log_prob is None and block.entropy is None
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.module.modules())
    assert next(model.encode(text(12))).keys is None


@pytest.mark.parametrize("family", CONFIGS)
def test_key_dimension_is_the_width_of_the_keys(family: str) -> None:
    model = wrapped(family, window=8)
    assert isinstance(model, LanguageModel)
    for key in ("last_ffn_input", "last_ffn_output", "last_hidden"):
        assert next(model.encode(text(6), key=key)).keys.shape == (5, model.key_dimension(key))


def test_a_model_without_a_feed_forward_part_is_named() -> None:
    config = MambaConfig(num_hidden_layers=2, hidden_size=16, state_size=4, **SMALL)
    model = CausalLM(AutoModelForCausalLM.from_config(config).eval(), name="state-space", weights_hash="0", window=8)
    with pytest.raises(RequestError, match="'mamba'"):
        model.key_dimension("last_ffn_input")
    with pytest.raises(RequestError, match="'mamba'"):
        list(model.encode(text(5), key="last_ffn_input"))
    assert len(next(model.encode(text(5), key="last_hidden")).log_prob) == 4


def test_load_reads_a_folder_and_tells_models_apart_by_content(tmp_path: Path) -> None:
    random_module("gpt2").save_pretrained(tmp_path / "a")
    random_module("gpt2").save_pretrained(tmp_path / "b")
    other = random_module("gpt2")
    other.lm_head.weight.data[3, 3] += 1
    other.save_pretrained(tmp_path / "c")
    cache = Cache(tmp_path / "cache")
    a, b, c = (CausalLM.load(str(tmp_path / name), window=8, cache=cache) for name in "abc")
    assert a.hash == b.hash != c.hash
    assert CausalLM.load(str(tmp_path / "a"), window=8, stride=8, cache=cache).hash != a.hash
    assert a.weights_hash == CausalLM.load(str(tmp_path / "a"), window=9, cache=cache).weights_hash
    stream = text(20)
    expected = torch.cat([x.log_prob for x in wrapped("gpt2", window=8).encode(stream)])
    torch.testing.assert_close(torch.cat([x.log_prob for x in a.encode(stream)]), expected)


def test_the_hash_covers_what_the_configuration_changes_and_nothing_else(tmp_path: Path) -> None:
    random_module("gpt2").save_pretrained(tmp_path / "a")

    def with_config(name: str, **changes: object) -> CausalLM:
        folder = tmp_path / name
        shutil.copytree(tmp_path / "a", folder)
        config = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps(config))
        return CausalLM.load(str(folder), window=8, cache=Cache(tmp_path / "cache"))

    same = with_config("same", transformers_version="0.0.1")
    assert same.hash == CausalLM.load(str(tmp_path / "a"), window=8, cache=Cache(tmp_path / "cache")).hash
    other = with_config("relu", activation_function="relu")
    assert other.weights_hash == same.weights_hash and other.hash != same.hash
    assert with_config("heads", n_head=4).hash not in (same.hash, other.hash)


def test_the_tokenizer_hash_covers_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    assert tokenizer_hash(tmp_path) == ""
    (tmp_path / "tokenizer.json").write_text("{}")
    before = tokenizer_hash(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "</s>"}')
    assert len({"", before, tokenizer_hash(tmp_path)}) == 3


def test_load_reads_older_bin_weights_and_shards(tmp_path: Path) -> None:
    stream = text(20)
    expected = torch.cat([x.log_prob for x in wrapped("opt", window=8).encode(stream)])
    old, shards = tmp_path / "old", tmp_path / "shards"
    CONFIGS["opt"].save_pretrained(old)
    torch.save(random_module("opt").state_dict(), old / "pytorch_model.bin")
    random_module("opt").save_pretrained(shards, max_shard_size="4KB")
    assert len(weight_files(shards)) > 1
    for folder in (old, shards):
        model = CausalLM.load(str(folder), window=8, cache=Cache(tmp_path / "cache"))
        torch.testing.assert_close(torch.cat([x.log_prob for x in model.encode(stream)]), expected)
    weight_files(shards)[-1].unlink()
    with pytest.raises(RequestError, match="weights"):
        CausalLM.load(str(shards), window=8, cache=Cache(tmp_path / "cache"))


def test_load_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    no_weights = tmp_path / "bare"
    CONFIGS["gpt2"].save_pretrained(no_weights)
    folder = tmp_path / "m"
    random_module("gpt2").save_pretrained(folder)
    truncated = tmp_path / "t"
    random_module("gpt2").save_pretrained(truncated)
    weights = truncated / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    absent = tmp_path / "x"
    wrong = {empty: "config.json", no_weights: "weights", absent: "no model folder", truncated: "cannot be loaded"}
    for path, part in wrong.items():
        with pytest.raises(RequestError, match=part) as caught:
            CausalLM.load(str(path), cache=Cache(tmp_path / "cache"))
        assert "\n" not in str(caught.value)
    with pytest.raises(RequestError, match="64 positions"):
        CausalLM.load(str(folder), window=65, cache=Cache(tmp_path / "cache"))
    with pytest.raises(RequestError, match="stride 9"):
        CausalLM.load(str(folder), window=8, stride=9, cache=Cache(tmp_path / "cache"))
    with pytest.raises(RequestError, match="dtype"):
        CausalLM.load(str(folder), dtype="int8", cache=Cache(tmp_path / "cache"))
    with pytest.raises(RequestError, match="tokenizer"):
        _ = CausalLM.load(str(folder), cache=Cache(tmp_path / "cache")).tokenizer
    if not torch.cuda.is_available():
        with pytest.raises(MachineError, match="CUDA"):
            CausalLM.load(str(folder), device="cuda")


def test_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(RequestError, match="vocabulary"):
        list(wrapped("gpt2", window=8).encode(np.array([1, 61])))
    assert list(wrapped("gpt2", window=8).encode(np.array([1]))) == []


def test_blocks_free_their_memory_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()  # as inside timed regions
    try:
        block = next(wrapped("gpt2", window=8).encode(text(12), key="last_hidden"))
        assert block.log_distribution(torch.tensor([0])).shape == (1, 61) and len(block.log_prob) == 8
        watch = weakref.ref(block.keys)
        hidden = weakref.ref(block._hidden)
        del block
        assert watch() is None and hidden() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "config",
    [
        MptConfig(d_model=16, n_heads=2, n_layers=1, vocab_size=61, max_seq_len=40),
        CTRLConfig(n_embd=16, n_layer=1, n_head=2, dff=16, vocab_size=61, n_positions=40),
    ],
)
def test_the_window_ends_where_the_positions_do_whatever_they_are_called(config) -> None:
    def opened(**window: int) -> CausalLM:
        return CausalLM(AutoModelForCausalLM.from_config(config).eval(), name="tiny", weights_hash="none", **window)

    model = opened()
    assert model.window == 40
    assert sum(len(block.log_prob) for block in model.encode(np.arange(100) % 61)) == 99
    with pytest.raises(RequestError, match="window 41 is longer than the 40 positions of the model tiny"):
        opened(window=41)
