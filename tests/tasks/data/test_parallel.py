"""Parallel text from folders, from a local data set in the hub's layout, and generated."""

from __future__ import annotations

import gzip
import json

import pytest

from harness.common.cache import Cache
from harness.common.errors import RequestError
from tasks.data.invented_language import InventedLanguage
from tasks.data.parallel import pairs_hash
from tasks.data.parallel_kinds import open_parallel
from tasks.data.text import SPLITS
from tasks.data.text.hub import HubAddress

SIZES = {"train": 200, "validation": 20, "test": 20}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "data" / "small-de-en"
    root.mkdir(parents=True)
    for stem, lines in (("train", 3), ("val", 2), ("test_2016", 1), ("test_2017", 2)):
        for language in ("de", "en"):
            text = "".join(f"{stem} {language} {n}\u2028x \n" for n in range(lines))
            with gzip.open(root / f"{stem}.{language}.gz", "wt", encoding="utf-8", newline="\n") as file:
                file.write(text)
    return root


def opened(folder, **more):
    return open_parallel("folder", folder.name, "de", "en", [folder.parent], **{"test": "test_2016", **more})


def test_pairs_are_lines_of_both_sides_in_order(folder):
    source = opened(folder)
    assert source.pairs("train")[1] == ("train de 1\u2028x", "train en 1\u2028x")
    assert [len(source.pairs(split)) for split in SPLITS] == [3, 2, 1]


def test_the_direction_and_the_test_set_are_chosen(folder):
    turned = open_parallel("folder", folder.name, "en", "de", [folder.parent], "test_2017")
    assert turned.pairs("test")[0] == ("test_2017 en 0\u2028x", "test_2017 de 0\u2028x")


def test_plain_files_do_as_well_and_win(folder):
    (folder / "train.de").write_text("eins\nzwei\n")
    (folder / "train.en").write_text("one\ntwo\n")
    assert opened(folder).pairs("train") == [("eins", "one"), ("zwei", "two")]


def test_the_hash_follows_the_content(folder, tmp_path):
    cache = Cache(tmp_path / "cache")
    hashes = {split: pairs_hash(opened(folder), split, cache) for split in SPLITS}
    assert len(set(hashes.values())) == 3
    (folder / "train.de").write_text("eins\n")
    (folder / "train.en").write_text("one\n")
    assert pairs_hash(opened(folder), "train", cache) != hashes["train"]
    assert pairs_hash(opened(folder), "test", cache) == hashes["test"]


def test_what_is_missing_or_broken_is_named(folder):
    with pytest.raises(RequestError, match="no parallel data set 'other'; tried"):
        open_parallel("folder", "other", "de", "en", [folder.parent])
    with pytest.raises(RequestError, match="HARNESS_DATA is not set"):
        open_parallel("folder", "other", "de", "en", [])
    with pytest.raises(RequestError, match=r"no test split for de-en; expected test with \.de and \.en"):
        opened(folder, test="test").pairs("test")
    with pytest.raises(RequestError, match="no train split for de-fr"):
        open_parallel("folder", folder.name, "de", "fr", [folder.parent]).pairs("train")
    (folder / "train.de").write_text("eins\n")
    (folder / "train.en").write_text("one\ntwo\n")
    with pytest.raises(RequestError, match=r"train\.en has 2 lines and .*train\.de has 1; fetch"):
        opened(folder).pairs("train")
    (folder / "val.en.gz").write_bytes((folder / "val.en.gz").read_bytes()[:20])
    with pytest.raises(RequestError, match=r"val\.en\.gz cannot be read as text"):
        opened(folder).pairs("validation")


def test_a_data_set_in_the_hubs_layout(tmp_path):
    rows = [{"translation": {"de": f"Satz {n}", "en": f"sentence {n} "}} for n in range(3)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_parallel("hub", str(tmp_path), "de", "en", [])
    assert source.pairs("train")[2] == ("Satz 2", "sentence 2")
    with pytest.raises(RequestError, match="no fr; columns: translation"):
        open_parallel("hub", str(tmp_path), "fr", "en", []).pairs("train")
    with pytest.raises(RequestError, match="needs an id"):
        open_parallel("hub", "", "de", "en", [])


def test_a_folder_in_the_hubs_layout_is_known_by_its_files_wherever_it_is_named_from(tmp_path, monkeypatch):
    home = tmp_path / "a:b@c"
    home.mkdir()
    (home / "train.jsonl").write_text('{"de": "eins", "en": "one"}\n')
    whole = open_parallel("hub", str(home), "de", "en", [])
    assert whole.pairs("train") == [("eins", "one")]
    monkeypatch.chdir(tmp_path)
    assert open_parallel("hub", "./a:b@c", "de", "en", []).fingerprint("train") == whole.fingerprint("train")
    before = pairs_hash(whole, "train", Cache(tmp_path / "cache"))
    (home / "train.jsonl").write_text('{"de": "zwei", "en": "two"}\n{"de": "drei", "en": "three"}\n')
    assert pairs_hash(whole, "train", Cache(tmp_path / "cache")) != before
    with pytest.raises(RequestError, match="no data folder"):
        open_parallel("hub", "./nowhere", "de", "en", [])


@pytest.mark.parametrize("row", [{"de": None, "en": "two"}, {"translation": {"de": "zwei", "en": None}}])
def test_a_row_without_a_sentence_is_named(tmp_path, row):
    whole = {"translation": {"de": "eins", "en": "one"}} if "translation" in row else {"de": "eins", "en": "one"}
    (tmp_path / "train.jsonl").write_text(json.dumps(whole) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(RequestError, match=r"row 1 of the train split of .* lacks a sentence"):
        open_parallel("hub", str(tmp_path), "de", "en", []).pairs("train")


def test_addresses_of_the_hub_have_a_config_and_a_revision():
    address = HubAddress("some/set:de-en@refs/convert/parquet")
    assert (address.identity, address.config, address.revision) == ("some/set", "de-en", "refs/convert/parquet")
    assert address.fingerprint() != HubAddress("some/set:de-en").fingerprint()


def test_the_invented_language_is_a_function_of_its_seed():
    first, again, other = InventedLanguage(3, SIZES), InventedLanguage(3, SIZES), InventedLanguage(4, SIZES)
    assert first.pairs("train") == again.pairs("train") != other.pairs("train")


def test_its_splits_share_no_pair():
    source = InventedLanguage(0, SIZES)
    found = [pair for split in SPLITS for pair in source.pairs(split)]
    assert len(found) == len(set(found)) == sum(SIZES.values())


def test_its_verb_stands_last_and_agrees_with_number_and_tense():
    for invented, english in InventedLanguage(0, SIZES).pairs("train"):
        verb = invented.rstrip(".").split()[-1]
        first = english.split()[0].lower()
        assert verb.removesuffix("k").endswith(("n", "ta"))
        assert verb.endswith("k") == (first not in ("a", "an", "the"))
