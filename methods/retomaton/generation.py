"""The automaton in `generate` of transformers: a logits processor for any causal model.

processor = RetoMatonProcessor(method, model)  # a fitted or opened `RetoMaton` and its model
with processor.watching():
    ids = model.module.generate(prompt, logits_processor=LogitsProcessorList([processor]), max_new_tokens=50)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessor

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from harness.contracts import LanguageModel
from methods.knnlm.gate import neighbour_features
from methods.knnlm.mixture import knn_distribution
from methods.nearest.index import finite
from methods.retomaton.scorer import RetoMaton, draws
from methods.retomaton.walk import Candidates, Walk


class RetoMatonProcessor(LogitsProcessor):
    """Replaces the logits of every step by log(lambda p_auto + (1 - lambda) p_LM), and follows the generated tokens
    through the automaton, each row of the batch separately. For greedy search, sampling and beam search.

    The automaton starts after the prompt. ends: tokens after which a row is no longer followed; None: those at which
    the call of `generate` ends. padding: the token that pads prompts on the left, so that a row's random draws are
    those of the row alone; None: no padding. searches, tokens: how many of the `tokens` tokens were searched.

    Raises `RequestError` if the method's datastore was built with another model, `RuntimeError` if it is not fitted.
    """

    def __init__(
        self, method: RetoMaton, model: LanguageModel, ends: Collection[int] | None = None, padding: int | None = None
    ) -> None:
        metadata = method.ready()[0].store.metadata
        if (built := metadata["built_from"]["model"]) != model.hash:
            raise RequestError(
                f"the datastore was built with the model {built} ({metadata['model_name']}), this one is {model.hash} "
                f"({model.name}); fit the method with it"
            )
        self.method, self.model, self.padding = method, model, padding
        self.given = ends
        self.ends = frozenset(ends or ())
        self.searches = self.tokens = 0
        self._walks: list[Walk] = []
        self._ended: list[bool] = []
        self._known: dict[int, Candidates] = {}
        self._before: torch.Tensor | None = None
        self._keys: list[torch.Tensor] | None = None
        method.automaton.search.load()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Collect the queries of `generate`'s forward passes, and the end tokens of the call. Each use begins a new
        text."""
        self._walks, self._known, self._before = [], {}, None
        self.searches = self.tokens = 0
        module: Any = getattr(self.model, "module", None)
        own, before = vars(module).get("generate"), module.generate  # own: of a `watching` around this one

        def generate(*given: Any, **settings: Any) -> Any:
            if self.given is None:
                self.ends = _ends(module, settings)
            return before(*given, **settings)

        with self.model.capture(self.method.key) as keys:
            self._keys = keys
            module.generate = generate  # shadows the class's own
            try:
                yield
            finally:
                self._keys = None
                if own:
                    module.generate = own
                else:
                    del module.generate

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> Any:
        """Raises `RequestError` outside of `watching`, for a row that does not continue its earlier text, for a step of
        several forward passes, and for a query that is not finite."""
        if not self._keys:
            raise RequestError("no forward pass was seen: call generate inside `with processor.watching():`")
        keys = self._keys[-1]
        seen = sum(one.numel() for one in self._keys) // (len(input_ids) * keys.shape[-1])
        if seen > input_ids.shape[1] or (self._before is not None and len(self._keys) > 1):  # a prompt may be in parts
            raise RequestError(
                "this step had several forward passes, so its query is not known: RetoMaton generates without guidance "
                "and assisted decoding"
            )
        queries = finite(keys.reshape(len(input_ids), -1, keys.shape[-1])[:, -1].float().cpu().numpy())
        self._keys.clear()
        self._follow(input_ids)
        method, (datastore, (lambda_, temperature)) = self.method, self.method.ready()
        going = [row for row, ended in enumerate(self._ended) if not ended]
        asking = [row for row in going if method.needs_search(self._walks[row])]
        answers: dict[int, tuple[NDArray[np.float32], NDArray[np.int64]]] = {}
        if asking:
            near, ids = datastore.search(queries[asking], NoPhases())
            answers = {row: (near[at], ids[at]) for at, row in enumerate(asking)}
        self._known = {row: self._walks[row].candidates(queries[row], answers.get(row)) for row in going}
        self.searches, self.tokens = self.searches + len(asking), self.tokens + len(going)
        forbidden = torch.isneginf(scores)  # by processors before this one
        log_lm = torch.log_softmax(scores.float(), -1)
        for row, found in self._known.items():
            if not len(found.ids):
                continue
            values = found.values[None]
            log_counts = method.automaton.log_counts(found.counts)
            auto = knn_distribution(found.distances[None], values, temperature, scores.shape[1], log_counts)[0]
            weight = lambda_
            if method.gate is not None:
                own = log_lm[row]
                confident = [float(own.max()), -float((own.exp() * own).nan_to_num().sum())]
                looks = neighbour_features(found.distances[None], values, temperature, log_counts)
                weight = float(method.gate(np.concatenate([[confident], looks], 1))[0])
            mixed = weight * torch.from_numpy(auto).to(log_lm) + (1 - weight) * log_lm[row].exp()
            log_lm[row] = mixed.log()
        return log_lm.masked_fill(forbidden, -torch.inf).to(scores.dtype)

    def _follow(self, input_ids: torch.LongTensor) -> None:
        """Advance every walk by the token chosen last."""
        before, self._before = self._before, input_ids.clone()
        if before is None:
            automaton, seed = self.method.automaton, self.method.seed
            prompts = input_ids.cpu().numpy().astype(np.int64)
            self._walks = [Walk(automaton, draws(seed, _unpadded(prompt, self.padding))) for prompt in prompts]
            self._ended = [False] * len(prompts)
            return
        earlier = {tuple(text): row for row, text in enumerate(before.tolist())}  # beams change places and part
        walks, ended = [], []
        for *text, token in input_ids.tolist():
            row = earlier.get(tuple(text))
            if row is None:
                raise RequestError("a row continues none of the rows before it: give each text its own `watching()`")
            walks.append(walk := replace(self._walks[row]))
            ended.append(self._ended[row])
            if not ended[-1]:
                walk.advance(token, self._known[row])
                ended[-1] = token in self.ends
        self._walks, self._ended = walks, ended


def _unpadded(prompt: NDArray[np.int64], padding: int | None) -> NDArray[np.int64]:
    """A row int64 [n] without its padding on the left."""
    return prompt if padding is None else prompt[int((prompt == padding).cumprod().sum()) :]


def _ends(module: Any, settings: Mapping[str, Any]) -> frozenset[int]:
    """The end tokens of a call of `generate` with these settings."""
    own = module.generation_config
    ids = getattr(settings.get("generation_config") or own, "eos_token_id", None)
    ids = settings.get("eos_token_id", own.eos_token_id if ids is None else ids)
    return frozenset(() if ids is None else [ids] if isinstance(ids, int) else torch.as_tensor(ids).flatten().tolist())
