"""Word-level text: documents as words with an end mark for every line, a vocabulary cut by frequency, and ids.

Penn Treebank (Mikolov's version) stays unchanged: 10,000 types, including `<unk>` and `<eos>`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.cache import Cache
from tasks.data.text import Source, Split, split_hash

END, UNKNOWN = "<eos>", "<unk>"
_RAW = re.compile(r"\w+|[^\w\s]")


def words(document: str, tokenised: bool) -> Iterator[str]:
    """Words of every line that is not blank, each line closed by `<eos>`. Text that is not `tokenised` is lower-cased
    and split into runs of letters and digits, and single marks."""
    for line in document.splitlines():
        found = line.split() if tokenised else _RAW.findall(line.lower())
        if found:
            yield from found
            yield END


def vocabulary(source: Source, limit: int, tokenised: bool, cache: Cache) -> list[str]:
    """The `limit` most frequent types of the train split, most frequent first, ties in alphabetical order.

    `<unk>` is always among them, for all other types.
    """

    def kept() -> list[str]:
        counts = Counter(word for document in source.documents("train") for word in words(document, tokenised))
        counts[UNKNOWN] += 0
        types = sorted(counts, key=lambda word: (-counts[word], word))[:limit]
        if UNKNOWN not in types:
            types[-1] = UNKNOWN
        return types

    key = {"train": split_hash(source, "train", cache), "limit": limit, "tokenised": tokenised}
    found: list[str] = cache.value("word-vocabulary", key, kept)
    return found


def encode(documents: Sequence[str], types: Sequence[str], tokenised: bool) -> NDArray[np.int32]:
    """Ids int32 [T] of all documents, concatenated; words that are not in `types` become `<unk>`."""
    ids = {word: number for number, word in enumerate(types)}
    unknown = ids[UNKNOWN]
    return np.fromiter((ids.get(w, unknown) for d in documents for w in words(d, tokenised)), np.int32)


def encoded_split(source: Source, split: Split, types: Sequence[str], tokenised: bool, cache: Cache) -> NDArray[Any]:
    """`encode` of a split, cached under the contents of split and vocabulary."""

    def build(folder: Path) -> None:
        np.save(folder / "ids.npy", encode(source.documents(split), types, tokenised))

    key = {"split": split_hash(source, split, cache), "types": list(types), "tokenised": tokenised}
    ids: NDArray[Any] = np.load(cache.build("word-ids", key, build) / "ids.npy")
    return ids
