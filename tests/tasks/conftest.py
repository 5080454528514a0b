"""A tiny model folder in the hub's layout that mostly repeats its source, as a fresh model of ours does."""

from __future__ import annotations

import pytest

CLEAN = [
    "The student likes the old house near the river .",
    "My friends have built a new bridge in the village .",
    "She reads two books every week , and he writes letters .",
    "An engineer repaired the machine because it was broken .",
]


@pytest.fixture(scope="session")
def tiny_size():
    from tasks.models.seq2seq.sizes import Size

    return Size(
        vocabulary=400, encoder_layers=1, decoder_layers=1, width=128, feed_forward=64, heads=4, positions=128,
        longest=48, batch_ids=128, steps=12, warmup=2, learning_rate=1e-3,
    )  # fmt: skip


@pytest.fixture(scope="session")
def subwords_folder(tmp_path_factory):
    from harness.common.cache import Cache
    from tasks.models.seq2seq.subwords import trained_subwords

    return trained_subwords(lambda: CLEAN * 3, {"text": "four sentences"}, 400, Cache(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def copier_folder(tmp_path_factory, tiny_size, subwords_folder):
    import torch
    from transformers import AutoTokenizer

    from tasks.models.seq2seq.training import new_module

    folder = tmp_path_factory.mktemp("copier")
    tokenizer = AutoTokenizer.from_pretrained(subwords_folder)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    new_module(tiny_size, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def relative_folder(tmp_path_factory, subwords_folder):
    """A T5, whose relative positions have no end."""
    from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

    folder = tmp_path_factory.mktemp("relative")
    AutoTokenizer.from_pretrained(subwords_folder).save_pretrained(folder)
    shape = {"vocab_size": 400, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, **shape)).save_pretrained(folder)
    return folder
