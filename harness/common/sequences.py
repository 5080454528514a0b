"""Sequences whose items are read on access."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class ReadSequence(Sequence[T]):
    """A sequence whose `item` reads one item. A slice is a list."""

    @abstractmethod
    def item(self, number: int) -> T:
        """The item at `number`, from 0 to len - 1."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        numbers = range(len(self))[index]  # handles negative numbers, and raises the IndexError that ends an iteration
        return self.item(numbers) if isinstance(numbers, int) else [self.item(number) for number in numbers]
