"""Every source gives documents per split with a content hash, and says in one line what it cannot find."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from harness.common.cache import Cache
from harness.common.documents import content_hash
from harness.common.errors import RequestError
from tasks.data.text import SPLITS, split_hash, split_of
from tasks.data.text.articles import articles
from tasks.data.text.embedded import EmbeddedDocumentation, gather, unique
from tasks.data.text.kinds import open_source

WIKI = [" ", " = Cats = ", " ", " Cats <unk> . ", " ", " = = Food = = ", " ", " = 2 = ", " They eat . "]
WIKI += [" ", " = Dogs = ", " ", " Bark . "]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def write(root: Path, **files: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return root


def test_folder_reads_text_and_json_lines_from_the_first_root_that_has_the_set(tmp_path: Path, cache: Cache) -> None:
    write(tmp_path / "b" / "wiki", train__txt="\n".join(WIKI) + "\n", valid__txt="one\n")
    packed = tmp_path / "b" / "wiki" / "test.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"text": "first\\nlines"}\n\n{"text": "second"}\n'))
    source = open_source("folder", "wiki", (tmp_path / "a", tmp_path / "b"), cache)
    assert [len(source.documents(split)) for split in SPLITS] == [2, 1, 2]
    assert source.documents("test") == ["first\nlines\n", "second\n"]
    before = split_hash(source, "test", cache)
    assert before == content_hash(["first\nlines\n", "second\n"]) != content_hash(["first\n", "lines\nsecond\n"])
    packed.write_bytes(gzip.compress(b'{"text": "another"}\n'))
    assert split_hash(source, "test", cache) == content_hash(["another\n"])


def test_a_single_file_is_split_by_document(tmp_path: Path, cache: Cache) -> None:
    texts = [f"document {n}\n" for n in range(300)]
    write(tmp_path, all__jsonl="".join(json.dumps({"text": text}) + "\n" for text in texts))
    source = open_source("folder", "all.jsonl", (tmp_path,), cache)
    parts = {split: list(source.documents(split)) for split in SPLITS}
    assert sorted(text for part in parts.values() for text in part) == sorted(texts)
    assert len(parts["train"]) > 200 and all(len(part) > 10 for part in parts.values())
    assert all(split_of(text) == split for split, part in parts.items() for text in part)


@pytest.mark.parametrize("name", ["notes.TXT", "notes.md", "notes.txt.gz", "notes.Jsonl", "notes.jsonl.gz"])
def test_an_ending_says_what_a_file_is_in_any_case_and_packed(tmp_path: Path, cache: Cache, name: str) -> None:
    text = "\ufeff" + ('{"text": "one\u2028two"}\r\n' if "json" in name.lower() else "one\u2028two\r\n")
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    source = open_source("folder", name, (tmp_path,), cache)
    assert source.documents(split_of("one\u2028two\n")) == ["one\u2028two\n"]


@pytest.mark.parametrize("name", ["all.json", "all.csv", "all", "all.gz"])
def test_a_file_of_another_ending_is_refused_with_those_that_are_known(tmp_path: Path, cache: Cache, name: str) -> None:
    (tmp_path / name).write_text("text\n")
    with pytest.raises(RequestError, match=rf"{name} is neither .*endings known: \.txt, .*\.jsonl\.gz, \.md"):
        open_source("folder", name, (tmp_path,), cache).documents("train")


def test_half_of_a_surrogate_pair_is_refused_with_file_and_line(tmp_path: Path, cache: Cache) -> None:
    write(tmp_path, all__jsonl='{"text": "a \\ud83d\\ude00"}\n{"text": "a \\ud83d"}\n')
    with pytest.raises(RequestError, match=r"all\.jsonl:2 cannot be read .*surrogates not allowed"):
        open_source("folder", "all.jsonl", (tmp_path,), cache).documents("train")


def test_missing_and_damaged_files_are_named(tmp_path: Path, cache: Cache) -> None:
    with pytest.raises(RequestError, match=r"no data set 'w'.*/nowhere/w.*HARNESS_DATA"):
        open_source("folder", "w", (Path("/nowhere"),), cache)
    with pytest.raises(RequestError, match="HARNESS_DATA is not set"):
        open_source("folder", "w", (), cache)
    root = write(tmp_path / "w", test__txt="x\n", train__jsonl='{"title": "a"}\n', valid__jsonl="{broken\n")
    source = open_source("folder", "w", (tmp_path,), cache)
    with pytest.raises(RequestError, match=r"train\.jsonl:1 has no field `text`"):
        source.documents("train")
    with pytest.raises(RequestError, match=r"valid\.jsonl:1 cannot be read"):
        source.documents("validation")
    (root / "test.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match=r"test\.txt cannot be read"):
        source.documents("test")
    (root / "test.txt").write_bytes(b"\n \n")
    with pytest.raises(RequestError, match="no document"):
        source.documents("test")
    (root / "test.txt").unlink()
    with pytest.raises(RequestError, match=r"has no test split; expected one of test\.txt, test\.txt\.gz, test\.jsonl"):
        source.fingerprint("test")
    (root / "test.jsonl.gz").write_bytes(gzip.compress(b'{"text": "hello"}\n' * 100)[:20])
    with pytest.raises(RequestError, match=r"test\.jsonl\.gz cannot be read"):
        source.documents("test")
    packed = gzip.compress(b'{"text": "hello"}\n')
    (root / "test.jsonl.gz").write_bytes(packed[:10] + b"\xff" + packed[11:])  # damaged where the data begin
    with pytest.raises(RequestError, match=r"test\.jsonl\.gz cannot be read as text: Error -3"):
        source.documents("test")


def test_embedded_text_is_real_and_no_paragraph_of_test_is_in_train(cache: Cache) -> None:
    source = open_source("embedded", "", (), cache)
    parts = {split: source.documents(split) for split in SPLITS}
    assert sum(map(len, parts["train"])) > 500_000 and all(sum(map(len, part)) > 20_000 for part in parts.values())
    long = {
        split: {" ".join(p.split()) for text in part for p in text.split("\n\n") if len(" ".join(p.split())) >= 40}
        for split, part in parts.items()
    }
    assert not long["test"] & (long["train"] | long["validation"])
    assert EmbeddedDocumentation(cache).documents("test") == parts["test"]  # now from the cache


def test_gathering_parses_and_never_imports(tmp_path: Path) -> None:
    write(tmp_path, bad__py='"""unfinished', ok__py='"""Module."""\nraise SystemExit\nclass A:\n    """Class."""\n')
    write(tmp_path / "test", t__py='"""Left out."""\n')
    modules = [pair for pair in gather(tmp_path) if pair[0].startswith("module")]
    assert modules == [("module ok.py", "Module.\n\nClass.")]


