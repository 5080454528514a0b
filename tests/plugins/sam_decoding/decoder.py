"""SAM decoding (Hu et al., 2024, arXiv 2411.10666): drafts from a suffix automaton of prompt and output. The paper's
automaton of a corpus, and its other drafter for short matches, are not here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from harness.contracts import Phases
from harness.plan.registry import method
from methods.decoding.drafting.decoder import DraftingDecoder
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.search.decoder import Batch


@dataclass(eq=False, slots=True)
class State:
    """Substrings with the same end positions. next: token -> state. link: suffix link. length: of the longest one, in
    tokens. end: the index after their latest occurrence."""

    next: dict[int, State]
    link: State | None
    length: int
    end: int


class SuffixAutomaton:
    """The suffix automaton of a growing text of n token ids, of at most 2n states (Algorithm 2 of the paper). The
    paper keeps a state's earliest end; the latest costs a walk along at most n suffix links for every token.

    match: length of the longest suffix that occurred before, and the index after its latest earlier occurrence; (0, 0)
    if there is none."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.text = list[int]()
        self.match = (0, 0)
        self._last = self._root = State({}, None, 0, 0)
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        for n, token in enumerate(tokens, len(self.text) + 1):
            self.text.append(token)
            new = State({}, self._root, n, n)
            at: State | None = self._last
            while at is not None and token not in at.next:
                at.next[token], at = new, at.link
            link = self._root if at is None else _extended(at, token)
            self.match, self._last, new.link = (link.length, link.end), new, link
            state: State | None = link
            while state is not None and state is not self._root:  # the states of all suffixes end here
                state.end, state = n, state.link


def _extended(at: State, token: int) -> State:
    """The state of the longest string of `at` with the token appended, apart from longer strings."""
    known = at.next[token]
    if known.length == at.length + 1:
        return known
    copy = known.link = State(dict(known.next), known.link, at.length + 1, known.end)
    shorter: State | None = at
    while shorter is not None and shorter.next.get(token) is known:
        shorter.next[token], shorter = copy, shorter.link
    return copy


class SamDrafter(Drafter):
    """Drafts what followed the match, repeated if the text ends before; nothing if the match is below `least`."""

    def __init__(self, prompts: Sequence[Sequence[int]], block: int, least: int) -> None:
        self.automata, self.block, self.least = [SuffixAutomaton(prompt) for prompt in prompts], block, least

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        return [self._draft(self.automata[o], min(count, self.block)) for o, count in zip(outputs, most, strict=True)]

    def _draft(self, automaton: SuffixAutomaton, count: int) -> Sequence[int]:
        length, place = automaton.match
        return (automaton.text[place : place + count] * count)[:count] if length >= self.least else []

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self.automata[output].extend(tokens)


@method(
    "sam-decoding", contract="sequence-decoding", baseline="greedy", needs=("causal",),
    summary="drafts from a suffix automaton over prompt and output, verified at once",
)  # fmt: skip
class SamDecoding(DraftingDecoder):
    """The output equals that of greedy decoding. block: longest draft, in tokens. least: shortest match that is drafted
    from, in tokens."""

    block: Annotated[int, Field(ge=1)] = 10
    least: Annotated[int, Field(ge=1)] = 2

    def drafter(self, batch: Batch, phases: Phases) -> Drafter:
        with phases("draft"):
            return SamDrafter(batch.encoded.sources, self.block, self.least)
