"""The interface of drafters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class Drafter(ABC):
    """Proposes continuations of a batch's outputs. Outputs have the numbers of their sources."""

    @abstractmethod
    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        """For each of these outputs, a draft of at most `most` tokens; empty for an ordinary step."""

    @abstractmethod
    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        """These tokens were appended to an output after a draft of `drafted` tokens. Not called for ended outputs."""
