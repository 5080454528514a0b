"""The edits between two sequences."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher


def edits(source: Sequence[Hashable], output: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The edits from a source to an output, in order, as spans [start, end) of the output. The span of a deletion is
    empty. Adjacent changes are one edit. Ambiguous edits (such as one of two equal items deleted) are placed as late as
    possible."""
    found = []
    blocks = SequenceMatcher(None, source, output, autojunk=False).get_opcodes()
    for number, (kind, first, last, start, end) in enumerate(blocks):
        if kind == "equal":
            continue
        moved, room = 0, blocks[number + 1][2] - blocks[number + 1][1] if number + 1 < len(blocks) else 0
        span, begin, stop = (source, first, last) if kind == "delete" else (output, start, end)
        while kind != "replace" and moved < room and span[begin + moved] == span[stop + moved]:
            moved += 1
        found.append((start + moved, end + moved))
    return found
