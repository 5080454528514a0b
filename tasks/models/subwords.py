"""A byte-level BPE vocabulary shared by source and target: any text round-trips, there is no unknown token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.measure.artifacts import Cache

PAD, END = "<pad>", "</s>"  # ids 0 and 1; the pad is the decoder's first input, as in Marian


def trained_subwords(
    lines: Callable[[], Iterable[str]], content: Mapping[str, Any], vocabulary: int, cache: Cache
) -> Path:
    """Folder of the tokenizer, in the hub's layout; it ends every text in `END`.

    lines: called when the cache has none. content: what determines the lines, JSON-able.
    """

    def build(folder: Path) -> None:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
        from transformers import PreTrainedTokenizerFast

        tokenizer = Tokenizer(models.BPE())
        # with the blank in front, a word is the same ids at the start of a text and inside it
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[PAD, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines(), trainer)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 1)])
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
        ).save_pretrained(folder)

    return cache.build("subwords", {**content, "vocabulary": vocabulary}, build)
