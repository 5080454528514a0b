"""Peers that can be installed: the packages `infini-gram` (the authors' engine) and `tokengrams`, over the same
documents.

Both need 16-bit tokens. Queries that they answer differently are avoided:

- Both count n-grams across documents, so documents are divided by a separator.
- `tokengrams` drops tokens outside its vocabulary from a query.
- For the distribution of a frequent context `infini-gram` samples 1,000 occurrences; here it uses all.
- For an AND of n-grams `infini-gram` counts places, the engine documents (`InfiniGram.count_cnf`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.cores import usable_cores
from harness.common.errors import CellFailedError
from methods.packages import package

SEPARATOR = 0xFFFF  # before each document, as in both
PARALLEL = 500_000  # fewest tokens for which `infini-gram` builds correctly on several cores
ALL = 1 << 62  # occurrences that `infini-gram` uses, so that its distributions are exact


def write_tokens(documents: Sequence[NDArray[np.integer]], folder: Path, separator: int = SEPARATOR) -> Path:
    """Write the documents in the format of both: `tokenized.0` (u16, a separator before each document) and `offset.0`
    (u64, bytes before each separator). Tokens are below `separator`."""
    offsets, at = [], 0
    with open(folder / "tokenized.0", "wb") as file:
        for document in documents:
            offsets.append(at)
            at += file.write(np.uint16(separator).tobytes() + np.asarray(document, np.uint16).tobytes())
    np.array(offsets, np.uint64).tofile(folder / "offset.0")
    return folder / "tokenized.0"


class InfiniGram:
    """The package `infini-gram` at its best setting: in memory, without prefetching.

    Queries return the package's own answers. `counted` reads the occurrences of an n-gram, or of the token after its
    context; `following`, token -> count of a distribution; both are not timed.
    """

    def __init__(self, folder: Path, vocabulary_size: int) -> None:
        self._engine = package("infini_gram.engine", "infini-gram").InfiniGramEngine(
            index_dir=[str(folder)], eos_token_id=vocabulary_size, vocab_size=vocabulary_size + 1, token_dtype="u16",
            load_to_ram=True, ds_prefetch_depth=0, sa_prefetch_depth=0, od_prefetch_depth=0, max_support=ALL,
        )  # fmt: skip
        self._vocabulary_size = vocabulary_size  # the separator is returned as this token

    @staticmethod
    def build(documents: Sequence[NDArray[np.integer]], folder: Path, vocabulary_size: int) -> None:
        """Index the documents into the folder. Below `PARALLEL` tokens one core is used: on two, an index of 50,000
        tokens gave wrong answers. Raises `CellFailedError` when its program fails."""
        package("infini_gram.engine", "infini-gram")
        write_tokens(documents, folder)
        cores = usable_cores() if sum(map(len, documents)) >= PARALLEL else 1
        (folder / "none").mkdir(exist_ok=True)
        command = [
            sys.executable, "-m", "infini_gram.indexing", "--data_dir", str(folder / "none"), "--save_dir", str(folder),
            "--token_dtype", "u16", "--cpus", str(cores), "--mem", "8", "--ulimit", "4096",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not (folder / "table.0").exists():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
            raise CellFailedError(f"infini-gram could not build its index: {last[0]}")

    def count(self, ngram: list[int]) -> Any:
        return self._engine.count(ngram)

    def ngram_prob(self, context: list[int], token: int) -> Any:
        return self._engine.prob(context, token)

    def ngram_distribution(self, context: list[int]) -> Any:
        return self._engine.ntd(context)

    def infinigram_prob(self, context: list[int], token: int) -> Any:
        return self._engine.infgram_prob(context, token)

    def infinigram_distribution(self, context: list[int]) -> Any:
        return self._engine.infgram_ntd(context)

    def documents(self, ngram: list[int], limit: int) -> Any:
        return self._engine.search_docs(ngram, maxnum=limit, max_disp_len=40 + len(ngram))

    def count_cnf(self, cnf: list[list[list[int]]]) -> Any:
        """Places of the rarest clause near which the others lie: of each, the first place at most 100 tokens before or
        after it must be in the same document. A larger distance loses places: that first place is then more often in
        another document. Without `max_clause_freq`, 50,000 places are drawn."""
        return self._engine.count_cnf(cnf, max_clause_freq=ALL)

    def attribute(self, text: list[int], min_length: int) -> Any:
        return self._engine.attribute(text, [], min_length, ALL, False)

    def any_found(self, answer: Any) -> bool:
        """Whether there are documents."""
        return bool(answer["count"] if "count" in answer else answer["documents"])

    def spans(self, answer: Any) -> list[tuple[int, int, int]]:
        """(begin, end, count) of attributed spans."""
        return [(span["l"], span["r"], span["count"]) for span in answer["spans"]]

    def counted(self, answer: Any) -> int:
        return int(answer["count"] if "count" in answer else answer["cont_cnt"])

    def following(self, answer: Any) -> dict[int, int]:
        found = {int(token): int(one["cont_cnt"]) for token, one in answer["result_by_token_id"].items()}
        return {token: count for token, count in found.items() if token < self._vocabulary_size}


class Tokengrams:
    """The package `tokengrams`, memory-mapped, with the queries of `InfiniGram` but for documents. It has no ∞-gram
    queries, so the longest suffix that occurs is found here by doubling, then bisection, as in our engine. Its
    distributions list the whole vocabulary, so the vocabulary is as small as possible: the separator is the id after
    the last token."""

    def __init__(self, folder: Path, vocabulary_size: int) -> None:
        opened = package("tokengrams", "tokengrams").MemmapIndex
        self._index = opened(str(folder / "tokenized.0"), str(folder / "suffixes"), vocabulary_size + 1)
        self._vocabulary_size = vocabulary_size

    @staticmethod
    def build(documents: Sequence[NDArray[np.integer]], folder: Path, vocabulary_size: int) -> None:
        """Index the documents into the folder."""
        index = package("tokengrams", "tokengrams").MemmapIndex
        tokens = write_tokens(documents, folder, separator=vocabulary_size)
        index.build(str(tokens), str(folder / "suffixes"), vocabulary_size + 1)

    def count(self, ngram: list[int]) -> Any:
        return self._index.count(ngram)

    def ngram_prob(self, context: list[int], token: int) -> Any:
        return self._index.count([*context, token]), self._index.count(context)

    def ngram_distribution(self, context: list[int]) -> Any:
        return self._index.count_next(context)

    def infinigram_prob(self, context: list[int], token: int) -> Any:
        return self.ngram_prob(self._longest(context), token)

    def infinigram_distribution(self, context: list[int]) -> Any:
        return self._index.count_next(self._longest(context))

    def counted(self, answer: Any) -> int:
        return int(answer[0] if isinstance(answer, tuple) else answer)

    def following(self, answer: Any) -> dict[int, int]:
        counts = np.asarray(answer[: self._vocabulary_size])
        tokens = np.flatnonzero(counts)
        return dict(zip(tokens.tolist(), counts[tokens].tolist(), strict=True))

    def _longest(self, context: list[int]) -> list[int]:
        """The longest suffix that occurs."""
        low, step = 0, 1
        while low < len(context) and self._index.contains(context[-min(low + step, len(context)) :]):
            low, step = min(low + step, len(context)), 2 * step
        high = min(low + step, len(context) + 1) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._index.contains(context[len(context) - middle :]):
                low = middle
            else:
                high = middle - 1
        return context[len(context) - low :]


PEERS: dict[str, type[InfiniGram] | type[Tokengrams]] = {"infini-gram": InfiniGram, "tokengrams": Tokengrams}
