"""A check that an engine computes the logits that its module computes without a cache, and encodes sources in a batch
as its module encodes them alone.

A module that ignores its cache, or that reads positions or windows in another way than the engine assumes, decodes
wrongly without an error. Greedy search and every method compared with it would then be equally wrong. So each new
engine is tested on a few tokens.
"""

from __future__ import annotations

import torch

from harness.common.errors import RequestError, reason
from harness.contracts import GenerationModel
from methods.decoding.engine.session import Engine
from methods.decoding.engine.transformer import MANY

# largest root mean square of the differences, as a share of the logits' spread, that counts as rounding
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}  # some modules round to float32 inside
_SHORT_NUMBERS = 0.1  # bfloat16 and float16
# tokens of the prompt, of a short block (compiled, except in bfloat16 above width 256, where only single tokens are),
# of a block too long for that, and fed one by one
_PROMPT, _SHORT, _LONG, _SINGLE = 6, 2, MANY, 2
_LONGEST = 256  # largest window for which the prompt, or the source, is made longer than it
_SOURCES = 9, 3  # tokens of two sources encoded together


def check(engine: Engine, model: GenerationModel, window: int | None = None, bfloat16: bool = False) -> None:
    """Feed an engine two rows: a prompt, a short block, a long block whose end is cropped, and single tokens. Compare
    its logits with the module's own for the whole rows, without a cache.

    window: tokens that the narrowest layer attends to. Prompts and sources are longer than a window of at most 256
    tokens.
    bfloat16: the engine multiplies in bfloat16 and the module does not.

    If only rows of different lengths fail, the engine's `ragged` is set to False. Raises `RequestError` with the model
    type if rows of equal length fail, if the module fails without a cache, or if two sources of different lengths are
    encoded in another way than each alone.
    """
    kind = model.module.config.model_type
    allowed = _SHORT_NUMBERS if bfloat16 else _TOLERANCE.get(model.module.dtype, _SHORT_NUMBERS)
    prompt, narrow = 1, window if window is not None and window <= _LONGEST else 0
    if model.kind == "causal":
        prompt = _PROMPT + narrow
        prompt = max(min(prompt, model.window - _SHORT - _LONG - _SINGLE), 1)
    long = max(min(_LONG, model.window - prompt - _SHORT - _SINGLE), 1)
    with torch.inference_mode():
        try:
            difference = _difference(engine, model, [(prompt, _SHORT, long)] * 2)
            encoded = _encoded_apart(engine, model, narrow) if model.kind == "encoder-decoder" else 0.0
        except RequestError:
            raise
        except Exception as error:  # a forward pass that does not support such a cache may raise anything
            raise RequestError(
                f"a model of type {kind!r} does not work with the key-value cache that decoding here needs "
                f"({type(error).__name__}: {reason(error)}); docs/decoding.md lists the types that do"
            ) from error
        if not difference <= allowed:
            raise RequestError(
                f"a model of type {kind!r} gives other logits with a key-value cache than without (they differ by "
                f"{difference:.2%} of their spread), so its outputs would be wrong; docs/decoding.md lists the types "
                "that can be decoded"
            )
        if not encoded <= allowed:
            raise RequestError(
                f"a model of type {kind!r} encodes a source in a batch otherwise than alone, so its outputs would "
                "depend on the batch; docs/decoding.md lists the types that can be decoded"
            )
        if engine.ragged:
            try:
                difference = _difference(engine, model, [(prompt, _SHORT, long), (max(prompt - 3, 1), 1, 1)])
            except Exception:  # a module that takes only rows of equal length
                difference = float("inf")
            engine.ragged = difference <= allowed


