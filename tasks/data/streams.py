"""Documents to streams of token ids: selected by seed, cut at word boundaries, counted exactly, cached, memory-mapped.

A stream is [start token, tokens of a text]; the start token is given, not predicted. Texts are cut only between words,
so words and tokens of a selection match and word-level perplexity is exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.common.cache import Cache
from harness.common.documents import word_pattern
from harness.common.errors import RequestError
from harness.common.files import arrays_digest, digest
from harness.common.progress import Progress
from harness.common.sequences import ReadSequence
from tasks.data.text import Source, Split, split_hash
from tasks.data.text.articles import count_words
from tasks.data.tokens import token_ids

# a word with the blanks before it; the last word also with those after it
_WORD = re.compile(r"\s*" + word_pattern(r"\s") + r"(?:\s+\Z)?")


class Encoder(Protocol):
    """The part of a model that tokenizing needs."""

    name: str
    tokenizer_hash: str

    @property
    def tokenizer(self) -> Any: ...

    @property
    def start_id(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A part of a split: `tokens` tokens (None: all) in pieces of at most `piece` tokens (None: whole documents), drawn
    without replacement by `seed`. The last piece is cut so that `tokens` is met to within a word. A shorter split is
    used completely."""

    tokens: int | None = None
    piece: int | None = None
    seed: int = 0


class Streams(ReadSequence["NDArray[np.int64]"]):
    """Streams of ids, int64 [T] each, read from one memory-mapped file on access.

    hash: of the ids and the streams' offsets. tokens: predicted tokens. words: counted as for WikiText. bytes: of the
    text in UTF-8.
    """

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "facts.json").read_text())
        self.hash: str = facts["hash"]
        self.tokens: int = facts["tokens"]
        self.words: int = facts["words"]
        self.bytes: int = facts["bytes"]
        self.documents: int = facts["documents"]
        self._ids = np.load(folder / "ids.npy", mmap_mode="r")
        self._bounds = np.load(folder / "bounds.npy")

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def item(self, number: int) -> NDArray[np.int64]:
        return np.asarray(self._ids[self._bounds[number] : self._bounds[number + 1]], np.int64)

    def facts(self) -> dict[str, int]:
        return {"streams": len(self), "documents": self.documents, "tokens": self.tokens, "words": self.words}


class JoinedStreams(ReadSequence["NDArray[np.int64]"]):
    """The concatenated streams of several texts."""

    def __init__(self, parts: Sequence[Streams]) -> None:
        self.parts = list(parts)
        self.hash = digest([part.hash for part in parts])
        self._places = [(part, place) for part in self.parts for place in range(len(part))]

    def __len__(self) -> int:
        return len(self._places)

    def item(self, number: int) -> NDArray[np.int64]:
        part, place = self._places[number]
        return part[place]

    def facts(self) -> dict[str, int]:
        """Sums over the texts."""
        return {name: sum(part.facts()[name] for part in self.parts) for name in self.parts[0].facts()}


def joined(parts: Sequence[Streams]) -> Streams | JoinedStreams:
    """The streams of all parts (at least one). A single part is returned as it is, with its hash."""
    return parts[0] if len(parts) == 1 else JoinedStreams(parts)


def streams(
    source: Source, split: Split, model: Encoder, selection: Selection, cache: Cache, progress: Progress | None = None
) -> Streams:
    """The selected streams of a split, tokenized once per text, tokenizer and selection.

    Raises `RequestError` when the selection is empty. The streams are in the order of the split.
    """
    drawn = selection if selection.tokens is not None else replace(selection, seed=0)  # nothing is drawn from all
    key = {"text": split_hash(source, split, cache), "tokenizer": model.tokenizer_hash, "selection": asdict(drawn)}

    def build(folder: Path) -> None:
        documents = source.documents(split)
        chosen = sorted(_choose(documents, model.tokenizer, selection, progress or Progress()))
        if not chosen:
            raise RequestError(f"no token of the {split} split of {source.name} was selected; ask for more than 0")
        start = model.start_id
        parts = [np.asarray([start, *ids], np.int32) for _, _, ids in chosen]
        ids, bounds = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
        texts = [documents[number][begin:end] for number, (begin, end), _ in chosen]
        np.save(folder / "ids.npy", ids)
        np.save(folder / "bounds.npy", bounds)
        facts = {
            "hash": arrays_digest(bounds, ids),
            "tokens": sum(len(part) - 1 for part in parts),
            "words": sum(map(count_words, texts)),
            "bytes": sum(len(text.encode()) for text in texts),
            "documents": len({number for number, _, _ in chosen}),
        }
        (folder / "facts.json").write_text(json.dumps(facts))

    return Streams(cache.build("streams", key, build))


Span = tuple[int, int]  # of characters


def _choose(
    documents: Sequence[str], tokenizer: Any, selection: Selection, progress: Progress
) -> Iterator[tuple[int, Span, list[int]]]:
    """(document, span, ids) of the selected texts, in the order of drawing."""
    lengths = _token_counter(tokenizer)
    if selection.piece is None:
        spans = [(number, (0, len(text))) for number, text in enumerate(documents)]
    else:
        spans = [
            (number, span)
            for number, text in enumerate(progress.track(documents, "cutting text", unit="documents"))
            for span in pieces(text, selection.piece, lengths)
        ]
    limit = selection.tokens
    if limit is not None:
        order = np.random.default_rng(selection.seed).permutation(len(spans))
        spans = [spans[int(place)] for place in order]
    total = 0
    for done, (number, (begin, end), ids) in enumerate(_encoded(documents, spans, tokenizer), 1):
        if limit is not None and total + len(ids) > limit:
            if total < limit:
                end = begin + next(pieces(documents[number][begin:end], limit - total, lengths))[1]
                [ids] = token_ids(tokenizer, [documents[number][begin:end]])
                yield number, (begin, end), ids
            return
        total += len(ids)
        yield number, (begin, end), ids
        progress.update("tokenizing", done, len(spans), "texts", f"{total:,} tokens")


def _encoded(
    documents: Sequence[str], spans: Sequence[tuple[int, Span]], tokenizer: Any, batch: int = 16
) -> Iterator[tuple[int, Span, list[int]]]:
    """Ids of each span, tokenized a few at a time (in parallel if the tokenizer can) and only as far as consumed."""
    for place in range(0, len(spans), batch):
        part = spans[place : place + batch]
        texts = [documents[number][begin:end] for number, (begin, end) in part]
        pairs = zip(part, token_ids(tokenizer, texts), strict=True)
        yield from ((number, span, ids) for (number, span), ids in pairs if ids)


def pieces(text: str, limit: int, lengths: Callable[[Sequence[str]], Sequence[int]]) -> Iterator[Span]:
    """Cut a text between words into spans of at most `limit` tokens; a longer word is a piece of its own.

    lengths: tokens of each word with the blanks before it. Spans cover the text without gap or overlap.
    """
    words = _WORD.findall(text)
    begin = end = held = 0
    for word, size in zip(words, lengths(words), strict=True):
        if held and held + size > limit:
            yield begin, end
            begin, held = end, 0
        end += len(word)
        held += size
    if end > begin:
        yield begin, end


def _token_counter(tokenizer: Any) -> Callable[[Sequence[str]], list[int]]:
    known: dict[str, int] = {}

    def lengths(words: Sequence[str]) -> list[int]:
        if new := list({word for word in words if word not in known}):
            known.update((word, len(ids)) for word, ids in zip(new, token_ids(tokenizer, new), strict=True))
        return [known[word] for word in words]

    return lengths
