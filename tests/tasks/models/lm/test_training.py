"""Models trained here are cached by content, resume, learn, and load like any hub model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.common.training.optimizers import Name
from tasks.data.text import Source, Split
from tasks.models.lm import training
from tasks.models.lm.sizes import SIZES, Size
from tasks.models.lm.training import trained_model, trained_tokenizer, training_windows
from tasks.models.pretrained.language import CausalLM
from tasks.models.trained import size_to_train

TINY = Size(vocabulary=280, layers=1, width=16, window=16, batch=4, steps=60, learning_rate=1e-2)
QUIET = Progress(quiet=True)


class Counting(Source):
    """A text whose next word is certain."""

    def __init__(self, words: str = "one two three four five ") -> None:
        self.name = "counting"
        self.words = words

    def fingerprint(self, split: Split) -> dict[str, str]:
        return {"words": self.words}

    def documents(self, split: Split) -> Sequence[str]:
        return [self.words * 60] * 3


def make(source: Source, cache: Cache, seed: int = 0, size: Size = TINY) -> Path:
    return trained_model("tiny", size, source, cache, progress=QUIET, seed=seed)


def test_a_trained_model_is_cached_by_text_size_and_seed_and_predicts(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    folder = make(Counting(), cache)
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert make(Counting(), cache) == folder and (folder / "model.safetensors").stat().st_mtime_ns == stamp
    assert make(Counting("six seven "), cache) != folder != make(Counting(), cache, seed=1)
    record = json.loads((folder / "training.json").read_text())
    assert record["seen_tokens"] == 60 * 4 * 16 and not (folder / "training.pt").exists()
    model = CausalLM.load(str(folder), cache=cache)
    assert model.window == 16 and model.start_id == model.tokenizer.convert_tokens_to_ids(training.END)
    ids = np.array([model.start_id, *model.tokenizer.encode(Counting().words * 8)])
    losses = torch.cat([-block.log_prob for block in model.encode(ids)])
    assert losses.mean() < 0.5 * np.log(model.vocabulary_size)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_interrupted_training_resumes_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: Name
) -> None:
    plan, size = training.Plan, replace(TINY, optimizer=optimizer)
    monkeypatch.setattr(training, "Plan", lambda **keywords: plan(**keywords, checkpoint_seconds=0.0))
    whole = make(Counting(), Cache(tmp_path / "whole"), size=size)
    cut = training_windows

    def stops_at_35(*arguments: object) -> object:
        at = cut(*arguments)  # type: ignore[arg-type]

        def batch(step: int) -> object:
            if step == 35:
                raise KeyboardInterrupt
            return at(step)

        return batch

    cache = Cache(tmp_path / "interrupted")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "training_windows", stops_at_35)
        make(Counting(), cache, size=size)
    steps: list[int] = []

    def watched(*arguments: object) -> object:
        at = cut(*arguments)  # type: ignore[arg-type]
        return lambda step: (steps.append(step), at(step))[1]

    monkeypatch.setattr(training, "training_windows", watched)
    resumed = make(Counting(), cache, size=size)
    assert steps[0] == 30
    assert (whole / "model.safetensors").read_bytes() == (resumed / "model.safetensors").read_bytes()


def test_the_tokenizer_round_trips_any_text_and_is_reproducible(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folders = [trained_tokenizer(300, Counting(), Cache(tmp_path / name)) for name in "ab"]
    assert len({(folder / "tokenizer.json").read_bytes() for folder in folders}) == 1
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    for text in ("one two", " – naïve 猫\n\n\t x  ", "<unk> @-@"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_streams_begin_with_bos_else_eos_else_a_newline(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    folder = make(Counting(), Cache(tmp_path))
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = CausalLM.load(str(folder), cache=Cache(tmp_path))
    model.tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, eos_token="e")
    assert model.start_id == model.tokenizer.eos_token_id
    model.tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary)
    assert model.tokenizer.decode([model.start_id]) == "\n"


def test_training_windows_depend_on_seed_and_step_alone_and_cover_an_epoch() -> None:
    tokens = np.arange(1000)
    at = training_windows(tokens, window=10, batch=4, seed=1)
    assert np.array_equal(at(7), training_windows(tokens, 10, 4, 1)(7))
    assert not np.array_equal(at(7), training_windows(tokens, 10, 4, 2)(7))
    epoch = np.concatenate([at(step) for step in range(24)])
    assert epoch.shape == (96, 11) and len(np.unique(epoch[:, 0])) == 96
    assert (np.diff(epoch, axis=1) == 1).all() and epoch.max() < 1000
    with pytest.raises(ValueError, match="too few"):
        training_windows(np.arange(20), window=10, batch=4, seed=0)


def test_an_unknown_size_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"did you mean 'train:mini'"):
        size_to_train("train:miny", SIZES)


def test_too_little_text_is_named_with_the_size(tmp_path: Path) -> None:
    class Short(Counting):
        def documents(self, split: Split) -> Sequence[str]:
            return ["one two three"]

    with pytest.raises(RequestError, match=r"split of counting is too small for the model train:tiny: \d+ tok"):
        make(Short(), Cache(tmp_path))
