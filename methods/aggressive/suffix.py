"""The occurrence of the output's last tokens in the source, updated token by token."""

from __future__ import annotations

from collections.abc import Sequence


class SuffixMatch:
    """The unique occurrence of a suffix of the output in the source (Algorithm 1, line 3).

    Some suffix o_{j-q..j} occurs exactly once in the source if and only if a single position of the source shares the
    longest common suffix with the output: longer suffixes occur at a subset of the positions of shorter ones. So it is
    enough to keep, for each position of the output's last token, the length of the common suffix that ends there. A new
    token takes as many steps as it has occurrences in the source.
    """

    __slots__ = ("_agreeing", "_places", "source")

    def __init__(self, source: Sequence[int], framed: bool) -> None:
        """framed: a sentinel precedes the source. It equals the output's start token and no other token."""
        self.source = source
        self._places: dict[int, list[int]] = {}
        for place, token in enumerate(source):
            self._places.setdefault(token, []).append(place)
        self._agreeing = {-1: 1} if framed else {}  # position of the output's last token -> length of the common suffix

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens were appended to the output."""
        for token in tokens:
            before = self._agreeing
            self._agreeing = {place: before.get(place - 1, 0) + 1 for place in self._places.get(token, ())}

    def unique(self) -> int | None:
        """Position in the source after the unique occurrence; None if there is none."""
        agreeing = self._agreeing
        if len(agreeing) == 1:
            return next(iter(agreeing)) + 1
        longest = max(agreeing.values(), default=0)
        places = [place for place, length in agreeing.items() if length == longest]
        return places[0] + 1 if len(places) == 1 else None
