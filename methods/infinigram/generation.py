"""The ∞-gram LM in `generate` of transformers: a logits processor for any causal model.

processor = InfinigramProcessor(engine, sparse=0.6, other=0.2)
ids = model.generate(prompt, logits_processor=LogitsProcessorList([processor]), max_new_tokens=50)
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LogitsProcessor

from harness.common.errors import RequestError
from methods.infinigram.engine import Engine
from methods.infinigram.mixing import LARGEST

CONTEXT = 512  # tokens that are searched; longer matches would not be better


class InfinigramProcessor(LogitsProcessor):
    """Replaces the logits of every step by log(lambda p_inf + (1 - lambda) p_LM) (Liu et al., 2024, section 2.3). The
    engine's index must have been built with the model's tokenizer.

    sparse: lambda if a single token follows the longest context that occurs. other: lambda otherwise. Both from 0 to
    `LARGEST`; `RequestError` for other numbers. A call raises it for an index with a larger vocabulary than the
    model's.
    """

    def __init__(self, engine: Engine, *, sparse: float, other: float) -> None:
        for name, value in (("sparse", sparse), ("other", other)):
            if not 0 <= value <= LARGEST:
                raise RequestError(f"{name} = {value}: give a weight from 0 to {LARGEST}")
        self.engine, self.sparse, self.other = engine, sparse, other

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> Any:
        """scores: logits [B, V] after input_ids [B, T]. Returns log-probabilities [B, V]. Tokens that an earlier
        processor forbids stay forbidden. A context begins after the last token unknown to the index, such as
        padding."""
        if scores.shape[1] < self.engine.vocabulary_size:
            raise RequestError(
                f"the index has a vocabulary of {self.engine.vocabulary_size} tokens, the model one of "
                f"{scores.shape[1]}: build the index with the model's tokenizer"
            )
        mixed = torch.log_softmax(scores.double(), -1).exp()
        for row, ids in zip(mixed, input_ids.tolist(), strict=True):
            known = next((n for n, token in enumerate(reversed(ids)) if token >= self.engine.vocabulary_size), len(ids))
            found = self.engine.infinigram_distribution(ids[len(ids) - min(known, CONTEXT) :])
            if not len(found.tokens):
                continue
            weight = self.sparse if found.sparse else self.other
            row *= 1 - weight
            row[torch.from_numpy(found.tokens).to(row.device)] += weight * torch.from_numpy(found.probabilities).to(row)
        return mixed.log().masked_fill(torch.isneginf(scores), -torch.inf).to(scores.dtype)
