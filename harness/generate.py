"""`generate` of transformers on token ids, for every method and task that wants what a user would call.

Of the model's own generation configuration only suppressed tokens count, as in our decoders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.contracts.models import GenerationModel


def suppressed(module: Any) -> tuple[int, ...]:
    """Ids that may never be generated: `suppress_tokens` and the one-token entries of `bad_words_ids` (Marian
    checkpoints forbid their padding token this way).

    Other constraints of a generation configuration (minimum length, repeated n-grams, forced tokens) are not part of
    greedy or beam search as the papers compare them, and are not applied.
    """
    config = getattr(module, "generation_config", None)
    single = [words[0] for words in getattr(config, "bad_words_ids", None) or [] if len(words) == 1]
    return tuple(sorted({int(token) for token in [*single, *(getattr(config, "suppress_tokens", None) or [])]}))


def maximum_new_tokens(model: GenerationModel, source: Sequence[int], limit: int) -> int:
    """`limit`, or less where the model's window ends before; a causal model's window holds the source too."""
    # the last token of an output is never fed, hence one more than the window has left
    return min(limit, model.window - (max(len(source), 1) - 1 if model.kind == "causal" else 0))


def until_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Ids up to the first end token, with it."""
    stop = next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids))
    return list(ids[:stop])


def generate(
    model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, *, streamer: Any = None, **settings: Any
) -> list[list[int]]:
    """Outputs of one padded batch, at most `limit` tokens each. settings: of `GenerationConfig`.

    A causal model's sources are padded on the left, where padding does not part source and output; an empty one is the
    start token. Sources of an encoder-decoder model must have a token.
    """
    import torch
    from transformers import GenerationConfig

    causal = model.kind == "causal"
    rows = [list(source) or [model.start_id] for source in sources] if causal else [list(source) for source in sources]
    longest = max(map(len, rows))
    pad = model.eos_ids[0] if model.eos_ids else 0
    blanks = [longest - len(row) for row in rows]
    ids = [[pad] * n + row if causal else row + [pad] * n for row, n in zip(rows, blanks, strict=True)]
    real = [[1] * len(row) for row in rows]
    mask = [[0] * n + ones if causal else ones + [0] * n for ones, n in zip(real, blanks, strict=True)]
    config = GenerationConfig(
        max_new_tokens=limit,
        do_sample=False,
        eos_token_id=list(model.eos_ids) or None,
        pad_token_id=pad,
        bos_token_id=model.start_id if causal else None,
        decoder_start_token_id=None if causal else model.start_id,
        suppress_tokens=list(suppressed(model.module)) or None,
        **settings,
    )
    module = model.module
    own, module.generation_config = module.generation_config, config  # what is None here must not be filled from it
    try:
        with torch.inference_mode():
            answers = module.generate(
                torch.tensor(ids, device=model.device),
                attention_mask=torch.tensor(mask, device=model.device),
                generation_config=config,
                streamer=streamer,
            ).tolist()
    finally:
        module.generation_config = own
    first = longest if causal else 1
    return [until_end(answer[first : first + limit], model.eos_ids) for answer in answers]
