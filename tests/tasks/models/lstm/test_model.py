"""Word LSTMs: hidden states, losses, training that resumes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from tasks.models.lstm import model as lstm
from tasks.models.lstm.recurrence import unrolled
from tasks.models.lstm.sizes import SIZES, Size

TINY = Size(width=16, dropout=0.1, initial=0.1, batch=4, bptt=8, epochs=2, steady=1, decay=2, clip=5)
SHORT = Size(width=16, dropout=0.1, initial=0.1, batch=4, bptt=8, epochs=2, clip=0.5, peak=0.01, tied=True)
TYPES = [f"w{i}" for i in range(20)]


def text(n: int, seed: int = 0) -> np.ndarray:
    """Ids that mostly count upwards: easy to predict."""
    rng = np.random.default_rng(seed)
    return (np.cumsum(np.where(rng.random(n) < 0.9, 1, 7)) % 20).astype(np.int32)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return lstm.WordLSTM(20, width=16, layers=2, dropout=0.1).eval()


def read(model, ids, streams):
    """Hidden states and the words that follow, in the order of their rows."""
    blocks = list(lstm.hidden_states(model, ids, streams, Progress(quiet=True), "reading"))
    rows, states, targets = (np.concatenate([block[part] for block in blocks], axis=1) for part in range(3))
    order = np.argsort(rows, axis=None)
    np.testing.assert_array_equal(rows.ravel()[order], np.arange(rows.size))
    return states.reshape(-1, 16)[order], targets.ravel()[order]


def test_hidden_states_of_streams_are_those_of_reading_each_piece_alone(model):
    ids = text(903)
    states, targets = read(model, ids, 3)
    for piece in range(3):
        words = torch.from_numpy(ids[piece * 301 : (piece + 1) * 301].astype(np.int64))
        with torch.no_grad():
            alone, _ = model(words[:-1, None])
        np.testing.assert_allclose(states[piece * 300 : (piece + 1) * 300], alone[:, 0], atol=1e-6)
        np.testing.assert_array_equal(targets[piece * 300 : (piece + 1) * 300], words[1:])


def test_mean_loss_is_that_of_the_output_layer_on_the_hidden_states(model):
    ids = text(501)
    states, targets = read(model, ids, 1)
    logits = states @ model.output.weight.detach().numpy().T + model.output.bias.detach().numpy()
    expected = np.mean(np.logaddexp.reduce(logits, axis=1) - logits[np.arange(500), targets])
    assert lstm.mean_loss(model, ids, 1) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("size", [replace(TINY, steady=5), SHORT], ids=["sgd", "adam"])
def test_training_learns_and_the_folder_gives_the_model_back(tmp_path, size):
    cache = Cache(tmp_path)
    arguments = ("tiny", replace(size, dropout=0.0, epochs=6), TYPES, text(4000), text(800, 1), cache)
    folder = lstm.trained_lstm(*arguments)
    model, types = lstm.load_lstm(folder)
    assert types == TYPES and (model.output.weight is model.embedding.weight) == bool(size.tied)
    assert lstm.mean_loss(model, text(800, 2), 20) < 0.5 * math.log(20)
    record = json.loads((folder / "training.json").read_text())
    assert [epoch for epoch, _ in record["validation_perplexity"]] == [1, 2, 3, 4, 5, 6]
    assert not (folder / "training.pt").exists()
    assert lstm.trained_lstm(*arguments) == folder


@pytest.mark.parametrize("size", [TINY, SHORT], ids=["sgd", "adam"])
def test_an_interrupted_training_ends_in_the_same_weights(tmp_path, monkeypatch, size):
    arguments = ("tiny", size, TYPES, text(2000), text(400, 1))
    whole, _ = lstm.load_lstm(lstm.trained_lstm(*arguments, Cache(tmp_path / "a")))

    original = lstm.train

    class KilledError(Exception):
        pass

    def killed(module, loss, batches, optimizer, plan, **more):
        def until(step):
            if step == 70:
                raise KilledError
            return batches(step)

        quick = type(plan)(**{name: getattr(plan, name) for name in plan.__slots__} | {"checkpoint_seconds": 0.0})
        return original(module, loss, until, optimizer, quick, **more)

    monkeypatch.setattr(lstm, "train", killed)
    with pytest.raises(KilledError):
        lstm.trained_lstm(*arguments, Cache(tmp_path / "b"))
    monkeypatch.setattr(lstm, "train", original)
    resumed, _ = lstm.load_lstm(lstm.trained_lstm(*arguments, Cache(tmp_path / "b")))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_the_layer_unrolled_by_hand_has_the_values_and_gradients_of_the_library_s():
    torch.manual_seed(0)
    layers = torch.nn.LSTM(6, 6, 2).double()
    words = torch.randn(5, 3, 6, dtype=torch.double, requires_grad=True)
    state = (torch.randn(2, 3, 6, dtype=torch.double), torch.randn(2, 3, 6, dtype=torch.double))

    def values(output, reached):
        loss = output.sin().sum() + (reached[1] ** 2).sum() + (reached[0] ** 3).sum()
        return output, *reached, *torch.autograd.grad(loss, [words, *layers.parameters()])

    by_hand, by_torch = values(*unrolled(layers, words, state, torch.double)), values(*layers(words, state))
    for ours, theirs in zip(by_hand, by_torch, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_size_states_nothing_that_it_has_not_so_that_new_fields_leave_trained_models_valid():
    assert SIZES["mini"].stated() == {
        "width": 96, "layers": 2, "dropout": 0.1, "initial": 0.1, "batch": 20, "bptt": 25, "epochs": 2, "steady": 1,
        "decay": 4, "clip": 5,
    }  # fmt: skip
    assert "peak" in SIZES["ptb-large-short"].stated()


def test_what_cannot_be_trained_or_loaded_is_refused(tmp_path):
    with pytest.raises(RequestError, match="too few to train"):
        lstm.trained_lstm("tiny", TINY, TYPES, text(30), text(400), Cache(tmp_path))
    with pytest.raises(RequestError, match="is not an LSTM trained here"):
        lstm.load_lstm(tmp_path)
