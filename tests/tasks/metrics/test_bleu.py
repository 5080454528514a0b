"""BLEU by sacrebleu, and the counts its interval is made of."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu

from harness.common.errors import RequestError
from tasks.metrics import bleu

REFERENCES = [f"the {a} dog follows a {b} cat near the {c} house ." for a in ("old", "big", "red")
              for b in ("old", "big", "sly") for c in ("old", "tall", "red")]  # fmt: skip
WORSE = [reference.replace("follows a", "follows the") for reference in REFERENCES]


def from_counts(hypotheses, references):
    columns = bleu._columns(hypotheses, references, "en")
    return float(bleu._score(len(hypotheses), [np.asarray([column.mean()]) for column in columns])[0])


SYSTEMS = {
    "worse": WORSE,
    "shorter": [" ".join(sentence.split()[:-3]) for sentence in REFERENCES],
    "longer": [sentence + " and so on" for sentence in WORSE],
    "without 3-grams": [" ".join(sentence.split()[::-1]) for sentence in REFERENCES],
    "without 2-grams": ["dog the cat a"] * len(REFERENCES),
    "without words": ["none of them"] * len(REFERENCES),
    "of two words": ["the old"] * len(REFERENCES),
    "empty": [""] * len(REFERENCES),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_summed_counts_give_the_corpus_score(name):
    expected = bleu.bleu(SYSTEMS[name], REFERENCES, "en").value
    assert from_counts(SYSTEMS[name], REFERENCES) == pytest.approx(expected, abs=1e-6)


def test_the_interval_holds_the_value_and_is_narrower_for_a_difference():
    mixed = [*WORSE[:13], *REFERENCES[13:]]
    alone = bleu.bleu(mixed, REFERENCES, "en")
    paired = bleu.bleu_difference(mixed, WORSE, REFERENCES, "en")
    assert alone.low < alone.value < alone.high
    assert paired.low < paired.value < paired.high
    assert paired.value == pytest.approx(alone.value - bleu.bleu(WORSE, REFERENCES, "en").value)


def test_equal_outputs_differ_by_exactly_nothing():
    same = bleu.bleu_difference(WORSE, WORSE, REFERENCES, "en")
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_perfect_and_empty_outputs():
    assert bleu.bleu(REFERENCES, REFERENCES, "en").value == pytest.approx(100)
    assert bleu.chrf(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert bleu.bleu([""] * len(REFERENCES), REFERENCES, "en").value == 0


def test_the_signature_names_tokenisation_and_version():
    assert "tok:13a" in bleu.signature("en")
    assert "version:" in bleu.signature("en")


def test_a_language_without_blanks_between_words_has_a_tokenizer_of_its_own():
    right = ["今天天气很好，我们去公园散步。", "他昨天买了一本新书。", "这家餐馆的菜很好吃。"]
    given = ["今天天气很好，我们到公园散步。", "他昨天买了一本书。", "这家餐厅的菜很好吃。"]
    expected = sacrebleu.corpus_bleu(given, [right], tokenize="zh").score
    assert bleu.bleu(given, right, "zh").value == pytest.approx(expected) and expected > 70
    paired = bleu.bleu_difference(given, right, right, "zho_Hans")
    assert paired.value == pytest.approx(expected - 100)
    assert bleu.bleu(given, right, "en").value == 0
    assert "tok:zh" in bleu.signature("zh-CN")
    codes = {"ja": "ja-mecab", "ko": "ko-mecab", "tha_Thai": "char", "de": "13a", "zul": "13a"}
    assert {code: bleu.tokenizer(code) for code in codes} == codes


def test_a_tokenizer_whose_package_is_missing_is_named(monkeypatch):
    def missing(**_):
        raise RuntimeError("\nJapanese tokenization requires extra dependencies.\n")

    monkeypatch.setattr(bleu, "BLEU", missing)
    with pytest.raises(RequestError, match=r"BLEU of ja: Japanese .*s; install it: pip install 'sacrebleu\[ja\]'"):
        bleu.bleu(["a"], ["a"], "ja")


def test_tokens_in_any_case_are_scored_against_several_references():
    references = [[reference.split(), ["none", "of", "it"]] for reference in REFERENCES]
    right = [reference.upper().split() for reference in REFERENCES]
    assert bleu.bleu_of_tokens(right, references).value == pytest.approx(100)
    mixed = [sentence.split() for sentence in [*WORSE[:13], *REFERENCES[13:]]]
    found = bleu.bleu_of_tokens(mixed, references)
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(bleu.bleu([*WORSE[:13], *REFERENCES[13:]], REFERENCES, "en").value)
    assert "nrefs:2|case:lc" in bleu.signature_of_tokens(2)
