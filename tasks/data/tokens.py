"""Texts as ids of a model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Ids of each text, without the special tokens that a tokenizer adds."""
    ids: list[list[int]] = tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
    return ids
