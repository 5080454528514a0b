"""Byte-level BPE vocabularies: any text round-trips, without an unknown token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def byte_level_bpe(lines: Iterable[str], vocabulary: int, special: Sequence[str], *, blank_in_front: bool) -> Any:
    """A `tokenizers.Tokenizer` of at most `vocabulary` entries, learned from lines. Special tokens have the first ids.

    blank_in_front: put a blank before a text, so that a word has the same ids at the text's beginning and inside it.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=blank_in_front)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer
