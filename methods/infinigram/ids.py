"""Queries as arrays of token ids."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError

Ngram = Sequence[int] | NDArray[np.integer]
Cnf = Sequence[Sequence[Ngram]]  # an AND of ORs of n-grams

EMPTY = np.empty(0, np.int64)


def integers(ngram: Ngram) -> NDArray[np.int64]:
    """An int64 array of ids. Raises `RequestError` for anything but integers."""
    try:
        ids = np.asarray(ngram)
    except ValueError as error:  # sequences of different lengths
        raise RequestError(f"a query is not a sequence of token ids: {error}") from error
    if ids.dtype == np.int64 and ids.ndim == 1:
        return ids
    if not ids.size and ids.ndim == 1:
        return EMPTY
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise RequestError(f"a query of {ids.dtype} and {ids.ndim} dimensions is not a sequence of token ids")
    return ids.astype(np.int64)


def flattened(arrays: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenated arrays, and the offset of each."""
    flat = np.concatenate([EMPTY, *arrays]) if len(arrays) != 1 else arrays[0]
    return flat, np.array([0, *accumulate(map(len, arrays))])


def joined(ngrams: Sequence[Ngram] | NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`flattened` of n-grams, fast for lists and for the rows of an array: converting 4,000 lists one by one takes as
    long as counting them."""
    if isinstance(ngrams, np.ndarray) and ngrams.ndim == 2:
        return integers(ngrams.ravel()), np.arange(len(ngrams) + 1) * ngrams.shape[1]
    if not all(type(ngram) is list for ngram in ngrams):
        return flattened([integers(ngram) for ngram in ngrams])
    return integers(list(chain.from_iterable(ngrams))), np.cumsum([0, *map(len, ngrams)], dtype=np.int64)


def as_cnf(query: Any) -> Cnf:
    """The query as an AND of ORs; a single n-gram becomes one clause."""
    nested = isinstance(query, Sequence | np.ndarray) and len(query) and isinstance(query[0], Iterable)
    return query if nested else [[query]]


def whole(name: str, value: Any, least: int) -> int:
    """The value as an int. Raises `RequestError` for one below `least` or none at all."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise RequestError(f"{name} = {value!r}: give a whole number") from error
    if number < least:
        raise RequestError(f"{name} = {number}: give {least} or more")
    return number
