"""Where the end of the output occurs in the source, kept up to date token by token."""

from __future__ import annotations

from collections.abc import Sequence


class SuffixMatch:
    """The unique occurrence of a suffix of the output in the source (Algorithm 1, line 3).

    Some suffix o_{j-q..j} occurs exactly once in the source if and only if a single place of the source shares the
    longest common suffix with the output: longer suffixes occur at a subset of the places of shorter ones. So it is
    enough to keep, for each place that holds the output's last token, how many tokens before it agree too. A new token
    costs as many steps as the source has occurrences of it.
    """

    __slots__ = ("_agreeing", "_places", "source")

    def __init__(self, source: Sequence[int], framed: bool) -> None:
        """framed: the source begins with a sentinel, which the output's start token equals and no other token does."""
        self.source = source
        self._places: dict[int, list[int]] = {}
        for place, token in enumerate(source):
            self._places.setdefault(token, []).append(place)
        self._agreeing = {-1: 1} if framed else {}  # place of the output's last token -> tokens that agree up to it

    def extend(self, tokens: Sequence[int]) -> None:
        """The output has grown by these tokens."""
        for token in tokens:
            before = self._agreeing
            self._agreeing = {place: before.get(place - 1, 0) + 1 for place in self._places.get(token, ())}

    def unique(self) -> int | None:
        """Place of the source behind the unique occurrence, or None when there is none."""
        agreeing = self._agreeing
        if len(agreeing) == 1:
            return next(iter(agreeing)) + 1
        longest = max(agreeing.values(), default=0)
        places = [place for place, length in agreeing.items() if length == longest]
        return places[0] + 1 if len(places) == 1 else None
