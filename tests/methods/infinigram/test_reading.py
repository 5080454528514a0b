"""Files as documents: their origin, long texts in pieces, and what cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from harness.common.errors import RequestError
from methods.infinigram import reading
from methods.infinigram.build import build_index
from methods.infinigram.reading import Text, files_of, texts_of, tokenized

PACKED = gzip.compress(b"one two three " * 9, mtime=0)
DAMAGED = PACKED[:10] + b"\xff" + PACKED[11:]  # the first byte after the head
WORDS = "the Tower of London stands by the river\nand a bridge  crosses it there , they say .\n\n" * 8


def coder(kind, text=WORDS):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if kind == "bytes":
        made, alphabet = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    elif kind == "metaspace":
        made, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer(vocab_size=60, show_progress=False)
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    else:
        made = Tokenizer(models.WordLevel(unk_token="?"))
        trainer = trainers.WordLevelTrainer(special_tokens=["?"], show_progress=False)
        made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator([text], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made)


@pytest.mark.parametrize("kind", ["bytes", "metaspace", "words"])
def test_a_text_in_pieces_has_the_tokens_of_the_whole(monkeypatch, kind):
    monkeypatch.setattr(reading, "PIECE", 50)
    monkeypatch.setattr(reading, "CONTEXT", 30)
    read = coder(kind)
    texts = [Text(WORDS[:70], {"n": 0}, True), Text(WORDS[70:], None, True), Text("the river", {"n": 1})]
    parts = list(tokenized(texts, read))
    assert len(parts) > 5 and [part.more for part in parts].count(False) == 2
    assert [part.metadata for part in parts if part.metadata] == [{"n": 0}, {"n": 1}]
    ids = [token for part in parts[:-1] for token in part.tokens.tolist()]
    whole = read(WORDS, return_offsets_mapping=True, add_special_tokens=False)
    assert ids == whole["input_ids"] and parts[-1].tokens.tolist() == read("the river")["input_ids"]
    lines, at = [], 0
    for part in parts[:-1]:
        lines += [at + line for line in part.lines]
        at += len(part.tokens)
    ends = [place + 1 for place, letter in enumerate(WORDS) if letter == "\n"]
    starts = [start for start, _ in whole["offset_mapping"]]
    assert lines == [sum(start < end for start in starts) for end in ends]


def test_every_kind_of_file_is_read(tmp_path):
    parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "A.TXT").write_bytes(b"\xef\xbb\xbfone\r\n\n = Title = \n\ntwo\n")
    (tmp_path / "in" / "b.jsonl").write_text(
        '{"text": "three\u2028four", "id": 7, "url": "u"}\n\n{"text": "five"}\n', "utf-8"
    )
    (tmp_path / "in" / "c.txt.gz").write_bytes(gzip.compress(b"six"))
    (tmp_path / "in" / "deep" / "d.jsonl.gz").write_bytes(gzip.compress(b'{"text": "seven", "title": "t"}'))
    (tmp_path / "in" / "picture.png").write_bytes(b"\x89")
    parquet.write_table(table.table({"text": ["eight", "nine"], "id": [1, 2], "x": [0, 0]}), tmp_path / "e.parquet")
    files = files_of([tmp_path / "in", tmp_path / "e.parquet", tmp_path / "in" / "A.TXT"])
    assert [file.name for file in files] == ["A.TXT", "b.jsonl", "c.txt.gz", "d.jsonl.gz", "e.parquet"]
    documents: list[list] = []
    for text in texts_of(files):
        if text.metadata is not None:
            documents.append([text.metadata, ""])
        documents[-1][1] += text.string
    assert [({**about, "file": about["file"].rpartition("/")[2]}, text) for about, text in documents] == [
        ({"file": "A.TXT", "line": 1}, "one\n\n"),
        ({"file": "A.TXT", "line": 3, "title": "Title"}, " = Title = \n\ntwo\n"),
        ({"file": "b.jsonl", "line": 1, "id": 7, "url": "u"}, "three\u2028four"),
        ({"file": "b.jsonl", "line": 3}, "five"),
        ({"file": "c.txt.gz", "line": 1}, "six"),
        ({"file": "d.jsonl.gz", "line": 1, "title": "t"}, "seven"),
        ({"file": "e.parquet", "row": 0, "id": 1}, "eight"),
        ({"file": "e.parquet", "row": 1, "id": 2}, "nine"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', "a.jsonl, line 2: Expecting value"),
        ("a.jsonl", b'{"text": "x"}\n{"body": "y"}\n', r"line 2: no field 'text' \(it has body\)"),
        ("a.jsonl", b'\n["x"]\n', "line 2: a list instead of an object"),
        ("a.jsonl", b'{"text": null}', "line 1: `text` is null; name the field"),
        ("a.jsonl", b'{"text": 4}', "line 1: `text` is no text but int"),
        ("a.jsonl", b'{"text": "\\ud800"}', "line 1: half of a surrogate pair"),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"text": "x"}\n' * 9, mtime=0)[:-9],
            "a.jsonl.gz, line 10: Compressed file ended",
        ),
        ("a.jsonl.gz", DAMAGED, "a.jsonl.gz, line 1: Error -3 while decompressing"),
        ("a.txt.gz", DAMAGED, "a.txt.gz, line 1: Error -3 while decompressing"),
        ("a.txt", b"one\ntwo\n\xff\n", "a.txt, line 3: 'utf-8' codec"),
        ("a.parquet", b"PAR1", "a.parquet, row 0"),
        ("a.csv", b"x", r"a.csv is no text: give files that end in .txt, .txt.gz, .md, .jsonl"),
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=message):
        list(texts_of(files_of([tmp_path / name])))


def test_parquet_without_text_names_all_its_columns(tmp_path):
    parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(table.table({"body": ["x", None], "id": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(RequestError, match=r"a.parquet: no field 'text' \(it has body, id\)"):
        list(texts_of([tmp_path / "a.parquet"]))
    with pytest.raises(RequestError, match=r"a.parquet, row 1: `body` is null"):
        list(texts_of([tmp_path / "a.parquet"], "body"))
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[4:40] = bytes(36)  # of the first column
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(RequestError, match=r"a.parquet, row 0: "):
        list(texts_of([tmp_path / "a.parquet"], "body"))


def test_a_file_is_read_once_and_an_index_not_at_all(tmp_path, monkeypatch):
    build_index(
        [[0]], tmp_path / "in" / "index", vocabulary_size=1, tokenizer=lambda to: (to / "a.txt").write_text("x")
    )
    (tmp_path / "in" / "b.txt").write_text("b")
    monkeypatch.chdir(tmp_path)
    assert files_of([Path("in"), tmp_path / "in", Path("in/../in/b.txt")]) == [Path("in/b.txt")]


def test_a_field_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"body": "words", "text": 4}))
    assert [text.string for text in texts_of([tmp_path / "a.jsonl"], "body")] == ["words"]
    with pytest.raises(RequestError, match="is no text"):
        files_of([tmp_path.joinpath("empty").absolute()])
