"""Real corrections of learners' English, for the last steps of a corrector's training.

`conll13`: the sentences of CoNLL-2013 with the gold edits of the shared task. `jfleg-dev`: the development part of
JFLEG, four references per sentence. None of their sources is, letter by letter, a source of CoNLL-2014 or of JFLEG's
test part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.common.errors import unknown
from tasks.data.files import aligned_lines, find_file
from tasks.metrics import m2
from tasks.metrics.m2_lattice import Gold

CONLL = {"conll13": "conll13/official-preprocessed.revised.m2", "conll14": "conll14/official-2014.combined.m2"}
TO_LEARN_FROM = ("conll13", "jfleg-dev")

Tokens = list[str]


def learner_pairs(names: Sequence[str], roots: Sequence[Path]) -> list[tuple[Tokens, Tokens]]:
    """(source, corrected sentence) of the named sets, one per annotator or reference. A correct sentence is its own
    correction.

    Raises `RequestError` for a name that is not in `TO_LEARN_FROM` and for missing files.
    """
    pairs: list[tuple[Tokens, Tokens]] = []
    for name in names:
        if name not in TO_LEARN_FROM:
            raise unknown("set of corrections", name, TO_LEARN_FROM, "task.corrections")
        pairs += _conll(roots) if name == "conll13" else _jfleg(roots)
    return pairs


def jfleg(split: str, roots: Sequence[Path]) -> list[list[Tokens]]:
    """Per sentence of a part of JFLEG, the source and its four references. Raises `RequestError` for missing files."""
    names = [f"jfleg/{split}.{part}" for part in ("src", "ref0", "ref1", "ref2", "ref3")]
    columns = aligned_lines([find_file(name, roots) for name in names])
    return [[line.split() for line in lines] for lines in zip(*columns, strict=True)]


def _conll(roots: Sequence[Path]) -> Iterator[tuple[Tokens, Tokens]]:
    for sentence in m2.read(find_file(CONLL["conll13"], roots)):
        for edits in sentence.annotators.values():
            yield list(sentence.source), applied(sentence.source, edits)


def _jfleg(roots: Sequence[Path]) -> Iterator[tuple[Tokens, Tokens]]:
    for source, *references in jfleg("dev", roots):
        for reference in references:
            yield source, reference


def applied(source: Sequence[str], edits: Sequence[Gold]) -> Tokens:
    """The source with the first correction of every edit. Insertions at one position keep their order. Of overlapping
    edits one is applied: the one that begins first; ties: the longest, then the first."""
    kept: list[Gold] = []
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.start < edit.end, -edit.end)):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
    tokens = list(source)
    for edit in reversed(kept):
        tokens[edit.start : edit.end] = edit.corrections[0]
    return tokens
