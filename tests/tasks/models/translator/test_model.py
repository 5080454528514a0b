"""LSTM translators: reading, teacher forcing, training that resumes, translating."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache
from harness.common.cores import usable_cores
from harness.common.errors import RequestError
from harness.common.progress import Progress
from tasks.data.sentences import END, MARKS
from tasks.models.beam_search import Search
from tasks.models.translator import model as lstm
from tasks.models.translator.decoding import full_softmax, translate
from tasks.models.translator.sizes import Size

WORDS = 12
TINY = Size(width=16, dropout=0.1, batch=8, epochs=2, learning_rate=1e-2, warmup=5)
TYPES = [*MARKS, *(f"w{i}" for i in range(WORDS - len(MARKS)))]
QUIET = Progress(quiet=True)


def reversals(n: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Pairs to learn: every word becomes the next one, in reverse order."""
    rng = np.random.default_rng(seed)
    sources = [rng.integers(2, WORDS, int(rng.integers(1, 5))).tolist() for _ in range(n)]
    return [(s, [2 + (w - 1) % (WORDS - 2) for w in reversed(s)]) for s in sources]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = lstm.Translator(WORDS, WORDS, width=16, layers=2, dropout=0.1).eval()
    with torch.no_grad():
        made.output.weight.mul_(8)  # otherwise every distribution is nearly flat
    return made


def translated(model, sources, beam=1, limit=20, penalty=1.0, **more):
    search = Search(beam=beam, limit=limit, length_penalty=penalty)
    return translate(model, sources, full_softmax(model), search, progress=QUIET, stage="test", **more)


@torch.no_grad()
def greedy(model, source, limit):
    """Argmax of the full log-softmax, the whole prefix read again for every word."""
    words: list[int] = []
    for _ in range(min(limit, 2 * len(source) + 10)):
        contexts = model(lstm.source_tensor([source], "cpu"), torch.tensor([[END, *words]]).T)
        best = int(torch.log_softmax(model.output(contexts[-1, 0]), -1).argmax())
        if best == END:
            break
        words.append(best)
    return tuple(words)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(st.integers(0, WORDS - 1), max_size=6), min_size=1, max_size=6), st.integers(0, 12))
def test_a_beam_of_one_with_the_exact_softmax_is_plain_greedy_decoding(model, sources, limit):
    found = translated(model, sources, limit=limit)
    assert [hypothesis.words for hypothesis in found] == [greedy(model, source, limit) for source in sources]


def test_sentences_searched_together_come_out_as_alone(model):
    sources = [[3, 4], [5, 6], [7, 8, 9], [3], [9, 2]]
    together, alone = (translated(model, sources, beam=3, side_by_side=n) for n in (32, 1))
    assert [h.words for h in together] == [h.words for h in alone]


def test_the_empty_sentence_one_word_and_unknown_words_translate(model):
    for source in ([], [5], [1, 1, 1]):
        (hypothesis,) = translated(model, [source], beam=2)
        assert len(hypothesis.words) <= 2 * len(source) + 10
        assert np.isfinite(hypothesis.log_prob)
    assert translated(model, [[5, 6]], limit=0)[0].words == ()


def test_decoder_states_are_those_of_reading_each_pair_alone(model):
    pairs = reversals(30)
    seen = {}
    for position, contexts, targets in lstm.decoder_states(model, pairs, QUIET, "reading"):
        source, target = pairs[position]
        with torch.no_grad():
            alone = model(lstm.source_tensor([source], "cpu"), torch.tensor([[END, *target]]).T)[:, 0]
        np.testing.assert_allclose(contexts, alone, atol=1e-6)
        assert targets.tolist() == [*target, END]
        seen[position] = True
    assert sorted(seen) == list(range(30))


def test_mean_loss_is_that_of_the_output_layer_on_the_decoder_states(model):
    pairs, losses = reversals(40), []
    for _, contexts, targets in lstm.decoder_states(model, pairs, QUIET, "reading"):
        logits = contexts @ model.output.weight.detach().numpy().T + model.output.bias.detach().numpy()
        losses += (np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(targets)), targets]).tolist()
    assert lstm.mean_loss(model, pairs) == pytest.approx(np.mean(losses), abs=1e-5)


