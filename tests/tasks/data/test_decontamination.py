"""Reference text without what the evaluation text has."""

from __future__ import annotations

import pytest

from tasks.data.decontamination import Decontaminated, Joined, Whole
from tasks.data.text import EmptySplitError, Source
from tasks.data.text.folder import Folder


class Texts(Source):
    """These documents by split."""

    name = "texts"

    def __init__(self, **splits):
        self.splits = splits

    def fingerprint(self, split):
        from harness.common.errors import RequestError

        if split not in self.splits:
            raise RequestError(f"no {split}")
        return {"texts": self.splits[split]}

    def documents(self, split):
        return self.splits[split]


def words(*numbers):
    return " ".join(f"w{n}" for n in numbers)


LONG = words(*range(40))


def kept(train, test, **options):
    source = Decontaminated(Texts(train=train, test=test), **options)
    found = source.documents("train")
    assert source.dropped == len(train) - len(found)
    return found


def test_what_shares_four_fifths_of_its_ngrams_is_left_out():
    for shared, expected in ((40, False), (35, False), (34, True), (5, True)):
        document = words(*range(shared), *range(100, 140 - shared))
        share = max(shared - 12, 0) / 28
        assert (share >= 0.8) != expected
        assert (kept([document, "other text"], [LONG]) == [document, "other text"]) == expected


def test_what_shares_less_is_left_out_where_asked_for():
    document = words(*range(20), *range(100, 120))  # shares 8 of its 28
    assert kept([document], [LONG], share=0.3) == [document]
    assert kept([document], [LONG], share=0.2) == []


def test_tokenisation_does_not_matter():
    assert kept(["It's a well-known, old rule."], ["it 's a well @-@ known , old rule ."]) == []


def test_an_unknown_word_of_the_held_out_text_is_any_word_it_lacks():
    held_out = words(*range(60)).replace("w7 ", "<unk> ").replace("w20 ", "<unk> ").replace("w33 ", "<unk> ")
    copy = words(*range(60))  # without `<unk>` it would share 17 of its 48
    assert kept([copy, copy.replace("w7", "other")], [held_out]) == []
    assert kept([copy.replace("w33", "w8")], [held_out], share=0.75) == [copy.replace("w33", "w8")]
    assert kept([copy], [held_out.replace("<unk>", "unk")]) == [copy]
    assert kept([f"{copy} <unk>"], [held_out]) == [f"{copy} <unk>"]  # its unknown words are written as such


def test_text_without_blanks_is_compared_by_characters():
    sentence, other = "我们明天早上要去公园散步然后在图书馆里看书", "今天天气很好我们在家里休息没有出去也没有看书"
    assert kept([f"昨天说{sentence}", other], [f"{sentence}吧"], share=0.5) == [other]


def test_short_documents_and_case():
    assert kept(["a b c", "a b", ""], ["A B C", "x y"]) == ["a b", ""]


def test_other_splits_and_other_sources():
    source = Texts(train=[LONG, "a b"], validation=[LONG])
    assert Decontaminated(source).documents("train") == ["a b"]
    assert Decontaminated(source).documents("validation") == [LONG]
    other = Texts(test=["a b"])
    assert Decontaminated(source, [other]).documents("train") == [LONG]
    assert Decontaminated(source).fingerprint("train") != Decontaminated(source, [other]).fingerprint("train")


def test_joined_sources_have_the_first_one_s_held_out_text():
    joined = Joined([Texts(train=["a"], test=["t"]), Texts(train=["b"])])
    assert joined.documents("train") == ["a", "b"] and joined.documents("test") == ["t"]
    assert joined.name == "texts and texts"


def test_a_small_collection_is_whole_though_it_lacks_splits(tmp_path):
    (tmp_path / "notes.txt").write_text("one document without a heading\n")
    found = Folder("notes.txt", [tmp_path])
    assert Whole(found).documents("train") == ["one document without a heading\n"]
    with pytest.raises(EmptySplitError, match="no document for the split"):
        [found.documents(split) for split in ("train", "validation", "test")]
    assert Decontaminated(Texts(train=["a"]), [found]).documents("train") == ["a"]
