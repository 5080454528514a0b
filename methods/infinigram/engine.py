"""The engine: counts, probabilities and documents of n-grams of any length (Liu et al., 2024, sections 3.3 and 3.4).

A context's denominator counts the occurrences that are followed by a token in the same document, so that next-token
probabilities sum to 1. The empty context occurs before every token. An n-gram occurs inside one document.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from harness.cores import usable_cores
from harness.errors import RequestError, reason
from methods.infinigram import batches, kernels, scans
from methods.infinigram.layout import TABLES, Shard, open_shard, read_metadata

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ngram = Sequence[int] | NDArray[np.integer]
    Cnf = Sequence[Sequence[Ngram]]  # an AND of ORs of n-grams

_EMPTY = np.empty(0, np.int64)
_WINDOW = 20  # tokens of text on either side of a match


@dataclass(frozen=True, slots=True)
class NgramProbability:
    """count / context_count; NaN where the context never occurs."""

    count: int
    context_count: int

    @property
    def probability(self) -> float:
        return self.count / self.context_count if self.context_count else float("nan")


@dataclass(frozen=True, slots=True)
class InfinigramProbability(NgramProbability):
    """n: the effective one, 1 + the context's length. sparse: whether a single token follows the context anywhere."""

    n: int
    sparse: bool


@dataclass(frozen=True, slots=True)
class Distribution:
    """What follows a context: tokens int64 [m] ascending, how often int64 [m]."""

    tokens: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64 [m], summing to 1; empty where the context never occurs."""
        return self.counts / max(int(self.counts.sum()), 1)


@dataclass(frozen=True, slots=True)
class InfinigramDistribution(Distribution):
    """n: the effective one. sparse: whether a single token follows."""

    n: int
    sparse: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A document that holds a query. index, shard, number: where it is. length: its tokens. matches: where, in it, the
    n-grams of the query begin. tokens: a window of its text around the first match, which begins at `window`.
    metadata: what was given when the index was built."""

    index: Path
    shard: int
    number: int
    length: int
    matches: list[int]
    window: int
    tokens: list[int]
    metadata: Any


@dataclass(frozen=True, slots=True)
class CnfCount:
    """Documents that hold an AND of ORs. approximate: whether a clause had too many matches and was sampled."""

    documents: int
    approximate: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """Of every token of a text [T]: the effective n, how often its context occurs, how often it follows there, and
    whether a single token does."""

    n: NDArray[np.int64]
    context_counts: NDArray[np.int64]
    counts: NDArray[np.int64]
    sparse: NDArray[np.bool_]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64 [T]."""
        return self.counts / np.maximum(self.context_counts, 1)


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens begin .. end - 1 of a text, which occur `count` times; no longer span around them does."""

    begin: int
    end: int
    count: int
    documents: list[Document]


def open_index(
    directories: Path | str | Sequence[Path | str], subtract: Sequence[Path | str] = (), *,
    tokenizer_hash: str | None = None,
) -> Engine:  # fmt: skip
    """An engine over `directories` minus `subtract`, whose documents must all be in `directories` as well.

    Raises `RequestError` for a folder that is no whole index, for indexes of different vocabularies or tokenizers, and
    for one built with another tokenizer than `tokenizer_hash`.
    """
    added = [directories] if isinstance(directories, Path | str) else list(directories)
    if not added:
        raise RequestError("no index to open; give one or more folders")
    return Engine([Path(place) for place in added], [Path(place) for place in subtract], tokenizer_hash)


