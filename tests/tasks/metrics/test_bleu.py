"""BLEU by sacrebleu, and the counts its interval is made of."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.metrics import bleu

REFERENCES = [f"the {a} dog follows a {b} cat near the {c} house ." for a in ("old", "big", "red")
              for b in ("old", "big", "sly") for c in ("old", "tall", "red")]  # fmt: skip
WORSE = [reference.replace("follows a", "follows the") for reference in REFERENCES]


def test_summed_counts_give_the_corpus_score():
    columns = bleu._columns(WORSE, REFERENCES)
    score = bleu._score(*[np.asarray([column.mean()]) for column in columns])
    assert score[0] == pytest.approx(bleu.bleu(WORSE, REFERENCES).value, abs=1e-6)


def test_a_shorter_system_pays_the_brevity_penalty_in_both():
    short = [" ".join(sentence.split()[:-3]) for sentence in REFERENCES]
    score = bleu._score(*[np.asarray([column.mean()]) for column in bleu._columns(short, REFERENCES)])
    assert score[0] == pytest.approx(bleu.bleu(short, REFERENCES).value, abs=1e-6)
    assert score[0] < 90


def test_the_interval_holds_the_value_and_is_narrower_for_a_difference():
    mixed = [*WORSE[:13], *REFERENCES[13:]]
    alone = bleu.bleu(mixed, REFERENCES)
    paired = bleu.bleu_difference(mixed, WORSE, REFERENCES)
    assert alone.low < alone.value < alone.high
    assert paired.low < paired.value < paired.high
    assert paired.value == pytest.approx(alone.value - bleu.bleu(WORSE, REFERENCES).value)


def test_equal_outputs_differ_by_exactly_nothing():
    same = bleu.bleu_difference(WORSE, WORSE, REFERENCES)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_perfect_and_empty_outputs():
    assert bleu.bleu(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert bleu.chrf(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert bleu.bleu([""] * len(REFERENCES), REFERENCES).value == 0


def test_the_signature_names_tokenisation_and_version():
    assert "tok:13a" in bleu.signature()
    assert "version:" in bleu.signature()
