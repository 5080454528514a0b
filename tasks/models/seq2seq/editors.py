"""Correctors and simplifiers trained here.

A simplifier starts from a corrector, which has learned to repeat correct text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.files import digest
from harness.common.progress import Progress
from harness.common.training.pairs import Pairs
from tasks.data.correction import CleanText, corrupted
from tasks.data.simplification import Sentence
from tasks.data.text import Split
from tasks.models.pretrained.checkpoints import tokenizer_hash
from tasks.models.seq2seq.pairs import encoded_pairs
from tasks.models.seq2seq.subwords import trained_subwords
from tasks.models.seq2seq.training import trained_seq2seq

if TYPE_CHECKING:
    from tasks.models.seq2seq.sizes import Size

Tokens = list[str]
_HELD_OUT = 100  # first texts of a corpus, used only for the held-out loss of a simplifier
_SHORTER = 10  # a simplifier takes a tenth of its corrector's steps


def trained_corrector(
    size: Size, clean: CleanText, cache: Cache, *, learners: Sequence[tuple[Tokens, Tokens]] = (), device: str = "cpu",
    seed: int = 0, progress: Progress | None = None,
) -> Path:  # fmt: skip
    """Folder of the corrector of a size, trained on clean text with synthetic errors unless the cache has it.

    learners: (source, corrected sentence) of real learners, for the last steps.
    """
    progress = progress or Progress()
    content = clean.content(cache)

    def lines() -> Iterator[str]:
        return (" ".join(tokens) for tokens in clean.sentences("train", progress))

    # misspellings affect the errors, not the clean text from which subwords are learned
    text = {name: value for name, value in content.items() if name != "misspellings"}
    tokenizer = trained_subwords(lines, text, size.vocabulary, cache)
    content |= {"vocabulary": size.vocabulary, "seed": seed}
    training = correction_pairs(clean, "train", tokenizer, content, cache, progress, size.versions)
    held_out = correction_pairs(clean, "validation", tokenizer, content, cache, progress)
    first = replace(size, last_steps=0)  # the first steps do not depend on it
    corrector = trained_seq2seq(
        first, training, held_out, tokenizer, cache, device=device, seed=seed, progress=progress
    )
    if not (learners and size.last_steps):
        return corrector
    key = {"texts": digest(list(learners)), "tokenizer": tokenizer_hash(corrector)}
    last = encoded_pairs(
        "learner-pairs", key, lambda: [(" ".join(a), " ".join(b)) for a, b in learners], corrector, cache, progress
    )
    return trained_seq2seq(
        _shorter(first, size.last_steps), last, held_out, corrector, cache,
        start=corrector, device=device, seed=seed, progress=progress,
    )  # fmt: skip


def correction_pairs(
    clean: CleanText, split: Split, tokenizer: Path, content: Mapping[str, Any], cache: Cache, progress: Progress,
    versions: int = 1,
) -> Pairs:  # fmt: skip
    """Ids of (corrupted, clean) sentences of a split (validation: only the first ones), each `versions` times with
    other errors. The text of a sentence is its tokens with blanks between them.

    content: everything that determines the sentences, JSON-able, with the `seed` of their errors.
    """

    def texts() -> list[tuple[str, str]]:
        items = corrupted(clean, split, int(content["seed"]), progress, versions)
        return [(" ".join(item.source), " ".join(tokens)) for item, tokens in items]

    key = {**content, "split": split, "versions": versions, "tokenizer": tokenizer_hash(tokenizer)}
    return encoded_pairs("correction-pairs", key, texts, tokenizer, cache, progress)


def _shorter(size: Size, steps: int) -> Size:
    """The size for fine-tuning during `steps` steps: a quarter of the rate, and dropout."""
    return replace(
        size, steps=steps, warmup=max(1, steps * size.warmup // size.steps), learning_rate=size.learning_rate / 4,
        dropout=0.1,
    )  # fmt: skip


def trained_simplifier(
    size: Size, corrector: Path, corpora: Sequence[list[list[Sentence]]], cache: Cache, *, device: str = "cpu",
    seed: int = 0, progress: Progress | None = None,
) -> Path:  # fmt: skip
    """Folder of the corrector fine-tuned on the texts of corpora (source, then references), unless the cache has it.

    Every reference gives a pair. The first texts of every corpus are held out, so that none is trained on if corpora
    simplify the same sentences. Raises `RequestError` when a corpus has too few texts.
    """
    progress = progress or Progress()
    for texts in corpora:
        if len(texts) <= _HELD_OUT:
            raise RequestError(f"{len(texts)} sentences are too few to train a simplifier; give more than {_HELD_OUT}")
    content = {"texts": digest(list(corpora)), "tokenizer": tokenizer_hash(corrector)}
    parts = {
        "validation": [text for texts in corpora for text in texts[:_HELD_OUT]],
        "train": [text for texts in corpora for text in texts[_HELD_OUT:]],
    }

    def pairs(part: str) -> Pairs:
        def texts() -> list[tuple[str, str]]:
            return [(" ".join(source), " ".join(one)) for source, *several in parts[part] for one in several]

        return encoded_pairs("simplification-pairs", {**content, "part": part}, texts, corrector, cache, progress)

    return trained_seq2seq(
        _shorter(size, max(1, size.steps // _SHORTER)), pairs("train"), pairs("validation"), corrector, cache,
        start=corrector, device=device, seed=seed, progress=progress,
    )  # fmt: skip
