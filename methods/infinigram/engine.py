"""The engine: counts, probabilities and documents of n-grams of any length (Liu et al., 2024, sections 3.3 and 3.4).

The denominator of a context counts its occurrences that are followed by a token in the same document, so next-token
probabilities sum to 1. The empty context occurs before every token. N-grams do not cross documents.
"""

from __future__ import annotations

import mmap
import operator
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError, reason
from methods.infinigram import documents
from methods.infinigram.answers import (
    CnfCount,
    Distribution,
    Document,
    InfinigramDistribution,
    InfinigramProbability,
    NgramProbability,
    Scores,
    Span,
)
from methods.infinigram.ids import Cnf, Ngram, as_cnf, flattened, integers, joined, whole
from methods.infinigram.kernels import columns, followers, grouped, holding, scanning, summed
from methods.infinigram.layout import TABLES, Opened, open_shard, read_metadata
from methods.infinigram.parallel import in_parallel

_WINDOW = 20  # tokens of text on each side of a match
_DRAWN = 1 << 12  # most documents asked for that are found by drawing matches; its memory grows with them
_DRAWS = 16  # matches drawn for each document asked for, before all are looked at


def open_index(
    directories: Path | str | Sequence[Path | str], subtract: Sequence[Path | str] = (), *,
    tokenizer_hash: str | None = None,
) -> Engine:  # fmt: skip
    """An engine over `directories` minus `subtract`, whose documents must all be in `directories` as well.

    Raises `RequestError` for a folder that is not a complete index, for indexes of different vocabularies or
    tokenizers, and for one built with another tokenizer than `tokenizer_hash`.
    """
    added = [directories] if isinstance(directories, Path | str) else list(directories)
    if not added:
        raise RequestError("no index to open; give one or more folders")
    for place, times in Counter(Path(place).resolve() for place in added).items():
        if times > 1:
            warnings.warn(f"the index {place} is given {times} times: its documents count as often", stacklevel=2)
    return Engine([Path(place) for place in added], [Path(place) for place in subtract], tokenizer_hash)


