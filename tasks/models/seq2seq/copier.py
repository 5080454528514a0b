"""Initial weights with which an encoder-decoder repeats its source: a good start for learning to edit text.

From random weights a small Transformer needs millions of tokens to learn that the output of an editing task mostly
repeats the source. The mechanism that it learns is known (Olsson et al., 2022, In-context Learning and Induction
Heads), so it is written into the first layers here. The encoder stores at every position the token before. The decoder
attends to the source position whose preceding token is its own last token, the one nearest to its own position, and
outputs the token there. Everything stays trainable, and the other weights are random. The papers do not use this
shortcut; recipes whose model started this way say so.
"""

from __future__ import annotations

from typing import Any

import torch

_NEAR = 3.0  # weight of positions in the attention that moves tokens
_SAME = 2.0  # weight of tokens in the decoder's attention to the source
_PLACE = 3.0  # weight of positions there, to choose among equal tokens
_GAIN = 2.5  # of the decoder's values from the source


@torch.no_grad()
def start_as_copier(module: Any) -> None:
    """Overwrite parts of a fresh Marian module's embeddings and first layers.

    The model's dimensions are split in three: fast sinusoids (only positions), the token, the token before.
    """
    width, heads = module.config.d_model, module.config.decoder_attention_heads
    size, half = width // heads, width // 2
    fast = torch.arange(size // 2)
    token = torch.arange(size // 2, half)  # the slow sines
    before = token + half  # the slow cosines
    positions = torch.cat([fast, half + fast])

    words = module.model.shared.weight
    words.normal_(std=width**-0.5)
    words[:, positions] = 0
    words[:, before] = 0
    words[module.config.pad_token_id] = 0

    encoder, decoder = module.model.encoder.layers[0], module.model.decoder.layers[0]
    for attention, back in ((encoder.self_attn, 1), (decoder.self_attn, 0)):
        _look_back(attention, back, fast, half, heads, size)
        _carry(attention, token, before, 1.0, heads, size)
    _carry(decoder.self_attn, token, token, -1.0, heads, size)  # the token just read is not the next one

    attention, near = decoder.encoder_attn, fast[:: max(1, len(fast) // 4)][:4]
    for head in range(heads):
        rows = head * size + torch.arange(size)
        places = torch.cat([near, half + near])
        content = before[(head * (size - len(places)) + torch.arange(size - len(places))) % len(before)]
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight[rows[: len(places)], places] += _PLACE
            projection.weight[rows[len(places) :], content] += _SAME
    _carry(attention, token, token, _GAIN, heads, size)


def _look_back(attention: Any, back: int, fast: torch.Tensor, half: int, heads: int, size: int) -> None:
    """Queries and keys of all heads: position s attends to s - back, by rotating its sinusoids."""
    turn = back * 10_000.0 ** (-fast / half)
    for head in range(heads):
        sine, cosine = head * size + fast, head * size + len(fast) + fast
        attention.k_proj.weight[sine, fast] += _NEAR
        attention.k_proj.weight[cosine, half + fast] += _NEAR
        attention.q_proj.weight[sine, fast] += _NEAR * turn.cos()
        attention.q_proj.weight[sine, half + fast] -= _NEAR * turn.sin()
        attention.q_proj.weight[cosine, half + fast] += _NEAR * turn.cos()
        attention.q_proj.weight[cosine, fast] += _NEAR * turn.sin()


def _carry(
    attention: Any, read: torch.Tensor, written: torch.Tensor, gain: float, heads: int, size: int
) -> None:  # fmt: skip
    """Values and outputs: dimensions `read` of the attended position go to dimensions `written`, split over heads."""
    slots = torch.arange(len(read))
    rows = slots % heads * size + slots // heads
    attention.v_proj.weight[rows, read] = 1.0
    attention.out_proj.weight[written, rows] = gain
