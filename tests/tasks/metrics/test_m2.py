"""MaxMatch: cases worked by hand from the description of the scorer, its own example, and what must always hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.errors import RequestError
from tasks.metrics.m2 import Annotated, counts, measures, parse, read, score
from tasks.metrics.m2_lattice import Gold, Lattice

A_TO_H = tuple("abcdefgh")


def gold(start, end, *corrections):
    return Gold(start, end, tuple(tuple(text.split()) for text in corrections))


def row(hypothesis, source, *annotators, **options):
    sentence = Annotated(tuple(source.split()), dict(enumerate(annotators)))
    return tuple(counts([hypothesis.split()], [sentence], **options)[0].tolist())


def test_an_edit_counts_when_span_and_words_are_the_gold_ones():
    edits = [gold(1, 2, "went"), gold(3, 3, "the")]
    assert row("He went to the school .", "He go to school .", edits) == (2, 2, 2)
    assert row("He goes to the school .", "He go to school .", edits) == (1, 2, 2)
    assert row("He go to school .", "He go to school .", edits) == (0, 0, 2)


def test_words_next_to_each_other_are_taken_as_the_phrase_that_the_gold_edit_is():
    assert row("He ate it .", "He is eat it .", [gold(1, 3, "ate")]) == (1, 1, 1)
    # `the cats` is one gold edit here although `cat` alone could have been replaced
    assert row("I saw the cats", "I saw a cat", [gold(2, 4, "the cats")]) == (1, 1, 1)
    assert row("I saw the cats", "I saw a cat", [gold(2, 3, "the"), gold(3, 4, "cats")]) == (2, 2, 2)


def test_edits_that_match_nothing_are_merged_over_two_unchanged_words_at_most():
    assert row("x b c y e", "a b c d e", []) == (0, 1, 0)
    assert row("x b c d y f", "a b c d e f", []) == (0, 2, 0)
    assert row("x b c y e", "a b c d e", [], max_unchanged_words=1) == (0, 2, 0)


def test_a_gold_edit_inside_a_longer_change_is_found():
    assert row("x b c y e", "a b c d e", [gold(3, 4, "y")]) == (1, 2, 1)


def test_one_gold_insertion_serves_one_of_two_equal_insertions():
    assert row("the the cat", "cat", [gold(0, 0, "the")]) == (1, 2, 1)
    assert row("the the cat", "cat", [gold(0, 0, "the the")]) == (1, 1, 1)


def test_any_of_the_alternative_corrections_will_do_and_the_empty_one_deletes():
    several = [gold(1, 2, "the", "a")]
    assert row("in the case", "in an case", several) == row("in a case", "in an case", several) == (1, 1, 1)
    assert row("in one case", "in an case", several) == (0, 1, 1)
    assert row("in case", "in an case", [gold(1, 2, "the", "")]) == (1, 1, 1)
    # a replacement also is a deletion and an insertion: the deletion is the gold one, the insertion is not
    assert row("in one case", "in an case", [gold(1, 2, "the", "")]) == (1, 2, 1)


def test_an_annotator_who_left_the_sentence_as_it_is_rewards_a_copy():
    assert row("a b", "a b", [gold(0, 1, "x")], []) == (0, 0, 0)
    assert row("x b", "a b", [gold(0, 1, "x")], []) == (1, 1, 1)


def test_an_empty_hypothesis_is_one_deletion_and_an_empty_source_one_insertion():
    assert row("", "a b c", []) == (0, 1, 0)
    assert row("", "a b c", [gold(0, 3, "")]) == (1, 1, 1)
    assert row("a b", "", [gold(0, 0, "a b")]) == (1, 1, 1)
    assert row("", "", []) == (0, 0, 0)


def test_ties_between_annotators_go_to_fewer_gold_edits():
    three = [gold(0, 1, "z"), gold(1, 2, "z"), gold(2, 3, "z")]
    assert row("a b x", "a b c", three, [gold(0, 1, "z")]) == (0, 1, 1)  # F is 0 for both


def test_the_annotator_is_taken_who_makes_f_of_all_sentences_so_far_the_largest():
    words = " ".join(f"w{number}" for number in range(30))
    missed = [gold(number, number + 1, "z") for number in range(10, 20)]
    one, both = [gold(0, 1, "x")], [gold(0, 1, "x"), gold(5, 6, "y"), *missed]
    changed = words.replace("w0 ", "x ").replace(" w5 ", " y ")
    # alone: 1.25 * 1 / (0.25 * 1 + 2) = 0.56 beats 1.25 * 2 / (0.25 * 12 + 2) = 0.5
    assert row(changed, words, one, both) == (1, 2, 1)
    # after 8 missed edits: 1.25 * 1 / (0.25 * 9 + 2) = 0.29 loses to 1.25 * 2 / (0.25 * 20 + 2) = 0.36
    first = Annotated(A_TO_H, {0: [gold(number, number + 1, "z") for number in range(8)]})
    second = Annotated(tuple(words.split()), {0: one, 1: both})
    assert counts([list(A_TO_H), changed.split()], [first, second]).tolist() == [[0, 0, 8], [2, 2, 12]]


def test_precision_recall_and_f_are_those_of_the_summed_counts():
    sentences = [Annotated(("a", "b"), {0: [gold(0, 1, "x")]}), Annotated(("a", "b"), {0: [gold(1, 2, "y")]})]
    result = score(counts([["x", "b"], ["z", "b"]], sentences))
    assert result == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    nothing = score(counts([["a", "b"]], sentences[:1]))
    assert nothing == (1.0, 0.0, 0.0)


def test_f_has_an_interval_over_sentences_that_holds_it():
    sentences = [Annotated(("a", "b"), {0: [gold(0, 1, "x")]})] * 30
    found = measures(counts([["x" if number % 3 else "z", "b"] for number in range(30)], sentences))
    assert found["precision"].value == found["recall"].value == pytest.approx(200 / 3)
    assert found["f0.5"].low < found["f0.5"].value < found["f0.5"].high


@given(st.lists(st.sampled_from("abc"), max_size=7), st.lists(st.sampled_from("abc"), max_size=7), st.data())
@settings(deadline=None, max_examples=150)
def test_the_edits_turn_the_source_into_the_hypothesis_whatever_the_gold_edits(source, hypothesis, data):
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, len(source)))
    word = data.draw(st.sampled_from(["a", "b c", ""]))
    edits = Lattice(source, hypothesis).best_edits([gold(start, end, word)])
    result = list(source)
    for edit in reversed(edits):
        result[edit.start : edit.end] = edit.words
    assert result == hypothesis
    assert (not edits) == (source == hypothesis)


def test_a_long_sentence_with_nothing_in_common_is_scored_in_time():
    source, hypothesis = [f"s{number}" for number in range(60)], [f"h{number}" for number in range(80)]
    assert [edit[:2] for edit in Lattice(source, hypothesis).best_edits([])] == [(0, 60)]


def test_a_hypothesis_that_repeats_itself_is_scored_in_time():
    source = ["this", "are", "a", "sentence", "of", "some", "words"]
    hypothesis = ["this", "is", *source[2:]] * 25
    found = Lattice(source, hypothesis).best_edits([gold(1, 2, "is")])
    assert [edit[:2] for edit in found][:1] == [(1, 2)] and len(found) > 1


def test_a_file_is_read_with_all_annotators_and_their_alternatives(tmp_path):
    file = tmp_path / "gold.m2"
    file.write_text(
        "S a b\nA 0 1|||Edit|||x||y z||-NONE-|||REQUIRED|||-NONE-|||0\n"
        "A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||2\n\n"
        "S c\nA 1 1|||Edit|||.|||REQUIRED|||-NONE-|||0\n"
    )
    assert read(file) == [
        Annotated(("a", "b"), {0: [gold(0, 1, "x", "y z", "")], 2: []}),
        Annotated(("c",), {0: [gold(1, 1, ".")]}),
    ]
    assert list(parse(["S a", "", "", "S b"])) == [Annotated(("a",)), Annotated(("b",))]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("A 0 1|||Nn|||x", "3 fields"),
        ("A 0 one|||Nn|||x|||REQUIRED|||-NONE-|||0", "not a whole number"),
        ("A 1 0|||Nn|||x|||REQUIRED|||-NONE-|||0", "from token 1 to token 0"),
        ("A 0|||Nn|||x|||REQUIRED|||-NONE-|||0", "two token offsets"),
        ("hello", "starts with S or A"),
        ("S again", "second S line"),
    ],
)
def test_a_broken_line_is_named_with_file_and_number(tmp_path, line, problem):
    file = tmp_path / "gold.m2"
    file.write_text(f"S a b\n\nS c d\n{line}\n")
    with pytest.raises(RequestError, match=f"{file}, line 4: .*{problem}"):
        read(file)


def test_a_file_of_windows_is_read_as_any_other(tmp_path):
    text = "S a b\nA 0 1|||T|||c|||REQUIRED|||-NONE-|||0\n\nS d\n"
    for name, content in (("unix.m2", text), ("windows.m2", "\ufeff" + text.replace("\n", "\r\n"))):
        (tmp_path / name).write_bytes(content.encode())
    assert read(tmp_path / "windows.m2") == read(tmp_path / "unix.m2")


def test_fewer_hypotheses_than_sources_and_missing_files_are_refused(tmp_path):
    with pytest.raises(RequestError, match="0 hypotheses for 1 source sentences"):
        counts([], [Annotated(("a",))])
    with pytest.raises(RequestError, match=r"none\.m2"):
        read(tmp_path / "none.m2")


def test_the_official_example_scores_as_its_readme_says():
    roots = [Path(root) for root in os.environ.get("HARNESS_DATA", "").split(":") if root]
    folder = next((root / "m2scorer-example" for root in roots if (root / "m2scorer-example").is_dir()), None)
    if folder is None:
        pytest.skip("no m2scorer-example under HARNESS_DATA (third-party files, not part of this repository)")
    hypotheses = [line.split() for line in (folder / "system").read_text().splitlines()]
    assert score(counts(hypotheses, read(folder / "source_gold"))) == pytest.approx((0.8, 0.8, 0.8))