class Engine:
    """Answers queries; see `open_index`. Threads may share it."""

    def __init__(self, added: Sequence[Path], subtracted: Sequence[Path], tokenizer_hash: str | None = None) -> None:
        self.shards: list[Opened] = []
        self.vocabulary_size, self.tokenizer_hash = 0, tokenizer_hash
        for sign, folders in ((1, added), (-1, subtracted)):
            for folder in folders:
                metadata = read_metadata(folder)
                self._agree(folder, metadata)
                for number, facts in enumerate(metadata["shards"]):
                    shard = open_shard(folder / f"shard{number}", facts, self.vocabulary_size)
                    self.shards.append(Opened(folder, number, sign, shard))
        self._subtracts = bool(subtracted)
        self._table: NDArray[np.int64] | None = np.zeros((len(self.shards), columns.COLUMNS), np.int64)
        for row, (_, _, sign, shard) in zip(self._table, self.shards, strict=True):
            row[columns.TOKENS], row[columns.POINTERS] = shard.tokens.ctypes.data, shard.suffixes.ctypes.data
            row[columns.FIRSTS], row[columns.SUFFIXES] = shard.firsts.ctypes.data, shard.count
            row[columns.WIDTH], row[columns.NARROW] = shard.width, shard.tokens.dtype.itemsize == 2
            row[columns.SIGN], row[columns.VOCABULARY] = sign, self.vocabulary_size
            row[columns.SAMPLES], row[columns.DOCUMENTS] = shard.samples.ctypes.data, shard.documents.ctypes.data
            row[columns.HELD] = len(shard.documents) - 1

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Every later query raises `RequestError`. Files stay mapped as long as the engine exists, because another
        thread may be in a query."""
        self._table = None

    def __reduce__(self) -> str:
        raise TypeError("an engine holds addresses of mapped files: open the index again instead of copying the engine")

    def preload(self) -> None:
        """Map every page of the index's arrays, so that no query pays for the first use of a page. With the files in
        the page cache the first hundred counts took 30 us each without this and 5 us with it. Useless for an index
        larger than memory."""
        self._rows()
        for *_, shard in self.shards:
            for array in (shard.tokens, shard.suffixes, shard.firsts, shard.samples, shard.documents):
                array.view(np.uint8)[:: mmap.PAGESIZE].max(initial=0)

    @property
    def bytes(self) -> int:
        """Size of tokens and suffixes."""
        return sum(shard.tokens.nbytes + shard.suffixes.nbytes for *_, shard in self.shards)

    @property
    def table_bytes(self) -> int:
        """Size of the other tables."""
        return sum(sum((shard.folder / name).stat().st_size for name in TABLES) for *_, shard in self.shards)

    # ---------------------------------------------------------------- counts

    def count(self, ngram: Ngram) -> int:
        """Occurrences. The empty n-gram occurs once per token."""
        table = self._table
        if table is None:
            raise _closed()
        found = summed.count(table, integers(ngram))
        if found < 0:
            self.checked(ngram)
            raise _too_much_subtracted()
        return int(found)

    def count_many(self, ngrams: Sequence[Ngram] | NDArray[np.integer]) -> NDArray[np.int64]:
        """Occurrences int64 [Q] of n-grams, or of the rows [Q, n] of an array, in parallel on all cores. On two cores
        each of 16,384 5-grams takes 0.7 us as a list (0.3 us to read the list) and 0.4 us as a row of an array.
        """
        table, (flat, offsets) = self._rows(), joined(ngrams)
        totals = np.empty(len(offsets) - 1, np.int64)

        def part(begin: int, end: int) -> None:
            grouped.count_many(table, flat, offsets[begin : end + 1], totals[begin:end])

        in_parallel(part, len(totals), least=256)
        if len(totals) and totals.min() < 0:  # a token outside the vocabulary, or more subtracted than added
            first = int(totals.argmin())
            self.checked(flat[offsets[first] : offsets[first + 1]])
            raise _too_much_subtracted()
        return totals

    # ---------------------------------------------------------------- probabilities

    def ngram_prob(self, context: Ngram, token: int) -> NgramProbability:
        """Counts of the context followed by any token, and by this token."""
        count, total, *_ = self._probability(context, token, longest=False)
        return NgramProbability(count, total)

    def ngram_distribution(self, context: Ngram) -> Distribution:
        """The exact distribution after the context. The cost grows with the number of distinct tokens in it."""
        table, ids = self._rows(), self.checked(context)
        segments = np.empty((len(table), 2), np.int64)
        summed.context(table, ids, segments)
        return Distribution(*self._following(segments, len(ids)))

    def infinigram_prob(self, context: Ngram, token: int) -> InfinigramProbability:
        """`ngram_prob` for the longest suffix of the context that is followed by a token anywhere."""
        count, total, length, single = self._probability(context, token, longest=True)
        return InfinigramProbability(count, total, length + 1, single)

    def infinigram_distribution(self, context: Ngram) -> InfinigramDistribution:
        """`ngram_distribution` for the longest suffix of the context that is followed by a token anywhere."""
        table = self._rows()
        segments = np.empty((len(table), 2), np.int64)
        length, total = summed.longest(table, self.checked(context), segments)
        _positive(int(total))
        tokens, counts = self._following(segments, int(length))
        return InfinigramDistribution(tokens, counts, int(length) + 1, len(tokens) == 1)

    def score(self, tokens: Ngram, longest: int | None = None) -> Scores:
        """The infinigram probability of every token of a text given those before it, in one scan: O(log N) per token.
        longest: most tokens of a context."""
        return self.score_many([tokens], longest)[0]

    def score_many(self, texts: Sequence[Ngram], longest: int | None = None) -> list[Scores]:
        """`score` of texts, in parallel on all cores."""
        longest = None if longest is None else whole("longest", longest, 0)
        table, arrays = self._rows(), [self.checked(text) for text in texts]
        flat, offsets = flattened(arrays)
        lengths, contexts, hits = (np.empty(len(flat), np.int64) for _ in range(3))
        single, most = np.empty(len(flat), np.bool_), len(flat) if longest is None else longest

        def part(begin: int, end: int) -> None:
            for text in range(begin, end):
                here = slice(offsets[text], offsets[text + 1])
                scanning.scan(table, flat[here], most, False, lengths[here], contexts[here], hits[here], single[here])

        in_parallel(part, len(arrays), least=1)
        _positive(int(min(contexts.min(initial=0), hits.min(initial=0))))
        return [
            Scores(lengths[low:high] + 1, contexts[low:high], hits[low:high], single[low:high])
            for low, high in pairwise(offsets.tolist())
        ]

    def suffix_counts(self, tokens: Ngram, most: int) -> NDArray[np.int64]:
        """Occurrences of the 1 to `most` tokens before each token of a text: int64 [T, most], 0 where the text has
        fewer tokens before it. In parallel on all cores."""
        ids, most = self.checked(tokens), whole("most", most, 0)
        found = np.zeros((len(ids), most), np.int64)
        for length in range(1, min(most, len(ids) - 1) + 1):
            windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], length)
            found[length:, length - 1] = self.count_many(windows)
        return found

    def continuation(self, context: Ngram, most: int, least: int = 1, share: float = 0.0) -> list[int]:
        """Up to `most` tokens after the longest suffix of the context that occurs, each the most frequent one after
        those before it. Stops before a token with less than `share` of the continuations. Empty if the suffix has
        fewer than `least` tokens."""
        most, least = whole("most", most, 0), whole("least", least, 0)
        if not 0 <= share <= 1:
            raise RequestError(f"share = {share}: give 0 to 1")
        found: list[int] = scanning.continuation(self._rows(), self.checked(context), most, least, share).tolist()
        return found

    # ---------------------------------------------------------------- documents

    def find_cnf(
        self, cnf: Cnf, max_clause_freq: int | None = None, seed: int = 0
    ) -> tuple[list[tuple[int, int]], bool]:
        """(row of the shard, document) of the documents that hold an n-gram of every clause, and whether the result may
        be incomplete: a clause with more than `max_clause_freq` matches in a shard is sampled, unless it is looked for
        in the documents of a rarer one. Documents equal to a subtracted one, token for token, are left out."""
        clauses, seed = self._clauses(cnf), whole("seed", seed, 0)
        if max_clause_freq is not None:
            max_clause_freq = whole("max_clause_freq", max_clause_freq, 1)
        return documents.find(self.shards, self._rows(), clauses, max_clause_freq, seed)

    def count_cnf(self, cnf: Cnf, max_clause_freq: int | None = None, seed: int = 0) -> CnfCount:
        """Number of documents that `find_cnf` finds."""
        found, approximate = self.find_cnf(cnf, max_clause_freq, seed)
        return CnfCount(len(found), approximate)

    def documents(
        self, query: Ngram | Cnf, limit: int | None = 10, seed: int = 0, *, window: int = _WINDOW,
        max_clause_freq: int | None = None,
    ) -> list[Document]:  # fmt: skip
        """Up to `limit` documents, drawn at random, that hold an n-gram or an AND of ORs of n-grams; None: all of them,
        in order. For a single clause and up to 4,096 documents matches are drawn, so a document with more of them is
        likelier to be drawn; else all documents that hold the query are found first."""
        window, seed, clauses = whole("window", window, 0), whole("seed", seed, 0), self._clauses(as_cnf(query))
        table, shown = self._rows(), documents.Shown([ngram for clause in clauses for ngram in clause], window)
        limit = None if limit is None else whole("limit", limit, 0)
        places: dict[tuple[int, int], int | None] = {}
        complete = limit == 0
        if limit and limit <= _DRAWN and len(clauses) == 1 and not self._subtracts:
            found, complete = holding.draw(
                table, *flattened(clauses[0]), limit, _DRAWS * (limit + 8), np.uint64(seed % (1 << 64))
            )
            places.update(((row, number), at) for row, number, at in found.tolist())
        if not complete:
            every, _ = self.find_cnf(clauses, max_clause_freq, seed)
            rng = np.random.default_rng(seed)
            for number in range(len(every)) if limit is None else rng.permutation(len(every)).tolist():
                if len(places) == limit:
                    break
                places.setdefault(every[number], None)
        return [shown(self.shards[row], table[row], number, at) for (row, number), at in places.items()]

    def attribute(self, tokens: Ngram, min_length: int = 2, limit: int = 1) -> list[Span]:
        """The maximal spans of at least `min_length` tokens of a text that occur verbatim, each with up to `limit`
        documents that hold it. In one scan, as `score`."""
        min_length, limit = whole("min_length", min_length, 1), whole("limit", limit, 0)
        ids = self.checked(tokens)
        lengths, counts, hits = (np.empty(len(ids) + 1, np.int64) for _ in range(3))
        single, beyond = np.empty(len(ids) + 1, np.bool_), np.append(ids, 0)  # the last span ends before it
        scanning.scan(self._rows(), beyond, len(ids), True, lengths, counts, hits, single)
        _positive(int(min(counts.min(), hits.min())))
        ends = (lengths >= min_length) & (hits == 0)
        ends[-1] = lengths[-1] >= min_length
        return [
            Span(end - length, end, count, self.documents(ids[end - length : end], limit) if limit else [])
            for end, length, count in zip(
                *(a.tolist() for a in (np.flatnonzero(ends), lengths[ends], counts[ends])), strict=True
            )
        ]

    # ---------------------------------------------------------------- parts

    def _clauses(self, cnf: Cnf) -> list[list[NDArray[np.int64]]]:
        """The n-grams of an AND of ORs. Raises `RequestError` for anything else."""
        try:
            clauses = [[self.checked(ngram) for ngram in clause] for clause in cnf]
        except TypeError as error:
            raise RequestError(
                f"a query is an AND of ORs of n-grams, such as [[[1, 2], [3]], [[4]]]: {error}"
            ) from error
        if not clauses or not all(clauses):
            raise RequestError("a query needs a clause, and every clause an n-gram")
        return clauses

    def _rows(self) -> NDArray[np.int64]:
        if self._table is None:
            raise _closed()
        return self._table

    def _agree(self, folder: Path, metadata: dict[str, Any]) -> None:
        """Check that an index is compatible with those opened before."""
        size, tokenizer = int(metadata["vocabulary_size"]), metadata.get("tokenizer_hash")
        if self.vocabulary_size not in (0, size):
            raise RequestError(f"{folder} has a vocabulary of {size} tokens, the others {self.vocabulary_size}")
        if self.tokenizer_hash is not None and tokenizer is not None and tokenizer != self.tokenizer_hash:
            raise RequestError(
                f"{folder} was built with another tokenizer ({tokenizer}) than this one ({self.tokenizer_hash}): build "
                "an index with it"
            )
        self.vocabulary_size, self.tokenizer_hash = size, self.tokenizer_hash or tokenizer

    def checked(self, ngram: Ngram) -> NDArray[np.int64]:
        """Ids as an array. Raises `RequestError` for ids outside the vocabulary."""
        ids = integers(ngram)
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.vocabulary_size):
            wrong = int(ids[(ids < 0) | (ids >= self.vocabulary_size)][0])
            raise RequestError(f"token {wrong} is outside the vocabulary of {self.vocabulary_size} tokens")
        return ids

    def _probability(self, context: Ngram, token: int, longest: bool) -> tuple[int, int, int, bool]:
        """See `summed.probability`."""
        ids = integers(context)
        try:
            found: tuple[int, int, int, bool] = summed.probability(self._rows(), ids, operator.index(token), longest)
        except (TypeError, OverflowError) as error:
            raise RequestError(f"{token!r} is not a token id: {reason(error)}") from error
        if found[0] < 0 or found[1] < 0:
            self.checked(ids)
            self.checked([token])
            raise _too_much_subtracted()
        return found

    def _following(self, segments: NDArray[np.int64], offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        table = self._rows()
        parts = [followers.following(row, low, high, offset) for row, (low, high) in zip(table, segments, strict=True)]
        if len(parts) == 1:
            return parts[0][0], parts[0][1]
        tokens, where = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
        counts = np.zeros(len(tokens), np.int64)
        signed = np.concatenate([row[columns.SIGN] * part[1] for row, part in zip(table, parts, strict=True)])
        np.add.at(counts, where.reshape(-1), signed)
        _positive(int(counts.min(initial=0)))
        return tokens[counts > 0], counts[counts > 0]


def _closed() -> RequestError:
    return RequestError("the engine is closed; open the index again")


def _too_much_subtracted() -> RequestError:
    return RequestError("more is subtracted than was added: an index to subtract holds documents that the others lack")


def _positive(count: int) -> int:
    """The count. Raises `RequestError` if more is subtracted than was added."""
    if count < 0:
        raise _too_much_subtracted()
    return count
