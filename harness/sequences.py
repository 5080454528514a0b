"""Sequences whose items are read when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class ReadSequence(Sequence[T]):
    """A sequence of which `item` reads one; a slice of it is a list."""

    @abstractmethod
    def item(self, number: int) -> T:
        """The item at `number`, from 0 to len - 1."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        numbers = range(len(self))[index]  # counts negative numbers from the end, and ends an iteration
        return self.item(numbers) if isinstance(numbers, int) else [self.item(number) for number in numbers]
