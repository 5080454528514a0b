"""Training pairs for correctors: clean text, errors made in it, ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from transformers import AutoTokenizer

from harness.common import sources
from harness.common.cache import Cache
from harness.common.progress import Progress
from tasks.data.correction import ArticleText, GrammarText, corrupted
from tasks.data.learners import applied
from tasks.data.text import Source
from tasks.metrics import m2
from tasks.models.pretrained.generation import TextGenerator
from tasks.models.pretrained.greedy import greedy_outputs
from tasks.models.seq2seq.editors import correction_pairs, trained_corrector
from tasks.models.seq2seq.sizes import SIZES

QUIET = Progress(quiet=True)
ARTICLE = "Dogs like long walks in the parks of the city. A walker meets many other dogs there every morning.\n"


class Articles(Source):
    """Three small articles, one a split."""

    name = "articles"

    def __init__(self, text=ARTICLE):
        self.text = text

    def fingerprint(self, split):
        return {"articles": split, "text": self.text}

    def documents(self, split) -> Sequence[str]:
        return [self.text * (4 if split == "train" else 1)]


def test_annotated_corrections_lead_back_to_the_clean_sentence():
    items = list(corrupted(GrammarText(), "test", 0, QUIET))
    assert len(items) == 300
    assert all(applied(item.source, item.annotators[0]) == clean for item, clean in items)
    assert sum(list(item.source) != clean for item, clean in items) > 150
    assert list(corrupted(GrammarText(), "test", 0, QUIET)) == items


def test_hardly_a_test_sentence_of_the_grammar_is_one_it_trains_on():
    train = {tuple(tokens) for tokens in GrammarText().sentences("train", QUIET)}
    test = [tuple(tokens) for tokens in GrammarText().sentences("test", QUIET)]
    assert sum(tokens in train for tokens in test) <= 3


def test_targets_are_the_clean_sentences_and_ids_end_as_the_model_expects(tmp_path, subwords_folder):
    cache = Cache(tmp_path)
    clean = ArticleText(Articles())
    content = {**clean.content(cache), "seed": 0}
    pairs = correction_pairs(clean, "train", subwords_folder, content, cache, QUIET)
    tokenizer = AutoTokenizer.from_pretrained(subwords_folder)
    assert len(pairs) == 8
    for source, target in pairs:
        assert source[-1] == target[-1] == tokenizer.eos_token_id
    texts = {tokenizer.decode(target, skip_special_tokens=True).strip() for _, target in pairs}
    assert texts == {
        "Dogs like long walks in the parks of the city .",
        "A walker meets many other dogs there every morning .",
    }


def test_pairs_of_other_error_rules_or_ids_are_other_pairs(tmp_path, subwords_folder):
    cache = Cache(tmp_path)
    clean = ArticleText(Articles())
    other = tmp_path / "other"
    tokenizer = AutoTokenizer.from_pretrained(subwords_folder)
    tokenizer.add_tokens(["walks"])
    tokenizer.save_pretrained(other)
    content = {**clean.content(cache), "seed": 0}
    first = list(correction_pairs(clean, "train", subwords_folder, content, cache, QUIET))
    assert list(correction_pairs(clean, "train", other, content, cache, QUIET)) != first
    assert content["code"] == sources.built_by(ArticleText)
    rules = {f"tasks.data.corruption.{name}" for name in ("rules", "tokens")}
    assert rules <= set(sources.closure("tasks.data.correction"))


def test_a_corrector_of_other_text_or_seed_is_another_model(tmp_path, tiny_size):
    cache = Cache(tmp_path)
    folder = trained_corrector(tiny_size, ArticleText(Articles()), cache, progress=QUIET)
    assert TextGenerator.load(str(folder), cache=cache).vocabulary_size <= tiny_size.vocabulary
    assert trained_corrector(tiny_size, ArticleText(Articles()), cache, progress=QUIET) == folder
    assert trained_corrector(tiny_size, ArticleText(Articles()), cache, seed=1, progress=QUIET) != folder
    other = Articles(ARTICLE.replace("Dogs", "Cats"))
    assert trained_corrector(tiny_size, ArticleText(other), cache, progress=QUIET) != folder


def test_every_version_of_a_text_has_errors_of_its_own(tmp_path, subwords_folder):
    cache = Cache(tmp_path)
    content = {**GrammarText().content(cache), "seed": 0}
    once, twice = (
        correction_pairs(GrammarText(), "validation", subwords_folder, content, cache, QUIET, versions)
        for versions in (1, 2)
    )
    assert len(twice) == 2 * len(once)
    sources, targets = (sorted(Counter(tuple(pair[side]) for pair in twice).values(), reverse=True) for side in (0, 1))
    assert all(count % 2 == 0 for count in targets)  # the clean text of each comes twice
    assert sum(count == 1 for count in sources) > 0.5 * len(twice)  # what was made of it mostly does not


def test_training_ends_with_real_corrections_where_there_are_some(tmp_path, tiny_size):
    cache = Cache(tmp_path)
    text = ArticleText(Articles())
    learners = [(["Dogs", "likes", "walks", "."], ["Dogs", "like", "walks", "."])] * 4
    first = trained_corrector(tiny_size, text, cache, learners=learners, progress=QUIET)
    size = replace(tiny_size, last_steps=3)
    assert trained_corrector(size, text, cache, progress=QUIET) == first  # the steps before do not depend on them
    last = trained_corrector(size, text, cache, learners=learners, progress=QUIET)
    made = json.loads((last / "training.json").read_text())
    assert made["start"] == json.loads((first / "training.json").read_text())
    assert made["size"]["steps"] == 3 and made["pairs"] == 4 and made["initial_weights"] == f"the model {first.name}"
    others = trained_corrector(size, text, cache, learners=learners[:2], progress=QUIET)
    assert last not in (first, others) and others.parent == last.parent


@pytest.mark.slow
def test_a_mini_corrector_corrects(tmp_path):
    cache = Cache(tmp_path)
    folder = trained_corrector(SIZES["mini"], GrammarText(), cache, progress=QUIET)
    model = TextGenerator.load(str(folder), cache=cache)
    gold = [item for item, _ in corrupted(GrammarText(), "test", 0, QUIET)][:100]
    outputs = greedy_outputs(model, model.encode([" ".join(item.source) for item in gold]), 64, cache, QUIET)
    scores = m2.measures(m2.counts([model.decode(ids).split() for ids in outputs], gold))
    assert scores["f0.5"].value > 40  # 62 was measured over all test sentences
