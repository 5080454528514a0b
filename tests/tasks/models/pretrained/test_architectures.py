"""Keys of the architectures whose last block does not look like GPT-2's: mixtures of experts, mixers without
attention, a language model inside a larger one; and those that are no causal language model.

Every model is random, tiny and loaded from a folder in the hub's layout.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    BertConfig,
    Gemma3Config,
    Gemma3TextConfig,
    GptOssConfig,
    JambaConfig,
    MixtralConfig,
    OlmoeConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
)

from harness.common.cache import Cache
from harness.common.errors import RequestError
from tasks.models.pretrained.generation import TextGenerator
from tasks.models.pretrained.language import CausalLM

VOCABULARY = 61
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 24, "max_position_embeddings": 64, "vocab_size": VOCABULARY, "bos_token_id": 0,
    "eos_token_id": 0, "pad_token_id": 0, "num_experts_per_tok": 2,
}  # fmt: skip
MAMBA = {"mamba_d_state": 4, "mamba_d_conv": 2, "mamba_dt_rank": 4, "num_experts": 4, "attn_layer_period": 2}
EXPERTS: dict[str, Callable[[], PretrainedConfig]] = {
    "mixtral": lambda: MixtralConfig(num_local_experts=4, **SMALL),
    "qwen3_moe": lambda: Qwen3MoeConfig(
        num_experts=4, moe_intermediate_size=8, head_dim=8, norm_topk_prob=True, **SMALL
    ),
    "gpt_oss": lambda: GptOssConfig(num_local_experts=4, head_dim=8, **SMALL),
    "olmoe": lambda: OlmoeConfig(num_experts=4, norm_topk_prob=True, **SMALL),
    "jamba": lambda: JambaConfig(attn_layer_offset=0, **MAMBA, **SMALL),  # ends in a Mamba block with experts
    "jamba-attention": lambda: JambaConfig(attn_layer_offset=1, **MAMBA, **SMALL),
}


def gemma3(towers: int = 1) -> Gemma3Config:
    """A language model of two layers inside a model that sees images by `towers` layers."""
    text = Gemma3TextConfig(head_dim=8, sliding_window=32, **{k: v for k, v in SMALL.items() if "expert" not in k})
    seeing = {"hidden_size": 16, "num_hidden_layers": towers, "num_attention_heads": 2, "intermediate_size": 16}
    places = {"boi_token_index": 58, "eoi_token_index": 59, "image_token_index": 60}
    return Gemma3Config(
        text_config=text.to_dict(), vision_config={**seeing, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4, **places,
    )  # fmt: skip


def saved(folder: Path, config: PretrainedConfig, family: type = AutoModelForCausalLM) -> PreTrainedModel:
    """A random model of this configuration, saved in `folder`."""
    torch.manual_seed(0)
    module = family.from_config(config).eval()
    for parameter in module.parameters():  # the usual initialisation is nearly uniform; make the answers differ
        parameter.data.normal_(0, 0.3)
    module.save_pretrained(folder)
    return module


def text(length: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY - 5, length)


def experts_by_hand(kind: str, part: torch.nn.Module, hidden: torch.Tensor, top: int = 2) -> torch.Tensor:
    """The answer of the last block's experts to hidden states [t, d], token by token and expert by expert."""
    router, experts = getattr(part, "router", None) or part.gate, part.experts
    answers = []
    for state in hidden:
        logits = router.weight @ state + (router.bias if kind == "gpt_oss" else 0)
        chosen = logits.topk(top).indices
        weights = logits[chosen].softmax(0)
        if kind == "jamba":  # not made to sum to 1
            weights = logits.softmax(0)[chosen]
        answer = torch.zeros_like(state)
        for weight, expert in zip(weights, chosen, strict=True):
            up, down = experts.gate_up_proj[expert], experts.down_proj[expert]
            if kind == "gpt_oss":
                both = state @ up + experts.gate_up_proj_bias[expert]
                gate, linear = both[::2].clamp(max=7.0), both[1::2].clamp(-7.0, 7.0)
                out = ((linear + 1) * gate * torch.sigmoid(1.702 * gate)) @ down + experts.down_proj_bias[expert]
            else:
                gate, linear = (up @ state).chunk(2)
                out = down @ (functional.silu(gate) * linear)
            answer += weight * out
        answers.append(answer)
    return torch.stack(answers)


