"""Encoder-decoders trained here: they start as copiers, learn, are found in the cache and go on from a model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.common.training.pairs import Pairs
from tasks.models.seq2seq import training
from tasks.models.seq2seq.training import (
    COPIER,
    RANDOM,
    batch_of,
    edited,
    initial_module,
    mean_loss,
    new_module,
    trained_seq2seq,
)

QUIET = Progress(quiet=True)
TEXTS = ["the old house near the river .", "two books every week .", "my friends have built a new bridge ."]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, subwords_folder):
    """Sentences and the same without `the`: a rule that is soon learned."""
    tokenizer = AutoTokenizer.from_pretrained(subwords_folder)
    texts = [(text, text.replace("the ", "")) for text in TEXTS * 8]
    folder = tmp_path_factory.mktemp("pairs")
    return Pairs.write(folder, [(tokenizer(a)["input_ids"], tokenizer(b)["input_ids"]) for a, b in texts])


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
    folder = trained_seq2seq(size, pairs, pairs, subwords_folder, cache, progress=QUIET)
    record = json.loads((folder / "training.json").read_text())
    first, last = record["evaluations"][0][1], record["evaluations"][-1][1]
    assert last < 0.7 * first
    assert record["initial_weights"] == COPIER
    assert not (folder / "training.pt").exists()
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert trained_seq2seq(size, pairs, pairs, subwords_folder, cache, progress=QUIET) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    module = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert module.generation_config.decoder_start_token_id == module.config.pad_token_id

    further = trained_seq2seq(replace(size, steps=10), pairs, pairs, folder, cache, start=folder, progress=QUIET)
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
        return trained_seq2seq(size, pairs, pairs, tokenizer_folder, cache, progress=QUIET)

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
        trained_seq2seq(replace(tiny_size, longest=3), pairs, pairs, subwords_folder, Cache(tmp_path), progress=QUIET)


def test_edited_places_are_those_where_repeating_the_source_would_be_wrong():
    source = [5, 6, 7, 8, 9, 1]
    assert edited(source, source) == []
    assert edited(source, [5, 6, 30, 8, 9, 1]) == [2]  # replaced
    assert edited(source, [5, 6, 30, 7, 8, 9, 1]) == [2]  # inserted
    assert edited(source, [5, 6, 8, 9, 1]) == [2]  # 7 left out: 8 comes where 7 would
    assert edited(source, [5, 6, 7, 8, 9]) == []  # nothing stands behind what was left out
    assert edited([7, 7, 8, 1], [7, 8, 1]) == [1]  # a doubled 7: the first is still right
    assert edited([7, 8, 1], [7, 7, 8, 1]) == [1]
    assert edited([5, 6, 5, 6, 9, 1], [5, 6, 9, 1]) == [2]


def test_edited_targets_weigh_more_in_the_loss(tiny_size):
    pairs = [([5, 6, 7, 1], [5, 30, 7, 1]), ([8, 9, 1], [8, 9, 1])]
    plain, weighted = (batch_of(pairs, 0, 0, "cpu", weight) for weight in (1.0, 4.0))
    assert plain.weights.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert weighted.weights.tolist() == [[1, 4, 1, 1], [1, 1, 1, 0]]
    torch.manual_seed(0)
    module = new_module(tiny_size, 40, 0, 1).eval()
    with torch.no_grad():
        logits = module(
            input_ids=plain.sources, attention_mask=(plain.sources != 0).long(), decoder_input_ids=plain.inputs
        ).logits
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), plain.targets.flatten(), reduction="none")
        for batch in (plain, weighted):
            weights = batch.weights.flatten()
            wanted = (losses * weights).sum() / weights.sum()
            torch.testing.assert_close(mean_loss(module, batch, 0, 0.0), wanted)


def test_a_causal_model_learns_what_follows_its_source(tmp_path, tiny_size, pairs, subwords_folder):
    batch = batch_of([([5, 6, 1], [7, 1]), ([8, 1], [8, 9, 1])], 0, None, "cpu", 4.0)
    assert batch.sources is None
    assert batch.inputs.tolist() == [[5, 6, 1, 7], [8, 1, 8, 9]]
    assert batch.targets.tolist() == [[6, 1, 7, 1], [1, 8, 9, 1]]
    assert batch.weights.tolist() == [[0, 0, 4, 1], [0, 1, 4, 1]]
    size = replace(tiny_size, encoder_layers=0, steps=30)
    folder = trained_seq2seq(size, pairs, pairs, subwords_folder, Cache(tmp_path), progress=QUIET)
    record = json.loads((folder / "training.json").read_text())
    assert record["initial_weights"] == RANDOM
    assert record["evaluations"][-1][1] < 0.7 * record["evaluations"][0][1]
    module = AutoModelForCausalLM.from_pretrained(folder)
    assert not module.config.is_encoder_decoder
    further = trained_seq2seq(
        replace(size, steps=2), pairs, pairs, folder, Cache(tmp_path), start=folder, progress=QUIET
    )
    assert json.loads((further / "training.json").read_text())["initial_weights"] == f"the model {folder.name}"


def test_a_model_that_is_no_copier_does_not_repeat_its_source(tiny_size):
    source = torch.arange(5, 20)[None]
    given = torch.cat([torch.zeros_like(source[:, :1]), source[:, :-1]], 1)
    shares = []
    for copies in (True, False):
        torch.manual_seed(0)
        module = new_module(replace(tiny_size, copies=copies), 40, 0, 1).eval()
        with torch.no_grad():
            predicted = module(input_ids=source, decoder_input_ids=given).logits.argmax(-1)
        shares.append(float((predicted == source).float().mean()))
    assert shares[0] > 0.7 > 0.3 > shares[1]
