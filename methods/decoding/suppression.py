"""Tokens that a model's generation configuration forbids (Marian checkpoints forbid their padding token this way)."""

from __future__ import annotations

from typing import Any


def suppressed(module: Any) -> list[int]:
    """Ids that may never be generated: `suppress_tokens` and the one-token entries of `bad_words_ids`.

    Other constraints of a generation configuration (minimum length, repeated n-grams, forced tokens) are not part of
    greedy or beam search as the papers compare them, and are not applied, by our decoders or by the peers.
    """
    config = getattr(module, "generation_config", None)
    single = [words[0] for words in getattr(config, "bad_words_ids", None) or [] if len(words) == 1]
    return sorted({int(token) for token in [*single, *(getattr(config, "suppress_tokens", None) or [])]})
