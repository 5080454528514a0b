"""Acceptance: how much of what is drafted the model agrees with, by one definition for every method that drafts.
docs/measuring.md ("Acceptance") defines an iteration, what it accepts, and the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.contracts import Decoded
from harness.contracts.answers import common_prefix

POSITIONS = (1, 2, 4, 8, 16, 32)


def acceptance(answers: Sequence[Decoded]) -> dict[str, float]:
    """These figures, as far as the traces tell; nothing for a method that reports no iterations."""
    told = [answer for answer in answers if answer.trace.iterations]
    if not told:
        return {}
    tokens, iterations = sum(len(a.ids) for a in told), sum(a.trace.iterations for a in told)
    found = {
        "accepted_tokens": tokens / iterations,
        "accepted_tokens_by_item": sum(len(a.ids) / a.trace.iterations for a in told) / len(told),
    }
    blocks = [length for answer in told for length in answer.trace.accepted]
    if max(blocks, default=1) > 1:
        sizes = [2 ** (length.bit_length() - 1) for length in blocks]
        found |= {f"blocks_of_{size}": float(sizes.count(size)) for size in sorted(set(sizes))}
    agreed = [pair for answer in told for pair in drafted(answer)]
    for position in POSITIONS:
        longer = [good for length, good in agreed if length >= position]
        if longer:
            found[f"accepted_at_{position}"] = sum(good >= position for good in longer) / len(longer)
    return found


def drafted(answer: Decoded) -> Iterator[tuple[int, int]]:
    """Of each draft of an output, its tokens and how many of them the model agreed with."""
    written = 0
    for draft, length in zip(answer.trace.drafts, answer.trace.accepted, strict=False):
        if draft:
            yield len(draft), common_prefix(draft, answer.ids[written : written + length])
        written += length
