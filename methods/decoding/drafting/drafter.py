"""What proposes tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class Drafter(ABC):
    """Proposes what may follow the outputs of a batch. Outputs are numbered as the sources are."""

    @abstractmethod
    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        """For each output asked for, at most `most` tokens that may follow it; empty for an ordinary step."""

    @abstractmethod
    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        """These tokens were appended to an output, after a draft of `drafted` tokens. Not called once it has ended."""
