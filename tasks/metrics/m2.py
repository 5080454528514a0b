"""MaxMatch (M2) scores of corrected sentences: precision, recall and F0.5 against one or several annotators.

Dahlmeier & Ng 2012, "Better Evaluation for Grammatical Error Correction". The numbers equal those of the official
scorer of the CoNLL-2013/14 shared tasks (release 3.2). For each sentence the annotator with the best cumulative F is
chosen. `noop` marks a correct sentence; `||` separates alternative corrections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.common import statistics
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts.tasks import Measure
from tasks.metrics.m2_lattice import Edit, Gold, Lattice

NOTHING = "-NONE-"
BETA = 0.5  # of F0.5


@dataclass(frozen=True, slots=True)
class Annotated:
    """A tokenised source sentence and each annotator's edits; none if an annotator left it unchanged."""

    source: tuple[str, ...]
    annotators: dict[int, list[Gold]] = field(default_factory=lambda: {0: []})


class Score(NamedTuple):
    """Precision, recall and F, from 0 to 1. Precision is 1 without proposed edits, recall 1 without gold edits."""

    precision: float
    recall: float
    f: float


def read(path: Path) -> list[Annotated]:
    """Sentences of an M2 file. Raises `RequestError` with file and line number at the first broken line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the gold edits {path}: {error}; give an M2 file") from error
    return list(parse(lines, str(path)))


def parse(lines: Iterable[str], name: str = "M2") -> Iterable[Annotated]:
    """Sentences of M2 lines: `S` opens one, `A start end|||type|||correction|||...|||annotator` annotates it."""
    source: tuple[str, ...] | None = None
    annotators: dict[int, list[Gold]] = {}
    for number, line in enumerate([*lines, ""], 1):
        try:
            if not line.strip():
                if source is not None:
                    yield Annotated(source, dict(sorted(annotators.items())) or {0: []})
                source, annotators = None, {}
            elif line.startswith(("S ", "S\t")) or line.rstrip() == "S":
                if source is not None:
                    raise ValueError("a second S line before a blank line")
                source = tuple(line[2:].split())
            elif line.startswith("A "):
                if source is None:
                    raise ValueError("an A line without an S line above it")
                annotator, edit = _edit(line)
                edits = annotators.setdefault(annotator, [])
                if edit is not None and edit.end <= len(source):  # the official scorer also ignores the others
                    edits.append(edit)
            elif not line.startswith("I "):
                raise ValueError("expected a line that starts with S or A")
        except ValueError as error:
            raise RequestError(f"{name}, line {number}: {error}; found {line[:80]!r}") from None


def counts(
    hypotheses: Sequence[Sequence[str]],
    gold: Sequence[Annotated],
    max_unchanged_words: int = 2,
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """int64 [n, 3]: correct, proposed and gold edits of each sentence, for the annotator chosen there.

    hypotheses: tokens of each corrected sentence. The annotator with the largest F-beta over all sentences so far is
    chosen. Ties: more correct edits, then fewer proposed and (times beta squared) gold edits, then the first annotator.
    Raises `RequestError` when the numbers of hypotheses and sources differ.
    """
    if len(hypotheses) != len(gold):
        raise RequestError(
            f"{len(hypotheses)} hypotheses for {len(gold)} source sentences; give one line per sentence, in order"
        )
    rows = np.zeros((len(gold), 3), np.int64)
    total = np.zeros(3, np.int64)
    for number, (hypothesis, sentence) in enumerate(zip(hypotheses, gold, strict=True)):
        lattice = Lattice(sentence.source, hypothesis, max_unchanged_words)
        taken: tuple[float, float, float] | None = None
        for edits in sentence.annotators.values():
            proposed = lattice.best_edits(edits)
            row = np.array([_matches(proposed, edits), len(proposed), len(edits)])
            correct, claimed, wanted = (total + row).tolist()
            rank = (f_beta(correct, claimed, wanted), correct, -(claimed + BETA**2 * wanted))
            if taken is None or rank > taken:
                taken, rows[number] = rank, row
        total += rows[number]
        if progress:
            progress.update("M2", number + 1, len(gold), "sentences")
    return rows


def score(table: NDArray[np.int64]) -> Score:
    """Score of the sentences together, from `counts`."""
    correct, proposed, gold = table.sum(axis=0).tolist()
    precision, recall = correct / proposed if proposed else 1.0, correct / gold if gold else 1.0
    return Score(precision, recall, f_beta(correct, proposed, gold))


def measures(table: NDArray[np.int64]) -> dict[str, Measure]:
    """`precision`, `recall` and `f0.5` from 0 to 100, F0.5 with its interval over sentences.

    For the interval the annotators of the sentences stay fixed.
    """
    columns = [column.astype(np.float64) for column in table.T]
    interval = statistics.block_jackknife(columns, lambda c, p, g: 100 * 1.25 * c / np.maximum(p + 0.25 * g, 1e-12), 1)
    precision, recall, f = (100 * value for value in score(table))
    return {"precision": Measure(precision), "recall": Measure(recall), "f0.5": Measure.of(f, interval)}


def f_beta(correct: float, proposed: float, gold: float) -> float:
    """(1 + beta^2) c / (beta^2 g + p) with beta = `BETA`; 1 if there are neither proposed nor gold edits."""
    below = BETA**2 * gold + proposed
    return (1 + BETA**2) * correct / below if below else 1.0


def _edit(line: str) -> tuple[int, Gold | None]:
    """(annotator, edit) of an A line; edit None for a noop. Raises `ValueError` for a broken line."""
    fields = line[2:].rstrip("\r\n").split("|||")
    if len(fields) < 6:
        raise ValueError(f"{len(fields)} fields parted by |||, expected 6")
    span = fields[0].split()
    if len(span) != 2:
        raise ValueError("expected two token offsets after A")
    try:
        start, end, annotator = int(span[0]), int(span[1]), int(fields[5])
    except ValueError:
        raise ValueError("an offset or the annotator is not a whole number") from None
    if fields[1] == "noop" or start < 0:
        return annotator, None
    if start > end:
        raise ValueError(f"an edit from token {start} to token {end}")
    corrections = ("" if text == NOTHING else text.strip() for text in fields[2].split("||"))
    return annotator, Gold(start, end, tuple(tuple(text.split()) for text in corrections))


def _matches(proposed: Sequence[Edit], gold: Sequence[Gold]) -> int:
    """Number of gold edits that are proposed; both sides are read once in order, as in the official scorer."""
    found = next_gold = 0
    for edit in proposed:
        for number in range(next_gold, len(gold)):
            wanted = gold[number]
            if edit[:2] == wanted[:2] and edit.words in wanted.corrections:
                found, next_gold = found + 1, number + 1
    return found