def test_every_epoch_sees_every_pair_once_in_other_batches():
    pairs = reversals(60)
    per_epoch, batch = lstm._batches(pairs, WORDS, replace(TINY, unknown=0.0), 0, "cpu")
    epochs = []
    for epoch in range(2):
        columns = [batch(epoch * per_epoch + step)[0].T.tolist() for step in range(per_epoch)]
        epochs.append([tuple(column[:-1]) for group in columns for column in group])
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(tuple(source) for source, _ in pairs)
    assert epochs[0] != epochs[1]


def test_rare_words_are_sometimes_read_as_unknown_and_frequent_ones_never():
    pairs = [([2, 3], [4]) for _ in range(20)] + [([5, 3], [4])]
    per_epoch, batch = lstm._batches(pairs, WORDS, replace(TINY, unknown=0.5), 0, "cpu")
    read = [word for step in range(40 * per_epoch) for word in batch(step)[0][:-1].flatten().tolist()]
    assert 0 < read.count(1) == 40 - read.count(5) < 40
    assert read.count(2) == 40 * 20


def test_training_learns_and_the_folder_gives_the_model_back(tmp_path):
    size = replace(TINY, width=32, dropout=0.0, batch=16, epochs=12, learning_rate=2e-2)
    arguments = ("tiny", size, TYPES, TYPES, reversals(600), reversals(40, 1), Cache(tmp_path))
    folder = lstm.trained_translator(*arguments)
    model, left, right = lstm.load_translator(folder)
    assert left == right == TYPES
    test = reversals(50, 2)
    found = translated(model, [source for source, _ in test], beam=2)
    assert sum(list(h.words) == target for h, (_, target) in zip(found, test, strict=True)) >= 40, found
    record = json.loads((folder / "training.json").read_text())
    assert [epoch for epoch, _ in record["validation_perplexity"]] == list(range(1, 13))
    assert record["threads"] == usable_cores()
    assert not (folder / "training.pt").exists()
    assert lstm.trained_translator(*arguments) == folder


def test_an_interrupted_training_ends_in_the_same_weights(tmp_path, monkeypatch):
    arguments = ("tiny", TINY, TYPES, TYPES, reversals(150), reversals(20, 1))
    whole, *_ = lstm.load_translator(lstm.trained_translator(*arguments, Cache(tmp_path / "a")))
    original = lstm.train

    class KilledError(Exception):
        pass

    def killed(module, loss, batches, optimizer, plan, **more):
        def until(step):
            if step == 25:
                raise KilledError
            return batches(step)

        return original(module, loss, until, optimizer, replace(plan, checkpoint_seconds=0.0), **more)

    monkeypatch.setattr(lstm, "train", killed)
    with pytest.raises(KilledError):
        lstm.trained_translator(*arguments, Cache(tmp_path / "b"))
    monkeypatch.setattr(lstm, "train", original)
    assert list((tmp_path / "b").rglob("training.pt"))
    resumed, *_ = lstm.load_translator(lstm.trained_translator(*arguments, Cache(tmp_path / "b")))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_search_keeps_to_one_thread_and_gives_the_others_back(model):
    from threadpoolctl import threadpool_info

    def threads():
        return {torch.get_num_threads(), *(library["num_threads"] for library in threadpool_info())}

    seen, exact = set(), full_softmax(model)

    def watched(context, k):
        seen.update(threads())
        return exact(context, k)

    torch.set_num_threads(2)
    translate(model, [[3, 4]], watched, Search(beam=1, limit=3), progress=QUIET, stage="test")
    assert seen == {1}
    assert torch.get_num_threads() == 2


def test_what_cannot_be_trained_or_loaded_is_refused(tmp_path):
    with pytest.raises(RequestError, match="no pairs to train"):
        lstm.trained_translator("tiny", TINY, TYPES, TYPES, [], reversals(5), Cache(tmp_path))
    with pytest.raises(RequestError, match="is not a translator trained here"):
        lstm.load_translator(tmp_path)
    whole = lstm.trained_translator(
        "tiny", replace(TINY, epochs=1), TYPES, TYPES, reversals(20), reversals(5), Cache(tmp_path)
    )
    weights = whole / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(RequestError, match="is not a translator trained here"):
        lstm.load_translator(whole)
