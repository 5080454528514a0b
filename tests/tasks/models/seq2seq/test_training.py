"""Encoder-decoders trained here: they start as copiers, learn, are found in the cache and go on from a model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from harness.errors import RequestError
from harness.measure.artifacts import Cache
from harness.progress import Progress
from harness.training.pairs import Pairs
from tasks.models.seq2seq import training
from tasks.models.seq2seq.training import COPIER, initial_module, trained_encoder_decoder

QUIET = Progress(quiet=True)
TEXTS = ["the old house near the river .", "two books every week .", "my friends have built a new bridge ."]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, subwords_folder):
    """Sentences and the same without `the`: a rule that is soon learned."""
    tokenizer = AutoTokenizer.from_pretrained(subwords_folder)
    texts = [(text, text.replace("the ", "")) for text in TEXTS * 8]
    folder = tmp_path_factory.mktemp("pairs")
    return Pairs.write(folder, [(tokenizer(a)["input_ids"], tokenizer(b)["input_ids"]) for a, b in texts])


def test_an_untrained_model_repeats_its_source(copier_folder):
    tokenizer = AutoTokenizer.from_pretrained(copier_folder)
    module = AutoModelForSeq2SeqLM.from_pretrained(copier_folder).eval()
    source = tokenizer(TEXTS[0], return_tensors="pt").input_ids
    given = torch.cat([torch.zeros_like(source[:, :1]), source[:, :-1]], 1)
    with torch.no_grad():
        predicted = module(input_ids=source, decoder_input_ids=given).logits.argmax(-1)
    assert (predicted == source).float().mean() > 0.7


def test_subwords_know_every_text_and_end_it(subwords_folder):
    tokenizer = AutoTokenizer.from_pretrained(subwords_folder)
    text = "Señor Ünal 's 漢字 , do n't !"
    ids = tokenizer(text)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == text
    assert tokenizer("house")["input_ids"][:-1] == tokenizer("the house")["input_ids"][1:-1]


def test_training_learns_once_and_leaves_a_model_folder(tmp_path, tiny_size, pairs, subwords_folder):
    cache = Cache(tmp_path)
    size = replace(tiny_size, steps=40)
    folder = trained_encoder_decoder(size, pairs, pairs, subwords_folder, cache, progress=QUIET)
    record = json.loads((folder / "training.json").read_text())
    first, last = record["evaluations"][0][1], record["evaluations"][-1][1]
    assert last < 0.7 * first
    assert record["initial_weights"] == COPIER
    assert not (folder / "training.pt").exists()
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert trained_encoder_decoder(size, pairs, pairs, subwords_folder, cache, progress=QUIET) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    module = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert module.generation_config.decoder_start_token_id == module.config.pad_token_id

    further = trained_encoder_decoder(
        replace(size, steps=10), pairs, pairs, folder, cache, start=folder, progress=QUIET
    )
    assert further != folder
    record = json.loads((further / "training.json").read_text())
    assert record["evaluations"][0][1] < 0.7 * first
    assert record["initial_weights"] == f"the model {folder.name}"


def test_another_tokenizer_or_precision_makes_another_model(tmp_path, tiny_size, pairs, subwords_folder, monkeypatch):
    cache = Cache(tmp_path)
    size = replace(tiny_size, steps=1, warmup=1)
    other = tmp_path / "other"
    tokenizer = AutoTokenizer.from_pretrained(subwords_folder)
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(other)

    def made(tokenizer_folder):
        return trained_encoder_decoder(size, pairs, pairs, tokenizer_folder, cache, progress=QUIET)

    first = made(subwords_folder)
    assert made(other) != first
    fast = training.fast_precision("cpu")
    monkeypatch.setattr(training, "fast_precision", lambda device: None if fast else torch.bfloat16)
    assert made(subwords_folder) != first


def test_a_model_that_goes_on_drops_out_as_its_new_size_says(copier_folder, tiny_size):
    tokenizer = AutoTokenizer.from_pretrained(copier_folder)
    source = tokenizer(TEXTS[0], return_tensors="pt").input_ids
    for dropout in (0.5, 0.0):
        module = initial_module(replace(tiny_size, dropout=dropout), tokenizer, copier_folder).train()
        one, two = (module(input_ids=source, decoder_input_ids=source).logits for _ in range(2))
        assert torch.equal(one, two) == (dropout == 0.0)
        module.eval()
        one, two = (module(input_ids=source, decoder_input_ids=source).logits for _ in range(2))
        assert torch.equal(one, two)


def test_pairs_that_are_all_too_long_are_refused(tmp_path, tiny_size, pairs, subwords_folder):
    with pytest.raises(RequestError, match="no training pair fits"):
        trained_encoder_decoder(
            replace(tiny_size, longest=3), pairs, pairs, subwords_folder, Cache(tmp_path), progress=QUIET
        )