def normed(norm: torch.nn.Module, hidden: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm with a plain weight."""
    return norm.weight * hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + eps)


@pytest.mark.parametrize("family", EXPERTS)
def test_keys_of_a_mixture_of_experts_are_what_its_router_reads_and_its_experts_answer(
    family: str, tmp_path: Path
) -> None:
    """What enters and leaves the experts, computed by hand from the block's own output: out = residual + experts(x),
    x = norm(residual)."""
    saved(tmp_path / "model", EXPERTS[family]())
    model = CausalLM.load(str(tmp_path / "model"), window=16, cache=Cache(tmp_path / "cache"))
    kind, stream = model.model_type, text(13)
    [block] = model.encode(stream, key="last_ffn_input")
    [outputs] = model.encode(stream, key="last_ffn_output")
    assert block.keys.shape == outputs.keys.shape == (12, 16) == (12, model.key_dimension("last_ffn_input"))
    last = model.module.model.layers[-1]
    part = last.feed_forward if kind == "jamba" else last.mlp
    left: list[torch.Tensor] = []
    with torch.no_grad():
        handle = last.register_forward_hook(lambda _, __, out: left.append(out))
        expected = model.module(torch.tensor(stream[None, :-1])).logits[0].log_softmax(-1)
        handle.remove()
        answers = experts_by_hand(kind, part, block.keys)
        torch.testing.assert_close(outputs.keys, answers, rtol=1e-4, atol=1e-4)
        residual = left[0].reshape(12, 16) - answers
        norm = last.pre_ff_layernorm if kind == "jamba" else last.post_attention_layernorm
        torch.testing.assert_close(block.keys, normed(norm, residual, norm.variance_epsilon), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(block.log_prob, expected[range(12), stream[1:]], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("towers", [1, 4])
def test_a_language_model_inside_a_larger_one_is_read_as_if_it_stood_alone(towers: int, tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole", gemma3(towers), AutoModelForImageTextToText)
    alone = AutoModelForCausalLM.from_config(whole.config.text_config).eval()
    alone.model.load_state_dict(whole.model.language_model.state_dict())
    alone.save_pretrained(tmp_path / "alone")
    one, other = (
        CausalLM.load(str(tmp_path / name), window=8, cache=Cache(tmp_path / "cache")) for name in ("whole", "alone")
    )
    assert (one.model_type, one.vocabulary_size) == ("gemma3", VOCABULARY)
    for key in ("last_ffn_input", "last_ffn_output", "last_hidden"):
        assert one.key_dimension(key) == 16
        for ours, theirs in zip(one.encode(text(30), key=key), other.encode(text(30), key=key), strict=True):
            torch.testing.assert_close(ours.keys, theirs.keys, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(ours.log_prob, theirs.log_prob, rtol=1e-5, atol=1e-5)
    with pytest.raises(RequestError, match="64 positions"):
        CausalLM.load(str(tmp_path / "whole"), window=65, cache=Cache(tmp_path / "cache"))


def test_the_hash_of_a_nested_configuration_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        saved(tmp_path / name, gemma3(), AutoModelForImageTextToText)
    one, other = (CausalLM.load(str(tmp_path / x), window=8, cache=Cache(tmp_path / "cache")) for x in ("a", "b"))
    assert one.hash == other.hash


def test_a_generator_takes_its_window_from_the_nested_configuration(
    tmp_path: Path, subwords_folder: Path, cache_home: Path
) -> None:
    saved(tmp_path / "whole", gemma3(), AutoModelForImageTextToText)
    AutoTokenizer.from_pretrained(subwords_folder).save_pretrained(tmp_path / "whole")
    model = TextGenerator.load(str(tmp_path / "whole"))
    assert (model.kind, model.window) == ("causal", 64)
    assert model.language_model is not None and model.language_model.key_dimension("last_ffn_input") == 16


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_whose_tokens_see_later_ones_is_not_causal(dtype: str, tmp_path: Path) -> None:
    shape = {name: SMALL[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}
    saved(tmp_path / "bert", BertConfig(intermediate_size=24, **shape))
    with pytest.raises(RequestError, match="of type 'bert' is not a causal language model"):
        CausalLM.load(str(tmp_path / "bert"), window=8, dtype=dtype, cache=Cache(tmp_path / "cache"))


def test_a_layer_before_the_output_layer_is_refused_for_what_it_is(tmp_path: Path) -> None:
    shape = {name: SMALL[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}
    saved(tmp_path / "decoder", BertConfig(intermediate_size=24, is_decoder=True, **shape))
    with pytest.raises(RequestError, match="'bert' has logits that are not its output layer times its last hidden"):
        CausalLM.load(str(tmp_path / "decoder"), window=8, cache=Cache(tmp_path / "cache"))


@pytest.mark.parametrize("family", ["mixtral", "jamba"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rounding_is_not_taken_for_seeing_later_tokens(family: str, dtype: str, tmp_path: Path) -> None:
    saved(tmp_path / "model", EXPERTS[family]())
    model = CausalLM.load(str(tmp_path / "model"), window=8, dtype=dtype, cache=Cache(tmp_path / "cache"))
    assert model.key_dimension("last_ffn_input") == 16
