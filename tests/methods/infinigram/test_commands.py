"""`harness infinigram` as a user meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main

DOCUMENTS = [
    "The old house stands near the river . The old bridge crosses the river .",
    "She reads two books every week near the river .",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from harness.common.cache import Cache
    from tasks.models.seq2seq.subwords import trained_subwords

    return trained_subwords(lambda: DOCUMENTS * 3, {"text": "two"}, 300, Cache(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def built(tmp_path_factory, tokenizer):
    root = tmp_path_factory.mktemp("built")
    (root / "train.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in DOCUMENTS))
    assert harness("build", str(root), "--tokenizer", str(tokenizer), "--output", str(root / "index")) == 0
    return root / "index"


def harness(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["infinigram", *arguments])
    return int(ended.value.code or 0)


def asked(capsys, *arguments):
    capsys.readouterr()
    assert harness(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_queries_are_answered_as_text(built, capsys):
    index = str(built)
    assert asked(capsys, "count", index, "--text", "the river")["count"] == 3
    found = asked(capsys, "prob", index, "--text", "The old bridge")
    assert found["count"] == 1 and found["probability"] == 1 / found["context_count"]
    assert asked(capsys, "prob", index, "--text", "The old bridge", "--n", "1")["context_count"] > 20
    following = asked(capsys, "dist", index, "--text", "The old")["following"]
    assert len(following) == 2 and all(part["probability"] == 0.5 for part in following)
    [one] = asked(capsys, "documents", index, "--text", "two books")["documents"]
    assert "two books every week" in one["text"]
    spans = asked(capsys, "attribute", index, "--text", "near the river . The old cat", "--min-length", "3")["spans"]
    assert spans[0]["text"].strip().startswith("near the river . The old")
    assert spans[0]["documents"][0]["source"] == {"file": str(built.parent / "train.jsonl"), "line": 1}
    scores = asked(capsys, "score", index, "--text", "near the river")["tokens"]
    assert all(part["effective_n"] > 1 for part in scores[1:])
    assert harness("verify", index) == 0 and "intact" in capsys.readouterr().out
    assert harness("count", index, "--text", "river") == 0 and "count" in capsys.readouterr().out


def test_two_indexes_and_one_taken_away(built, capsys):
    with pytest.warns(UserWarning, match="is given 2 times"):
        twice = asked(capsys, "count", str(built), str(built), "--text", "the river")["count"]
    none = asked(capsys, "count", str(built), "--subtract", str(built), "--text", "the river")["count"]
    assert (twice, none) == (6, 0)


def test_documents_hold_all_of_several_texts(built, capsys):
    index = str(built)
    assert asked(capsys, "count", index, "--text", "The old", "--text", "bridge")["documents"] == 1
    assert asked(capsys, "count", index, "--text", "house||week", "--text", "near the river")["documents"] == 2
    every = asked(capsys, "documents", index, "--text", "house||week", "--all", "--window", "0")["documents"]
    assert [one["document"] for one in every] == [0, 1] and every[1]["text"].strip() == "week"


def test_a_query_that_does_not_occur_is_told_where_it_does(built, capsys):
    found = asked(capsys, "count", str(built), "--text", "NEAR THE RIVER")
    assert found["count"] == 0 and found["occurs_as"] == {" near the river": 2}
    found = asked(capsys, "count", str(built), "--text", "THE Old bridge CROSSES")  # as a whole in no usual case
    assert found["count"] == 0 and list(found["occurs_as"]) == [" The old bridge crosses"]
    assert asked(capsys, "count", str(built), "--text", " " * 4) == {"ngram": " " * 4, "count": 0}
    assert harness("documents", str(built), "--text", "NEAR THE RIVER") == 0
    assert capsys.readouterr().out.splitlines() == [
        "no document holds this", 'occurs as " near the river": 2 times',
    ]  # fmt: skip


def test_ids_may_have_gaps(tmp_path, capsys):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    coder = Tokenizer(models.WordLevel({"<unk>": 0, "river": 7, "house": 600}, unk_token="<unk>"))
    coder.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=coder).save_pretrained(tmp_path / "words")
    (tmp_path / "a.txt").write_text("house river\x00 house river house")
    text, words, index = (str(tmp_path / name) for name in ("a.txt", "words", "index"))
    assert asked(capsys, "build", text, "--tokenizer", words, "--output", index)["vocabulary_size"] == 601
    assert asked(capsys, "count", index, "--text", "house")["count"] == 3


def test_a_damaged_tokenizer_is_found(built, tmp_path, capsys):
    shutil.copytree(built, tmp_path / "copy")
    file = tmp_path / "copy" / "tokenizer" / "tokenizer.json"
    file.write_bytes(file.read_bytes()[:-1])
    assert harness("verify", str(tmp_path / "copy")) == 2
    assert "tokenizer.json has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["count", "INDEX", "--ids", "1,x"], "give token ids with commas between them"),
        (["count", "INDEX", "--ids", "99999"], "token 99999 is outside the vocabulary"),
        (["count", "INDEX", "--ids", "1", "--text", "a"], "are two queries"),
        (["prob", "INDEX"], "the query has no token"),
        (["count", "nowhere", "--text", "a"], "no index at nowhere"),
        (["count", "INDEX", "--text", " house||"], "has no token, so every document would hold it"),
        (["count", "INDEX", "--ids", "5||"], "has no token, so every document would hold it"),
        (["count", "INDEX", "--text", ""], "has no token, so every document would hold it"),
        (["count", "INDEX", "--text", "\udcff"], "--text holds bytes that are not UTF-8"),
        (["documents", "INDEX", "--limit", "0"], "--limit"),
        (["count", "INDEX", "--ids=-1"], "token -1 is outside the vocabulary"),
        (["count", "INDEX", "--ids", "1", "--ids", "1||y"], "give token ids with commas between them"),
        (["build", "TEXT", "--tokenizer", "/nowhere/at/all", "--output", "y"], "no tokenizer /nowhere/at/all"),
        (["build", "x", "--tokenizer", "t", "--output", "y"], "no file or folder x, here or under HARNESS_DATA"),
    ],
)
def test_bad_requests_are_one_line(built, capsys, arguments, message):
    places = {"INDEX": str(built), "TEXT": str(built.parent)}
    assert harness(*(places.get(a, a) for a in arguments)) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


@pytest.mark.slow
def test_an_index_of_real_text_is_counted_by_another_process(tokenizer, tmp_path):
    """The beginning of WikiText-2 where $HARNESS_DATA has it, else this package's own documentation."""
    roots = [Path(root) / "wikitext-2" for root in os.environ.get("HARNESS_DATA", "").split(":") if root]
    texts = [root / "train.txt" for root in roots if (root / "train.txt").exists()]
    texts = texts or [Path(__file__).parents[3] / "docs" / "measuring.md"]
    text = texts[0].read_text(encoding="utf-8")[:500_000]
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": text}))

    def command(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "harness", "infinigram", *arguments], capture_output=True, text=True, check=True
        ).stdout

    command("build", str(tmp_path), "--tokenizer", str(tokenizer), "--output", str(tmp_path / "index"))
    answer = json.loads(command("count", str(tmp_path / "index"), "--text", " of the", "--json"))
    from transformers import AutoTokenizer

    read = AutoTokenizer.from_pretrained(tokenizer)
    ids, asked = (read(words, add_special_tokens=False)["input_ids"] for words in (text, " of the"))
    places = [at for at in range(len(ids)) if ids[at : at + len(asked)] == asked]
    assert answer["count"] == len(places) > 0
