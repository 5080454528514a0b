"""Small real objects: random GPT-2 models in float64 with a word tokenizer, and random passages of its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from harness.common.cache import Cache, CellArtifacts
from tasks.models.pretrained.language import CausalLM

WORDS = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(60)]
END = "end"
WINDOW = 96


@dataclass(eq=False)
class Model:
    """A `harness.contracts.GenerationModel`."""

    module: Any
    tokenizer: Any
    eos_ids: tuple[int, ...]
    language_model: CausalLM
    name: str = "random"
    hash: str = "random"
    kind: str = "causal"
    start_id: int = 0
    window: int = WINDOW
    device: str = "cpu"

    @property
    def vocabulary_size(self) -> int:
        return len(self.tokenizer)


def make_model(seed: int = 0, dtype: torch.dtype = torch.float64) -> Model:
    """A random GPT-2 of two blocks over the words above."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate([END, *WORDS])}, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = GPT2Config(
            vocab_size=len(WORDS) + 1, n_positions=WINDOW, n_embd=16, n_layer=2, n_head=2, initializer_range=0.6,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        module = GPT2LMHeadModel(config).to(dtype).eval()
    return Model(module, fast, (0,), CausalLM(module, name="random", weights_hash=str(seed), tokenizer_hash="words"))


def make_passages(seed: int, number: int, repeats: int = 0) -> list[str]:
    """Passages of 2 to 12 words; `repeats` of them occur twice."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, rng.integers(2, 13))) for _ in range(number)]
    return texts + texts[:repeats]


@pytest.fixture(scope="session")
def model() -> Model:
    return make_model()


@pytest.fixture(scope="session")
def artifacts_root(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def artifacts(artifacts_root: Cache) -> CellArtifacts:
    return CellArtifacts(artifacts_root)
