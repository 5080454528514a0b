"""The scores of the official programs on the real data sets, which must be in $HARNESS_DATA."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.common.files import data_roots
from tasks.data.files import aligned_lines, find_file
from tasks.metrics.gleu import gleu
from tasks.metrics.m2 import counts, read, score
from tasks.metrics.sari import sari

pytestmark = pytest.mark.slow


def lines(*names: str) -> list[list[list[str]]]:
    """Tokens of each file's lines, split at single spaces as the programs do; without a file, the test is skipped."""
    roots: list[Path] = data_roots()
    if not all(any((root / name).exists() for root in roots) for name in names):
        pytest.skip(f"{names[0]} is in no folder of $HARNESS_DATA")
    return [[line.split(" ") for line in file] for file in aligned_lines([find_file(name, roots) for name in names])]


@pytest.mark.parametrize(
    ("hypothesis", "randint", "wanted"),
    [
        ("test.src", "python3", 40.4740),
        ("test.spellchecked.src", "python3", 43.4037),
        ("test.ref0", "python3", 71.3275),
        ("test.src", "python2", 40.54),
    ],
)
def test_gleu_is_what_the_release_of_jfleg_computes(hypothesis, randint, wanted):
    names = ["test.src", hypothesis, *(f"test.ref{number}" for number in range(4))]
    sources, hypotheses, *references = lines(*(f"jfleg/{name}" for name in names))
    found = gleu(sources, hypotheses, [list(several) for several in zip(*references, strict=True)], randint=randint)
    assert found.value == pytest.approx(wanted, abs=0.005 if randint == "python2" else 0.0001)


@pytest.mark.parametrize(
    ("hypothesis", "wanted"),
    [("test.spellchecked.src", (0.3124, 0.2264, 0.2903)), ("test.ref0", (0.9399, 0.9937, 0.9502))],
)
def test_m2_is_what_the_official_scorer_computes(hypothesis, wanted):
    [hypotheses] = lines(f"jfleg/{hypothesis}")
    found = score(counts(hypotheses, read(find_file("jfleg/test.ref.m2", data_roots()))))
    assert tuple(round(value, 4) for value in found) == wanted


@pytest.mark.parametrize(
    ("data", "references", "source", "hypothesis", "wanted"),
    [
        ("turkcorpus", [f"test.turk.{number}" for number in range(8)], "test.norm", "test.simp", 38.0874),
        ("turkcorpus", [f"test.turk.{number}" for number in range(8)], "test.norm", "test.norm", 25.9319),
        ("asset", [f"test.simp.{number}" for number in range(10)], "test.orig", "test.orig", 19.0945),
        ("asset", [f"test.simp.{number}" for number in range(1, 10)], "test.orig", "test.simp.0", 40.3917),
    ],
)
def test_sari_is_what_its_authors_program_computes(data, references, source, hypothesis, wanted):
    sources, hypotheses, *several = lines(*(f"{data}/{name}" for name in (source, hypothesis, *references)))
    found = sari(sources, hypotheses, [list(texts) for texts in zip(*several, strict=True)])["sari"]
    assert found.value == pytest.approx(wanted, abs=0.0001)
