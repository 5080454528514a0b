"""Streams are cut between words, counted exactly, chosen by seed, and read back from the cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from tasks.data.streams import Selection, pieces, streams
from tasks.data.text import Source, Split
from tasks.data.text.articles import count_words
from tasks.models.lm.training import trained_tokenizer

QUIET = Progress(quiet=True)


class Numbers(Source):
    """Documents made of number words over several lines."""

    name = "numbers"
    read = 0

    def fingerprint(self, split: Split) -> dict[str, str]:
        return {"source": "numbers", "split": split}

    def documents(self, split: Split) -> Sequence[str]:
        self.read += 1
        return [f" = {n} =\n\n" + "".join(f"{k} and {k * k}\n" for k in range(n, n + 40)) for n in range(0, 200, 10)]


class Model:
    """The tokenizer's side of a model."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self.name, self.tokenizer_hash = "test", "t"
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.start_id = self.tokenizer.bos_token_id


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(trained_tokenizer(300, Numbers(), Cache(tmp_path_factory.mktemp("tokenizer"))))


@given(st.text(alphabet="ab \n", max_size=80).filter(str.strip), st.integers(1, 9))
@settings(deadline=None, max_examples=60)
def test_pieces_cover_the_text_between_words(text: str, limit: int) -> None:
    def lengths(words: Sequence[str]) -> list[int]:
        return [len(word) for word in words]

    spans = list(pieces(text, limit, lengths))
    assert "".join(text[a:b] for a, b in spans) == text
    assert sum(count_words(text[a:b]) for a, b in spans) == count_words(text)
    assert all(b - a <= limit or len(text[a:b].split()) == 1 for a, b in spans)


def test_text_without_blanks_is_cut_between_characters() -> None:
    text = "我们去公园 散步。\nand back"
    spans = list(pieces(text, 3, lambda words: [1] * len(words)))
    assert "".join(text[a:b] for a, b in spans) == text and [text[a:b] for a, b in spans][:2] == ["我们去", "公园 散"]


def test_whole_split_keeps_every_document_and_word(model: Model, tmp_path: Path) -> None:
    source, cache = Numbers(), Cache(tmp_path)
    whole = streams(source, "test", model, Selection(), cache, QUIET)
    texts = source.documents("test")
    assert len(whole) == whole.documents == len(texts)
    assert whole.words == sum(map(count_words, texts))
    assert whole.tokens == sum(len(stream) - 1 for stream in whole)
    for stream, text in zip(whole, texts, strict=True):
        assert stream[0] == model.start_id and model.tokenizer.decode(stream[1:]) == text


def test_a_whole_split_is_the_same_for_any_seed(model: Model, tmp_path: Path) -> None:
    source, cache = Numbers(), Cache(tmp_path)
    for seed in (0, 1):
        streams(source, "test", model, Selection(seed=seed), cache, QUIET)
    assert len([folder for folder in (tmp_path / "streams").iterdir() if folder.is_dir()]) == 1


def test_a_selection_is_words_of_the_text_and_meets_the_number_of_tokens(model: Model, tmp_path: Path) -> None:
    source, cache = Numbers(), Cache(tmp_path)
    part = streams(source, "test", model, Selection(tokens=1000, piece=128, seed=1), cache, QUIET)
    decoded = [model.tokenizer.decode(stream[1:]) for stream in part]
    assert 995 <= part.tokens <= 1000 and all(len(stream) <= 129 for stream in part)
    assert part.words == sum(map(count_words, decoded))
    texts = source.documents("test")
    for piece in decoded:  # each is found between blanks
        home = next(text for text in texts if piece in text)
        after = home.index(piece) + len(piece)
        assert after == len(home) or home[after].isspace()
        assert home.index(piece) == 0 or piece[0].isspace()
    other = streams(source, "test", model, Selection(tokens=1000, piece=128, seed=2), cache, QUIET)
    assert other.hash != part.hash and [s.tolist() for s in other] != [s.tolist() for s in part]


def test_pieces_that_are_not_chosen_by_number_give_the_whole_word_count(model: Model, tmp_path: Path) -> None:
    source, cache = Numbers(), Cache(tmp_path)
    whole = streams(source, "test", model, Selection(), cache, QUIET)
    cut = streams(source, "test", model, Selection(tokens=10**9, piece=64), cache, QUIET)
    assert (cut.words, cut.tokens, cut.documents) == (whole.words, whole.tokens, whole.documents)


def test_the_second_opening_reads_no_text(model: Model, tmp_path: Path) -> None:
    first, cache = Numbers(), Cache(tmp_path)
    expected = [stream.tolist() for stream in streams(first, "test", model, Selection(tokens=500), cache, QUIET)]
    again = Numbers()
    found = streams(again, "test", model, Selection(tokens=500), cache, QUIET)
    assert [stream.tolist() for stream in found] == expected and again.read == 0
    assert [s.tolist() for s in found[-2:]] == expected[-2:] and found[-1].tolist() == expected[-1]
    with pytest.raises(IndexError):
        _ = found[len(found)]


def test_an_empty_selection_is_refused(model: Model, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no token of the test split of numbers"):
        streams(Numbers(), "test", model, Selection(tokens=0), Cache(tmp_path), QUIET)
