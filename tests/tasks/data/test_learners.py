"""Real corrections to learn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.common.errors import RequestError
from harness.common.files import data_roots
from tasks.data.corruption import misspellings
from tasks.data.files import aligned_lines, find_file
from tasks.data.learners import CONLL, TO_LEARN_FROM, applied, learner_pairs
from tasks.metrics import m2
from tasks.metrics.m2_lattice import Gold

M2 = """S The student like old houses near river .
A 2 3|||SVA|||likes|||REQUIRED|||-NONE-|||0
A 3 3|||ArtOrDet|||the|||REQUIRED|||-NONE-|||0
A 2 3|||SVA|||liked||loved|||REQUIRED|||-NONE-|||1

S She reads .
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||0
"""


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_edits_are_applied_from_the_last_to_the_first():
    source = ["a", "b", "c", "d"]
    edits = [Gold(0, 1, (("x", "y"),)), Gold(2, 2, (("new",),)), Gold(3, 4, ((),))]
    assert applied(source, edits) == ["x", "y", "b", "new", "c"]
    assert applied(source, []) == source


def test_of_edits_that_overlap_the_outer_one_counts_and_insertions_keep_their_order():
    source = ["a", "b", "c", "d"]
    assert applied(source, [Gold(1, 3, (("w",),)), Gold(0, 2, (("z",),))]) == ["z", "c", "d"]
    assert applied(source, [Gold(1, 2, (("inner",),)), Gold(0, 3, (("outer",),))]) == ["outer", "d"]
    assert applied(source, [Gold(1, 2, (("one",),)), Gold(1, 2, (("two",),))]) == ["a", "one", "c", "d"]
    two = [Gold(1, 1, (("x",),)), Gold(1, 1, (("y",),)), Gold(1, 2, (("z",),))]
    assert applied(source, two) == ["a", "x", "y", "z", "c", "d"]


def test_every_annotator_and_every_reference_makes_a_pair(tmp_path):
    write(tmp_path / CONLL["conll13"], M2)
    write(tmp_path / "jfleg/dev.src", "He go .\n")
    for n in range(4):
        write(tmp_path / f"jfleg/dev.ref{n}", f"He goes {n} .\n")
    pairs = [(" ".join(source), " ".join(target)) for source, target in learner_pairs(TO_LEARN_FROM, [tmp_path])]
    assert pairs[:3] == [
        ("The student like old houses near river .", "The student likes the old houses near river ."),
        ("The student like old houses near river .", "The student liked old houses near river ."),
        ("She reads .", "She reads ."),
    ]
    assert pairs[3:] == [("He go .", f"He goes {n} .") for n in range(4)]


def test_a_set_that_is_none_to_learn_from_is_refused(tmp_path):
    with pytest.raises(RequestError, match=r"conll14.*task\.corrections"):
        learner_pairs(["conll14"], [tmp_path])
    with pytest.raises(RequestError, match=r"jfleg/dev"):
        learner_pairs(["jfleg-dev"], [tmp_path])


def test_misspellings_are_words_by_what_they_should_be():
    known = misspellings.misspellings()
    assert len(known) > 10_000
    assert "recieve" in known["receive"]
    assert all(word.islower() and word.isalpha() for word in known)


@pytest.mark.slow
def test_no_source_to_learn_from_is_one_to_be_tested_on():
    roots = data_roots()
    if not any((root / CONLL["conll14"]).is_file() for root in roots):
        pytest.skip("HARNESS_DATA names no folder with conll14 and jfleg")

    def letters(tokens) -> str:
        return "".join(character for character in "".join(tokens).lower() if character.isalnum())

    learned = {letters(source) for source, _ in learner_pairs(TO_LEARN_FROM, roots)}
    tests = [sentence.source for sentence in m2.read(find_file(CONLL["conll14"], roots))]
    [lines] = aligned_lines([find_file("jfleg/test.src", roots)])
    tests += [tuple(line.split()) for line in lines]
    assert not [tokens for tokens in tests if letters(tokens) in learned and len(tokens) > 4]