def _difference(engine: Engine, model: GenerationModel, rows: list[tuple[int, int, int]]) -> float:
    """Root mean square of (the engine's logits - the module's), over the standard deviation of the module's.

    rows: per row, the tokens of its prompt and of its two blocks.
    """
    ids = _ordinary(model)
    texts = [
        [ids[(7 * place + 3 * row) % len(ids)] for place in range(sum(counts) + _SINGLE)]
        for row, counts in enumerate(rows)
    ]
    if model.kind == "causal":
        sources = [text[:prompt] for text, (prompt, *_) in zip(texts, rows, strict=True)]
    else:
        sources = [[ids[(5 * place + row) % len(ids)] for place in range(5 - 2 * row)] for row in range(len(rows))]
        texts = [[model.start_id, *text[1:]] for text in texts]
    wanted = torch.cat([_whole(model, source, text) for source, text in zip(sources, texts, strict=True)])
    session = engine.start(sources, [sum(blocks) + _SINGLE + 1 for _, *blocks in rows])
    pieces: list[list[torch.Tensor]] = [[] for _ in rows]

    def feed(spans: list[tuple[int, int]], rejected: int = 0) -> None:
        """Feed each row its tokens of a span, then `rejected` tokens that are cropped."""
        fed = [[*text[begin:end], *text[:rejected]] for text, (begin, end) in zip(texts, spans, strict=True)]
        logits = session.logits(session.advance(fed))
        session.lengths = [length - rejected for length in session.lengths]
        for row, piece in enumerate(logits.split([len(tokens) for tokens in fed])):
            pieces[row].append(piece[: len(piece) - rejected].clone())

    feed([(0, prompt) for prompt, _, _ in rows])
    feed([(prompt, prompt + short) for prompt, short, _ in rows])
    feed([(prompt + short, prompt + short + long) for prompt, short, long in rows], rejected=1)
    for number in range(_SINGLE):
        feed([(sum(counts) + number, sum(counts) + number + 1) for counts in rows])
    return _apart(torch.cat([torch.cat(row) for row in pieces]), wanted)


def _encoded_apart(engine: Engine, model: GenerationModel, window: int) -> float:
    """Root mean square of (states of two sources encoded together by the engine - those that the module gives each
    alone), over the standard deviation of the latter. One source is longer than the window."""
    ids, (long, short) = _ordinary(model), _SOURCES
    long = min(window + long, model.longest_source or window + long)
    sources = [[ids[(5 * place + length) % len(ids)] for place in range(length)] for length in (long, short)]
    states = engine.encode(sources).states
    encode = model.module.get_encoder()
    alone = [encode(input_ids=torch.tensor([source], device=model.device)).last_hidden_state[0] for source in sources]
    assert states is not None  # of an encoder-decoder
    return _apart(states, torch.cat(alone))


def _apart(ours: torch.Tensor, wanted: torch.Tensor) -> float:
    """Root mean square of the differences of two tensors, over the standard deviation of the second."""
    ours, wanted = ours.double(), wanted.double()
    return float((ours - wanted).square().mean().sqrt() / wanted.std().clamp_min(1e-30))


def _whole(model: GenerationModel, source: list[int], text: list[int]) -> torch.Tensor:
    """The module's logits [t, V] of a text, all at once. Raises `RequestError` for a module that fails."""
    device = model.device
    if model.kind == "causal":
        given = {"input_ids": torch.tensor([text], device=device)}
    else:
        given = {
            "input_ids": torch.tensor([source], device=device),
            "decoder_input_ids": torch.tensor([text], device=device),
        }
    try:
        logits: torch.Tensor = model.module(**given, use_cache=False).logits
    except Exception as error:  # whatever a forward pass raises
        raise RequestError(
            f"a model of type {model.module.config.model_type!r} in {str(model.module.dtype).removeprefix('torch.')} "
            f"does not run, even without a key-value cache ({type(error).__name__}: {reason(error)}): "
            "try another dtype or another model"
        ) from error
    return logits[0]


def _ordinary(model: GenerationModel) -> list[int]:
    """Some ids without special tokens, spread over the vocabulary."""
    config = model.module.config
    special = {model.start_id, *model.eos_ids, getattr(config, "pad_token_id", None)}
    vocabulary = min(model.vocabulary_size, int(model.module.get_input_embeddings().num_embeddings))
    step = max(vocabulary // 64, 1)
    return [token for token in range(0, vocabulary, step) if token not in special] or [0]
