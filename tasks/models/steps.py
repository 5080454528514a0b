"""The step of a model between two calls of its softmax layer: it reads a word.

Each function here returns a function that makes the next step and returns its contexts, float32 [rows, d] on the CPU,
so that the device is idle again. Weights and words are real. At its end a text starts again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.data.sentences import END
from tasks.models.lstm.model import WordLSTM, side_by_side
from tasks.models.translator.decoding import LstmDecoder
from tasks.models.translator.model import Pairs, Translator

if TYPE_CHECKING:
    from tasks.models.pretrained.language import CausalLM

Step = Callable[[], "NDArray[np.float32]"]
CONTEXT = 64  # tokens that a transformer reads before its first step


def lstm_steps(model: WordLSTM, ids: NDArray[Any], rows: int) -> Step:
    """Ids [T] as `rows` parallel pieces, read word by word from their beginnings.

    A step runs one cell per layer. On a CPU `nn.LSTM` would pack its weights in every call, which for a single word at
    width 1500 takes ten times as long as the step (100 ms against 10, one thread, two layers).
    """
    columns = side_by_side(ids, min(rows, len(ids))).to(model.output.weight.device)

    def read() -> Iterator[NDArray[np.float32]]:
        while True:
            # of each layer, hidden and cell [rows, d]
            state = [(hidden, cell) for hidden, cell in model.zero_state(columns.shape[1]).unbind(1)]
            for words in columns:
                with torch.inference_mode():
                    top = model.embedding(words)
                    for layer, weights in enumerate(model.lstm.all_weights):
                        hidden, cell = state[layer]
                        state[layer] = top, _ = torch.lstm_cell(top, (hidden, cell), *weights)
                yield _array(top)

    return partial(next, read())


def translation_steps(model: Translator, pairs: Pairs, rows: int) -> Step:
    """Sentence after sentence, with `rows` hypotheses per source that all produce the target. Encoding a source is part
    of the step that produces its first word."""
    decoder = LstmDecoder(model)

    def read() -> Iterator[NDArray[np.float32]]:
        while True:
            for source, target in pairs:
                state, kept = decoder.start([source]), np.zeros(rows, np.int64)
                for word in (END, *target):
                    contexts, state = decoder.step(state, kept, np.full(rows, word))
                    yield contexts
                    kept = np.arange(rows)

    return partial(next, read())


def transformer_steps(model: CausalLM, ids: NDArray[Any], rows: int) -> Step:
    """Ids [T] as `rows` parallel texts, read token by token. The model's cache holds `CONTEXT` to 2 x `CONTEXT` earlier
    tokens, or fewer if the window or the text is shorter."""
    texts = side_by_side(ids, min(rows, len(ids))).T.to(model.device)
    length = min(2 * CONTEXT, model.window, texts.shape[1])
    base: Any = model.module.base_model
    taken = inspect.signature(base.forward).parameters
    name = "cache_params" if "cache_params" in taken else "past_key_values"  # state-space models; all others

    def read() -> Iterator[NDArray[np.float32]]:
        while True:
            for start in range(0, texts.shape[1] - length + 1, length):
                first = length // 2 + 1  # the first step of a piece also fills the cache
                parts = texts[:, start : start + length].split([first, *[1] * (length - first)], dim=1)
                cache = None
                for tokens in parts:
                    with torch.inference_mode():
                        output = base(input_ids=tokens, use_cache=True, **{name: cache})
                    cache = getattr(output, name)
                    yield _array(output.last_hidden_state[:, -1])

    return partial(next, read())


def _array(contexts: torch.Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = contexts.float().cpu().numpy()
    return found
