"""A subword vocabulary shared by source and target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.common.cache import Cache
from tasks.models.bpe import byte_level_bpe

PAD, END = "<pad>", "</s>"  # ids 0 and 1; the padding token is the decoder's first input, as in Marian


def trained_subwords(
    lines: Callable[[], Iterable[str]], content: Mapping[str, Any], vocabulary: int, cache: Cache
) -> Path:
    """Folder of the tokenizer, in the hub's layout. It ends every text with `END`.

    lines: called if the cache has none. content: everything that determines the lines, JSON-able.
    """

    def build(folder: Path) -> None:
        from tokenizers import processors
        from transformers import PreTrainedTokenizerFast

        tokenizer = byte_level_bpe(lines(), vocabulary, (PAD, END), blank_in_front=True)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 1)])
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
        ).save_pretrained(folder)

    return cache.build("subwords", {**content, "vocabulary": vocabulary}, build)