class Engine:
    """Answers queries; see `open_index`. Threads may share it."""

    def __init__(self, added: Sequence[Path], subtracted: Sequence[Path], tokenizer_hash: str | None = None) -> None:
        self._shards: list[tuple[Path, int, int, Shard]] = []  # index, number in it, sign, shard
        self.vocabulary_size, self.tokenizer_hash = 0, tokenizer_hash
        for sign, folders in ((1, added), (-1, subtracted)):
            for folder in folders:
                metadata = read_metadata(folder)
                self._agree(folder, metadata)
                for number, facts in enumerate(metadata["shards"]):
                    shard = open_shard(folder / f"shard{number}", facts, self.vocabulary_size)
                    self._shards.append((folder, number, sign, shard))
        self._table: NDArray[np.int64] | None = np.zeros((len(self._shards), kernels.COLUMNS), np.int64)
        for row, (_, _, sign, shard) in zip(self._table, self._shards, strict=True):
            row[kernels.TOKENS], row[kernels.POINTERS] = shard.tokens.ctypes.data, shard.suffixes.ctypes.data
            row[kernels.FIRSTS], row[kernels.SUFFIXES] = shard.firsts.ctypes.data, shard.count
            row[kernels.WIDTH], row[kernels.NARROW] = shard.width, shard.tokens.dtype.itemsize == 2
            row[kernels.SIGN], row[kernels.VOCABULARY] = sign, self.vocabulary_size
            row[kernels.SAMPLES] = shard.samples.ctypes.data

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Every query raises `RequestError` from now on. Files are let go of with the engine: another thread may be in
        a query, which reads them."""
        self._table = None

    def __reduce__(self) -> str:
        raise TypeError("an engine holds addresses of mapped files: open the index again instead of copying the engine")

    @property
    def bytes(self) -> int:
        """Size of tokens and suffixes."""
        return sum(shard.tokens.nbytes + shard.suffixes.nbytes for *_, shard in self._opened())

    @property
    def table_bytes(self) -> int:
        """Size of the tables beside them."""
        return sum(sum((shard.folder / name).stat().st_size for name in TABLES) for *_, shard in self._opened())

    # ---------------------------------------------------------------- counts

    def count(self, ngram: Ngram) -> int:
        """Occurrences; those of the empty n-gram are all tokens."""
        table = self._table
        if table is None:
            raise _closed()
        found = kernels.count(table, _integers(ngram))
        if found < 0:
            self._checked(ngram)
            raise _too_much_subtracted()
        return int(found)

    def count_many(self, ngrams: Sequence[Ngram] | NDArray[np.integer]) -> NDArray[np.int64]:
        """Occurrences int64 [Q] of n-grams, or of the rows [Q, n] of an array; shared out over the cores."""
        table, (flat, offsets) = self._rows(), _joined(ngrams)
        totals = np.empty(len(offsets) - 1, np.int64)

        def part(begin: int, end: int) -> None:
            batches.count_many(table, flat, offsets[begin : end + 1], totals[begin:end])

        _share(part, len(totals), least=256)
        if len(totals) and totals.min() < 0:  # the answer to a token outside the vocabulary is the least of all
            first = int(totals.argmin())
            self._checked(flat[offsets[first] : offsets[first + 1]])
            raise _too_much_subtracted()
        return totals

    # ---------------------------------------------------------------- probabilities

    def ngram_prob(self, context: Ngram, token: int) -> NgramProbability:
        """How often the context is followed by a token, and by this one."""
        count, total, *_ = self._probability(context, token, longest=False)
        return NgramProbability(count, total)

    def ngram_distribution(self, context: Ngram) -> Distribution:
        """What follows the context, exactly; the cost goes by how many different tokens do."""
        table, ids = self._rows(), self._checked(context)
        segments = np.empty((len(table), 2), np.int64)
        kernels.context(table, ids, segments)
        return Distribution(*self._following(segments, len(ids)))

    def infinigram_prob(self, context: Ngram, token: int) -> InfinigramProbability:
        """The same for the longest suffix of the context that is followed by a token anywhere."""
        count, total, length, single = self._probability(context, token, longest=True)
        return InfinigramProbability(count, total, length + 1, single)

    def infinigram_distribution(self, context: Ngram) -> InfinigramDistribution:
        """What follows the longest suffix of the context that is followed by a token anywhere."""
        length, _, segments = self._longest(self._checked(context))
        tokens, counts = self._following(segments, length)
        return InfinigramDistribution(tokens, counts, length + 1, len(tokens) == 1)

    def score(self, tokens: Ngram, longest: int | None = None) -> Scores:
        """The infinigram probability of every token of a text after those before it, in one scan: O(log N) a token.
        longest: tokens of a context at most."""
        return self.score_many([tokens], longest)[0]

    def score_many(self, texts: Sequence[Ngram], longest: int | None = None) -> list[Scores]:
        """`score` of texts, shared out over the cores."""
        if longest is not None and longest < 0:
            raise RequestError(f"longest = {longest}: give 0 or more tokens, or None for no limit")
        table, arrays = self._rows(), [self._checked(text) for text in texts]
        flat, offsets = _flat(arrays)
        lengths, contexts, hits = (np.empty(len(flat), np.int64) for _ in range(3))
        single, most = np.empty(len(flat), np.bool_), len(flat) if longest is None else longest

        def part(begin: int, end: int) -> None:
            for text in range(begin, end):
                here = slice(offsets[text], offsets[text + 1])
                scans.scan(table, flat[here], most, lengths[here], contexts[here], hits[here], single[here])

        _share(part, len(arrays), least=1)
        _positive(int(min(contexts.min(initial=0), hits.min(initial=0))))
        return [
            Scores(lengths[low:high] + 1, contexts[low:high], hits[low:high], single[low:high])
            for low, high in pairwise(offsets.tolist())
        ]

    def suffix_counts(self, tokens: Ngram, most: int) -> NDArray[np.int64]:
        """How often the 1 to `most` tokens before each token of a text occur: int64 [T, most], 0 where the text has
        fewer before it; shared out over the cores."""
        ids, table = self._checked(tokens), self._rows()
        found = np.zeros((len(ids), most), np.int64)
        for length in range(1, min(most, len(ids) - 1) + 1):
            windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], length)
            flat, offsets = np.ascontiguousarray(windows).ravel(), np.arange(len(windows) + 1) * length
            totals = np.empty(len(windows), np.int64)

            def part(begin: int, end: int, flat: Any = flat, offsets: Any = offsets, totals: Any = totals) -> None:
                batches.count_many(table, flat, offsets[begin : end + 1], totals[begin:end])

            _share(part, len(totals), least=256)
            _positive(int(totals.min(initial=0)))
            found[length:, length - 1] = totals
        return found

    def continuation(self, context: Ngram, most: int, least: int = 1, share: float = 0.0) -> list[int]:
        """Up to `most` tokens that the longest suffix of the context which occurs goes on with, each the most frequent
        one after those before it; none where that suffix has fewer than `least` tokens, and no further than where a
        token has less than `share` of what follows."""
        if most < 0 or least < 0:
            raise RequestError(f"most = {most}, least = {least}: give 0 or more")
        found: list[int] = scans.continuation(self._rows(), self._checked(context), most, least, share).tolist()
        return found

    # ---------------------------------------------------------------- documents

    def find_cnf(
        self, cnf: Cnf, max_clause_freq: int | None = None, seed: int = 0
    ) -> tuple[list[tuple[int, int]], bool]:
        """(row of the shard, document) of the documents that hold, for each clause, one of its n-grams; and whether a
        clause with more than `max_clause_freq` matches in a shard was sampled, so that some may be missing. Documents
        that equal a subtracted one, token for token, are left out."""
        if not len(cnf) or not all(map(len, cnf)):
            raise RequestError("a query needs a clause, and every clause an n-gram")
        if max_clause_freq is not None and max_clause_freq < 1:
            raise RequestError(f"max_clause_freq = {max_clause_freq}: give 1 or more")
        clauses = [[self._checked(ngram) for ngram in clause] for clause in cnf]
        rng, approximate = np.random.default_rng(seed), False
        found: list[tuple[int, int]] = []
        for row in range(len(self._rows())):
            documents: NDArray[np.int64] | None = None
            for clause in clauses:
                most = max_clause_freq if self._shards[row][2] > 0 else None  # what is subtracted counts as a whole
                places, sampled = self._places(row, clause, most, rng)
                approximate |= sampled
                holding = np.unique(self._documents_of(row, places))
                documents = holding if documents is None else np.intersect1d(documents, holding)
            assert documents is not None
            found += [(row, int(number)) for number in documents]
        return self._without_subtracted(found), approximate

    def count_cnf(self, cnf: Cnf, max_clause_freq: int | None = None, seed: int = 0) -> CnfCount:
        """How many documents `find_cnf` finds."""
        found, approximate = self.find_cnf(cnf, max_clause_freq, seed)
        return CnfCount(len(found), approximate)

    def documents(
        self, query: Ngram | Cnf, limit: int = 10, seed: int = 0, *, window: int = _WINDOW,
        max_clause_freq: int | None = None,
    ) -> list[Document]:  # fmt: skip
        """Up to `limit` documents, drawn at random, that hold an n-gram or an AND of ORs of n-grams."""
        if limit < 0 or window < 0:
            raise RequestError(f"limit = {limit}, window = {window}: give 0 or more")
        cnf = _as_cnf(query)
        found, _ = self.find_cnf(cnf, max_clause_freq, seed)
        order = np.random.default_rng(seed).permutation(len(found))[:limit]
        ngrams = [self._checked(ngram) for clause in cnf for ngram in clause]
        return [self._document(row, at, ngrams, window) for row, at in (found[number] for number in order.tolist())]

    def attribute(self, tokens: Ngram, min_length: int = 2, limit: int = 1) -> list[Span]:
        """The maximal spans of at least `min_length` tokens of a text that occur verbatim, with up to `limit` of the
        documents that hold each."""
        if min_length < 1:
            raise RequestError(f"min_length = {min_length}: give 1 or more tokens")
        ids, table = self._checked(tokens), self._rows()
        spans, begin = [], 0

        def count(end: int) -> int:
            return _positive(int(kernels.count(table, ids[begin:end])))

        for end in range(1, len(ids) + 1):  # the longest span that ends here begins no earlier than that before it
            while begin < end and not count(end):
                begin += 1
            longer = end < len(ids) and count(end + 1)
            if end - begin >= min_length and not longer:
                spans.append(Span(begin, end, count(end), self.documents(ids[begin:end].tolist(), limit)))
        return spans

    # ---------------------------------------------------------------- parts

    def _opened(self) -> list[tuple[Path, int, int, Shard]]:
        self._rows()
        return self._shards

    def _rows(self) -> NDArray[np.int64]:
        if self._table is None:
            raise _closed()
        return self._table

    def _agree(self, folder: Path, metadata: dict[str, Any]) -> None:
        """Check that an index fits those opened before."""
        size, tokenizer = int(metadata["vocabulary_size"]), metadata.get("tokenizer_hash")
        if self.vocabulary_size not in (0, size):
            raise RequestError(f"{folder} has a vocabulary of {size} tokens, the others {self.vocabulary_size}")
        if self.tokenizer_hash is not None and tokenizer is not None and tokenizer != self.tokenizer_hash:
            raise RequestError(
                f"{folder} was built with another tokenizer ({tokenizer}) than this one ({self.tokenizer_hash}): build "
                "an index with it"
            )
        self.vocabulary_size, self.tokenizer_hash = size, self.tokenizer_hash or tokenizer

    def _checked(self, ngram: Ngram) -> NDArray[np.int64]:
        """Ids as an array. Raises `RequestError` for what is no token of the vocabulary."""
        ids = _integers(ngram)
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.vocabulary_size):
            wrong = int(ids[(ids < 0) | (ids >= self.vocabulary_size)][0])
            raise RequestError(f"token {wrong} is outside the vocabulary of {self.vocabulary_size} tokens")
        return ids

    def _longest(self, ids: NDArray[np.int64]) -> tuple[int, int, NDArray[np.int64]]:
        table = self._rows()
        segments = np.empty((len(table), 2), np.int64)
        length, total = kernels.longest(table, ids, segments)
        return int(length), _positive(int(total)), segments

    def _probability(self, context: Ngram, token: int, longest: bool) -> tuple[int, int, int, bool]:
        """See `kernels.probability`."""
        ids = _integers(context)
        try:
            found: tuple[int, int, int, bool] = kernels.probability(self._rows(), ids, operator.index(token), longest)
        except (TypeError, OverflowError) as error:
            raise RequestError(f"{token!r} is no token id: {reason(error)}") from error
        if found[0] < 0 or found[1] < 0:
            self._checked(ids)
            self._checked([token])
            raise _too_much_subtracted()
        return found

    def _following(self, segments: NDArray[np.int64], offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        table = self._rows()
        parts = [kernels.following(row, low, high, offset) for row, (low, high) in zip(table, segments, strict=True)]
        if len(parts) == 1:
            return parts[0][0], parts[0][1]
        tokens, where = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
        counts = np.zeros(len(tokens), np.int64)
        signed = np.concatenate([row[kernels.SIGN] * part[1] for row, part in zip(table, parts, strict=True)])
        np.add.at(counts, where.reshape(-1), signed)
        _positive(int(counts.min(initial=0)))
        return tokens[counts > 0], counts[counts > 0]

    def _places(
        self, row: int, clause: Sequence[NDArray[np.int64]], most: int | None, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], bool]:
        """Where the n-grams of a clause begin in one shard, a sample of `most` of them where there are more."""
        table = self._rows()
        ranges = [kernels.find(table[row : row + 1], ngram)[0] for ngram in clause]
        total = int(sum(high - low for low, high in ranges))
        sampled = most is not None and total > most
        parts = []
        for low, high in ranges:
            places = kernels.positions(table[row], low, high)
            if sampled and most is not None:
                places = rng.choice(places, min(len(places), -(-most * len(places) // total)), replace=False)
            parts.append(places)
        return np.concatenate(parts), sampled

    def _documents_of(self, row: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._shards[row][3].documents, places, side="right") - 1

    def _without_subtracted(self, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
        removed: dict[bytes, int] = {}
        for row, number in found:
            if self._shards[row][2] < 0:
                text = self._text(row, number).tobytes()
                removed[text] = removed.get(text, 0) + 1
        kept = []
        for row, number in found:
            if self._shards[row][2] > 0:
                text = self._text(row, number).tobytes() if removed else b""
                if removed.get(text, 0) > 0:
                    removed[text] -= 1
                else:
                    kept.append((row, number))
        return kept

    def _text(self, row: int, number: int) -> NDArray[Any]:
        shard = self._shards[row][3]
        return shard.tokens[shard.documents[number] : shard.documents[number + 1] - 1]

    def _document(self, row: int, number: int, ngrams: Sequence[NDArray[np.int64]], window: int) -> Document:
        folder, shard_number, _, shard = self._shards[row]
        text = self._text(row, number).astype(np.int64)
        matches = sorted({at for ngram in ngrams for at in _occurrences(text, ngram)})
        first, length = (matches[0] if matches else 0), max((len(ngram) for ngram in ngrams), default=0)
        begin = max(first - window, 0)
        shown = text[begin : first + length + window].tolist()
        return Document(folder, shard_number, number, len(text), matches, begin, shown, shard.line(number))


def _closed() -> RequestError:
    return RequestError("the engine is closed; open the index again")


def _integers(ngram: Ngram) -> NDArray[np.int64]:
    """An int64 array of ids. Raises `RequestError` for what is not integers."""
    try:
        ids = np.asarray(ngram)
    except ValueError as error:  # sequences of different lengths
        raise RequestError(f"a query is no sequence of token ids: {error}") from error
    if ids.dtype == np.int64 and ids.ndim == 1:
        return ids
    if not ids.size and ids.ndim == 1:
        return _EMPTY
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise RequestError(f"a query of {ids.dtype} and {ids.ndim} dimensions is no sequence of token ids")
    return ids.astype(np.int64)


def _too_much_subtracted() -> RequestError:
    return RequestError("more is subtracted than was added: an index to subtract holds documents that the others lack")


def _positive(count: int) -> int:
    """The count. Raises `RequestError` where more is subtracted than was added."""
    if count < 0:
        raise _too_much_subtracted()
    return count


def _flat(arrays: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Arrays behind one another, and where each begins."""
    flat = np.concatenate([_EMPTY, *arrays])
    return flat, np.cumsum([0, *map(len, arrays)], dtype=np.int64)


