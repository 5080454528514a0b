"""Articles with summaries: leads of documents, files of CNN/DailyMail, the hub's columns."""

from __future__ import annotations

import json

import pytest

from harness.common.cache import Cache
from harness.common.errors import RequestError
from tasks.data.parallel import pairs_hash
from tasks.data.summaries import HubSummaries, Leads, cnn_dailymail, first_sentences
from tasks.data.text import Source


class Documents(Source):
    """These documents, in every split."""

    name = "documents"

    def __init__(self, *documents):
        self.given = list(documents)

    def fingerprint(self, split):
        return {"documents": self.given}

    def documents(self, split):
        return self.given


LEAD = "The old bridge crosses the river near the mill. It was built in 1823."
BODY = " ".join(f"word{n}" for n in range(60))


def test_a_lead_is_the_first_paragraph_and_the_body_what_follows():
    text = Documents(f"{LEAD}\n{BODY}\nHistory.\n{BODY}", f"Too short.\n{BODY}\n{BODY}", LEAD)
    [(body, lead), (_, second)] = Leads(text, body_words=100, lead_words=60).pairs("train")
    assert lead == LEAD
    assert body == " ".join(f"{BODY} {BODY}".split()[:100])  # a heading is no paragraph
    assert second.startswith("word0 word1")  # the first paragraph that is long enough


def test_a_long_document_gives_several_pairs_to_learn_from_and_one_to_evaluate():
    text = Documents("\n".join(f"Part {n}: {LEAD}\n{BODY}" for n in range(3)))
    leads = Leads(text, body_words=50, lead_words=60)
    assert leads.pairs("train") == [(" ".join(BODY.split()[:50]), f"Part {n}: {LEAD}") for n in range(3)]
    assert leads.pairs("test") == leads.pairs("train")[:1]
    longer = Leads(text, body_words=100).pairs("train")
    assert [lead[:6] for _, lead in longer] == ["Part 0", "Part 2"]  # the first body takes in the second part


def test_a_lead_is_cut_behind_a_sentence():
    assert first_sentences(LEAD, 60) == LEAD
    assert first_sentences(LEAD, 10) == "The old bridge crosses the river near the mill."
    assert first_sentences(LEAD, 4) == "The old bridge crosses"


def test_the_words_kept_are_part_of_what_determines_the_pairs(tmp_path):
    text, cache = Documents(f"{LEAD}\n{BODY}"), Cache(tmp_path)
    one, other = (pairs_hash(Leads(text, words), "train", cache) for words in (50, 60))
    assert one != other


def test_documents_without_a_body_are_refused():
    with pytest.raises(RequestError, match="no document of the train split of documents has a lead and a body"):
        Leads(Documents(LEAD)).pairs("train")


def test_files_of_articles_are_read_once_each(tmp_path):
    rows = [{"article": " One. ", "highlights": "a\nb"}, {"article": "Two.", "highlights": "c"}]
    for name, some in (("a.jsonl", rows), ("b.jsonl", rows[:1])):
        (tmp_path / name).write_text("\n".join(map(json.dumps, some)))
    assert cnn_dailymail(["a.jsonl", "b.jsonl"], [tmp_path]) == [("One.", "a\nb"), ("Two.", "c")]
    (tmp_path / "b.jsonl").write_text('{"article": "x"}')
    with pytest.raises(RequestError, match=r"b\.jsonl:1 is not an object with article and highlights"):
        cnn_dailymail(["a.jsonl", "b.jsonl"], [tmp_path])
    with pytest.raises(RequestError, match=r"file c\.jsonl"):
        cnn_dailymail(["c.jsonl"], [tmp_path])


def test_the_hub_s_columns(tmp_path):
    folder = tmp_path / "summaries"
    folder.mkdir()
    (folder / "test.jsonl").write_text(json.dumps({"article": " A. ", "highlights": "h"}))
    source = HubSummaries(str(folder))
    assert source.pairs("test") == [("A.", "h")]
    (folder / "test.jsonl").write_text(json.dumps({"article": "A."}))
    with pytest.raises(RequestError, match="has no highlights; columns: article"):
        HubSummaries(str(folder)).pairs("test")