def test_unique_drops_repeated_paragraphs_and_short_rests() -> None:
    shared, own = "this paragraph is in both documents " * 20, "only here " * 60
    kept = dict(unique(iter([("a", f"{own}\n\n{shared}"), ("b", shared), ("c", f"{shared}\n\n{own}x")])))
    assert list(kept) == ["a", "c"] and shared.strip() not in kept["c"]


def test_hub_reads_a_local_folder_in_hub_layout(tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    home = tmp_path / "set"
    rows = datasets.Dataset.from_dict({"text": [f"{line}\n" if line.strip() else "" for line in WIKI]})
    for split in SPLITS:
        (home / "wiki").mkdir(parents=True, exist_ok=True)
        rows.to_parquet(home / "wiki" / f"{split}-00000-of-00001.parquet")
    source = open_source("hub", f"{home}:wiki", (), cache)
    assert list(source.documents("test")) == articles(WIKI)
    card = "---\nconfigs:\n- config_name: w1\n  data_files:\n" + "".join(
        f"  - split: {split}\n    path: wiki/{split}-*\n" for split in SPLITS
    )
    (home / "README.md").write_text(card + "---\n")
    assert list(open_source("hub", f"{home}:w1", (), cache).documents("train")) == articles(WIKI)
    source = open_source("hub", f"{home}:w1", (), cache)
    assert split_hash(source, "test", cache) == content_hash(articles(WIKI))
    with pytest.raises(RequestError, match="no test split") as caught:
        open_source("hub", f"{home}:w2", (), cache).documents("test")
    assert "\n" not in str(caught.value)


def test_hub_json_rows_are_documents(tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    write(tmp_path / "set", train__jsonl='{"text": "a b\\nc"}\n{"text": ""}\n{"text": "d"}\n')
    assert list(open_source("hub", str(tmp_path / "set"), (), cache).documents("train")) == ["a b\nc\n", "d\n"]
    write(tmp_path / "other", train__jsonl='{"body": "a"}\n')
    with pytest.raises(RequestError, match="no column `text`, only body"):
        open_source("hub", str(tmp_path / "other"), (), cache).documents("train")
    with pytest.raises(RequestError, match="no data folder"):
        open_source("hub", str(tmp_path / "absent"), (), cache)


def test_an_unreachable_hub_is_one_line(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    code = (
        "from harness.common.errors import RequestError\nfrom tasks.models.pretrained.checkpoints import locate\n"
        "from tasks.data.text.hub import Hub\n"
        "for ask in (lambda: Hub('nobody/nothing').documents('test'), lambda: locate('nobody/nothing')):\n"
        "    try: ask()\n"
        "    except RequestError as error: print(str(error))\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 2, done.stderr
    assert "nobody/nothing" in lines[0] and "network" in lines[0] and "nobody/nothing" in lines[1]