def _joined(ngrams: Sequence[Ngram] | NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`_flat` of n-grams, and quickly so for lists and for the rows of an array: converting 4,000 lists one by one
    takes as long as counting them."""
    if isinstance(ngrams, np.ndarray) and ngrams.ndim == 2:
        return _integers(ngrams.ravel()), np.arange(len(ngrams) + 1) * ngrams.shape[1]
    if not all(type(ngram) is list for ngram in ngrams):
        return _flat([_integers(ngram) for ngram in ngrams])
    return _integers(list(chain.from_iterable(ngrams))), np.cumsum([0, *map(len, ngrams)], dtype=np.int64)


def _share(part: Any, count: int, least: int) -> None:
    """Run part(begin, end) over `count` items in as many threads as numba may use, `least` or more items each."""
    threads = max(1, min(usable_cores(), numba.get_num_threads(), count // least))
    if threads == 1:
        part(0, count)
        return
    pieces = max(threads, min(4 * threads, count // least))  # texts differ in length
    edges = [count * number // pieces for number in range(pieces + 1)]
    with ThreadPoolExecutor(threads, "infinigram") as pool:
        list(pool.map(part, edges, edges[1:]))


def _as_cnf(query: Any) -> Cnf:
    """An n-gram as the only one of a single clause."""
    nested = len(query) and isinstance(query[0], Iterable)
    return query if nested else [[query]]


def _occurrences(text: NDArray[np.int64], ngram: NDArray[np.int64]) -> list[int]:
    """Where an n-gram begins in a text."""
    if not len(ngram) or len(ngram) > len(text):
        return []
    windows = np.lib.stride_tricks.sliding_window_view(text, len(ngram))
    found: list[int] = np.flatnonzero((windows == ngram).all(1)).tolist()
    return found
