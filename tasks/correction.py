"""Training of grammatical error correctors on clean text with synthetic errors (the paper's own route, section 4.1.1).

Pairs are (spoiled, clean) sentences, tokenised as CoNLL-2013/14 and JFLEG are and written with blanks between tokens;
their ids come from a shared subword vocabulary. No sentence of a test set is ever seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.artifacts import Cache
from harness.progress import Progress
from tasks.models.encoder_decoder_sizes import Size
from tasks.models.pairs import Pairs
from tasks.models.subwords import trained_subwords
from tasks.sources import Source, Split, split_hash

_FORMAT = 1  # raise when a change below, or in `tasks.corruption`, changes the pairs
_HELD_OUT = 2000  # sentences


def trained_corrector(
    size: Size, source: Source, cache: Cache, *, device: str = "cpu", seed: int = 0, progress: Progress | None = None
) -> Path:
    """Folder of the corrector of a size, trained on the clean text of a source unless the cache has it.

    Raises `RequestError` when the source's train or validation split is missing.
    """
    progress = progress or Progress()
    content = correction_content(source, cache)
    clean = _CleanText(source, progress)
    tokenizer = trained_subwords(clean.lines, content, size.vocabulary, cache)
    content |= {"vocabulary": size.vocabulary, "seed": seed}
    training = correction_pairs(clean, "train", tokenizer, content, cache, progress)
    held_out = correction_pairs(clean, "validation", tokenizer, content, cache, progress)

    from tasks.models.encoder_decoder import trained_encoder_decoder

    return trained_encoder_decoder(
        size, training, held_out, tokenizer, content, cache, device=device, seed=seed, progress=progress
    )


def correction_content(source: Source, cache: Cache) -> dict[str, Any]:
    """What determines the clean sentences and their errors."""
    splits = {split: split_hash(source, split, cache) for split in ("train", "validation")}
    return {"clean": splits, "format": _FORMAT}


class _CleanText:
    """Tokenised sentences of a source, split into sentences once per split and process, and only when asked for."""

    def __init__(self, source: Source, progress: Progress) -> None:
        self.source = source
        self.progress = progress
        self._splits: dict[Split, list[list[str]]] = {}

    def sentences(self, split: Split) -> list[list[str]]:
        from tasks.corruption import sentences

        if split not in self._splits:
            documents = self.progress.track(
                self.source.documents(split), "splitting text into sentences", unit="documents"
            )
            self._splits[split] = [tokens for document in documents for tokens in sentences(document)]
        return self._splits[split]

    def lines(self) -> Iterator[str]:
        """Training sentences as text."""
        return (" ".join(tokens) for tokens in self.sentences("train"))


def correction_pairs(
    clean: _CleanText, split: Split, tokenizer_folder: Path, content: Mapping[str, Any], cache: Cache,
    progress: Progress,
) -> Pairs:  # fmt: skip
    """Ids of (spoiled, clean) sentences of a split (validation: of its first ones)."""

    def build(folder: Path) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
        texts = list(_corrupted(clean, split, int(content["seed"]), progress))
        ids: list[list[list[int]]] = [[], []]
        for start in range(0, len(texts), 10_000):
            for side, lines in zip(ids, zip(*texts[start : start + 10_000], strict=True), strict=True):
                side += tokenizer(list(lines))["input_ids"]
            progress.update("tokenizing", min(start + 10_000, len(texts)), len(texts), "pairs")
        Pairs.write(folder, zip(*ids, strict=True))

    return Pairs.open(cache.build("correction-pairs", {**content, "split": split}, build))


def _corrupted(clean: _CleanText, split: Split, seed: int, progress: Progress) -> Iterator[tuple[str, str]]:
    from tasks.corruption import ErrorModel, Lexicon, corrupt

    model = ErrorModel(Lexicon.of(clean.sentences("train")))
    sentences = clean.sentences(split)
    if split == "validation":
        sentences = sentences[:_HELD_OUT]
    rng = np.random.default_rng([seed, ("train", "validation", "test").index(split)])
    for done, tokens in enumerate(sentences, 1):
        yield " ".join(corrupt(tokens, rng, model)), " ".join(tokens)
        if done % 1000 == 0 or done == len(sentences):
            progress.update("making errors", done, len(sentences), "sentences")
