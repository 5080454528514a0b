"""The interface of drafters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class Drafter(ABC):
    """Proposes continuations of a batch's outputs. An output has the number of its source in the batch
    (`Batch.encoded.sources`), also after others have ended."""

    @abstractmethod
    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        """For each of these outputs, which have not ended, a draft of at most `most` tokens (0 or more); empty for an
        ordinary step. What follows an end token or is no id of the decoder is cut off by the caller."""

    @abstractmethod
    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        """These tokens were appended to an output after a draft of `drafted` tokens: the accepted draft tokens, usually
        followed by one that the model chose; after an ordinary step (`drafted` is 0) that one token. Not called for
        outputs that have ended."""
