"""Causal language models of `transformers` for token scoring: sliding windows, keys, bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.files import digest
from harness.contracts import EncodedBlock, KeyKind
from tasks.models.pretrained.checkpoints import tokenizer_hash, weights_hash
from tasks.models.pretrained.feed_forward import captured, last_feed_forward
from tasks.models.pretrained.opening import added_start, open_module, open_tokenizer, positions

_LONGEST_DEFAULT_WINDOW = 1024
_BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}  # inputs of one forward pass, over all its windows
_LOGITS_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}  # of one chunk of logits; on a CPU it should fit the caches


class CausalLM:
    """A causal language model: see `harness.contracts.LanguageModel`.

    `window` is the longest input in tokens. Windows start every `stride` tokens, so all but the first `window` tokens
    of a stream are predicted from at least `window - stride` and at most `window` tokens. start: the BOS token, if the
    tokenizer begins every text with it: it then replaces the first token of all windows but a stream's first, because
    some models read badly without it. `hash` covers everything that answers depend on: weights, configuration, dtype,
    window, stride and `start`; `weights_hash` covers only the weights. facts: of the model's origin and of BOS, for
    rows.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        name: str,
        weights_hash: str,
        tokenizer_hash: str = "",
        folder: Path | None = None,
        start: int | None = None,
        window: int | None = None,
        stride: int | None = None,
        device: str = "cpu",
        facts: Mapping[str, str] | None = None,
    ) -> None:
        config: Any = module.config
        text = config.get_text_config()  # for a model that also reads images, the part of its language model
        self.module: Any = module
        self._stack: Any = module.get_decoder()  # type: ignore[operator]  # its blocks, without the output layer
        self._text = text
        self.name = name
        self.folder = folder
        self.device = device
        self.model_type: str = config.model_type
        self.vocabulary_size: int = module.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
        longest = positions(text, module, "max_position_embeddings", "max_seq_len")
        self.window: int = window or min(longest or _LONGEST_DEFAULT_WINDOW, _LONGEST_DEFAULT_WINDOW)
        self.stride: int = stride or max(1, self.window // 2)
        if longest and self.window > longest:
            raise RequestError(f"window {self.window} is longer than the {longest} positions of the model {name}")
        if not 1 <= self.stride <= self.window:
            raise RequestError(f"stride {self.stride} of the model {name} is not within 1..{self.window}, its window")
        self.weights_hash = weights_hash
        self.tokenizer_hash = tokenizer_hash
        dtype = str(next(module.parameters()).dtype).removeprefix("torch.")
        self._start, begins = start, [] if start is None else [start]
        self.facts = {**(facts or {}), **({"bos": "in front of every window"} if begins else {})}
        self.hash = digest([weights_hash, _settings(config), dtype, self.window, self.stride, *begins])
        self._check_causal()
        self._check_head()

    @classmethod
    def load(
        cls,
        path_or_id: str,
        *,
        device: str = "cpu",
        window: int | None = None,
        stride: int | None = None,
        dtype: str = "float32",
        cache: Cache | None = None,
        name: str | None = None,
    ) -> CausalLM:
        """Load a model. path_or_id: as for `tasks.models.pretrained.places.find`.

        dtype: one of `DTYPES`. window: default the model's positions, at most 1024;
        stride: default half the window. Raises `RequestError` when there is no such model, when it is not a causal
        language model (its tokens see later ones) or its output head cannot be evaluated row by row, `MachineError`
        when there is no such device.
        """
        module, found = open_module(path_or_id, device=device, dtype=dtype, causal=True, cache=cache)
        folder, tokens = found.folder, tokenizer_hash(found.folder)

        def start() -> int | None:
            return added_start(open_tokenizer(folder, path_or_id)) if tokens else None

        return cls(
            module,
            name=name or path_or_id,
            weights_hash=weights_hash(folder, cache),
            tokenizer_hash=tokens,
            folder=folder,
            start=(cache or Cache()).value("start-token", {"tokenizer": tokens}, start),
            window=window,
            stride=stride,
            device=device,
            facts=found.facts,
        )

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, loaded on first use. Raises `RequestError` when its folder holds none."""
        return open_tokenizer(self.folder, self.name)

    @property
    def start_id(self) -> int:
        """The given first token of every stream: the tokenizer's BOS, else EOS, else a newline.

        Raises `RequestError` when the tokenizer has none of them.
        """
        for token in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        newline = self.tokenizer.encode("\n", add_special_tokens=False)
        if not newline:
            raise RequestError(f"the tokenizer of {self.name} has no BOS, no EOS and no newline to begin a stream with")
        return int(newline[-1])

    def key_dimension(self, key: KeyKind) -> int:
        """Width d of the keys. Raises `RequestError` naming the model type when it has no usable last block."""
        if key == "last_hidden":
            return int(self._head.weight.shape[1])
        last_feed_forward(self._stack, self.model_type)
        return int(self._text.hidden_size)

    def encode(
        self, stream: NDArray[np.int64], *, key: KeyKind | None = None, statistics: bool = False
    ) -> Iterator[EncodedBlock]:
        """Predict tokens 1..T-1 of one stream of ids [T], each once; one block per window.

        Window i reads tokens from i * stride on and predicts those that no earlier window did. Where the tokenizer adds
        BOS, that is what the first of them is read as. Equal windows share forward passes. Raises `RequestError` for
        ids outside the vocabulary and for a model without such keys.
        """
        stream = np.asarray(stream, np.int64)
        if stream.size and not 0 <= int(stream.min()) <= int(stream.max()) < self.vocabulary_size:
            raise RequestError(
                f"token ids outside 0..{self.vocabulary_size - 1}, the vocabulary of the model {self.name}: "
                "was the text encoded by its tokenizer?"
            )
        parts = None if key in (None, "last_hidden") else last_feed_forward(self._stack, self.model_type)
        ids = torch.from_numpy(np.ascontiguousarray(stream))
        per_batch = max(1, _BATCH_TOKENS[torch.device(self.device).type] // self.window)
        pending: list[tuple[int, int, int]] = []
        for begin, first, end in windows(len(stream), self.window, self.stride):
            if pending and (len(pending) == per_batch or end - begin != pending[0][2] - pending[0][0]):
                yield from self._encode_windows(ids, pending, key, parts, statistics)
                pending = []
            pending.append((begin, first, end))
        if pending:
            yield from self._encode_windows(ids, pending, key, parts, statistics)

    def capture(self, key: KeyKind) -> AbstractContextManager[list[torch.Tensor]]:
        """Collect the keys of every forward pass of `module` in the context: see `harness.contracts.LanguageModel`."""
        if key == "last_hidden":
            return captured((self._head, self._head), "last_ffn_input")  # the input of the output layer
        return captured(last_feed_forward(self._stack, self.model_type), key)

    def _encode_windows(
        self,
        ids: torch.Tensor,
        spans: list[tuple[int, int, int]],
        key: KeyKind | None,
        parts: tuple[nn.Module, nn.Module] | None,
        statistics: bool,
    ) -> Iterator[EncodedBlock]:
        with torch.no_grad(), ExitStack() as stack:  # left before the first yield: the consumer may want gradients
            inputs = torch.stack([ids[begin:end] for begin, _, end in spans])
            if self._start is not None:
                inputs[[begin > 0 for begin, _, _ in spans], 0] = self._start
            inputs = inputs.to(self.device)
            seen = stack.enter_context(captured(parts, key)) if parts is not None and key is not None else []
            hidden = self._stack(input_ids=inputs, use_cache=False).last_hidden_state
            source = hidden if key == "last_hidden" else seen[0].reshape(*inputs.shape, -1) if seen else None
        for row, (begin, first, end) in enumerate(spans):
            rows = (row, slice(first - 1 - begin, None))
            targets = ids[first : end + 1].to(self.device)
            keys = None if source is None else source[rows].float()
            yield _Block(first, targets, keys, hidden[rows], self._head, statistics)

    @property
    def _head(self) -> Any:
        return self.module.get_output_embeddings()

    @torch.no_grad()
    def _check_causal(self) -> None:
        """Refuse models in which a token attends to later ones (BERT and similar models, which transformers loads)."""
        probe = torch.tensor([[0, 0], [0, 1]], device=self.device)
        hidden = self._stack(input_ids=probe, use_cache=False).last_hidden_state
        one, other = hidden[:, 0].float()
        rounding = max(1e-4, 2 * torch.finfo(hidden.dtype).eps)  # experts may get other batches of tokens
        if (one - other).norm() > rounding * one.norm():
            raise RequestError(
                f"the model {self.name} of type {self.model_type!r} is not a causal language model: its tokens see "
                "those that follow them; give one that reads from left to right, such as gpt2"
            )

    @torch.no_grad()
    def _check_head(self) -> None:
        """Refuse models whose logits are not output layer x last hidden state (scaled, capped, or with another layer
        between)."""
        probe = torch.zeros((1, 2), dtype=torch.int64, device=self.device)
        hidden = self._stack(input_ids=probe, use_cache=False).last_hidden_state
        expected = self.module(input_ids=probe, use_cache=False).logits
        if not torch.allclose(self._head(hidden).float(), expected.float(), rtol=1e-3, atol=1e-3):
            raise RequestError(
                f"the model {self.name} of type {self.model_type!r} has logits that are not its output layer times its "
                "last hidden state (scaled, capped, or more layers between), which token scoring does not support"
            )


class _Block(EncodedBlock):
    """One window's predictions. The output layer runs when a score is first read: a datastore needs only keys, and in
    small models that layer is half of the work."""

    __slots__ = ("_head", "_hidden", "_statistics")

    def __init__(
        self,
        start: int,
        targets: torch.Tensor,
        keys: torch.Tensor | None,
        hidden: torch.Tensor,
        head: Any,
        statistics: bool,
    ) -> None:
        self.start, self.targets, self.keys = start, targets, keys
        self._hidden, self._head, self._statistics = hidden, head, statistics

    def __getattr__(self, name: str) -> Any:  # called for missing fields
        if name == "log_distribution":  # as a field it would be a cycle that holds memory until garbage collection
            return self._distribution
        if name not in ("log_prob", "max_log_prob", "entropy"):
            raise AttributeError(name)
        self._score()
        return getattr(self, name)

    @torch.no_grad()
    def _score(self) -> None:
        """Fill in log_prob, max_log_prob and entropy, a chunk of rows at a time."""
        log_prob = torch.empty(len(self.targets), dtype=torch.float32, device=self.targets.device)
        peak, entropy = (torch.empty_like(log_prob), torch.empty_like(log_prob)) if self._statistics else (None, None)
        rows = max(1, _LOGITS_BYTES[log_prob.device.type] // (4 * self._head.weight.shape[0]))
        for chunk in range(0, len(log_prob), rows):
            part = slice(chunk, chunk + rows)
            logits = self._head(self._hidden[part]).float()
            normalizer = logits.logsumexp(-1)
            log_prob[part] = logits.gather(-1, self.targets[part, None])[:, 0] - normalizer
            if peak is not None and entropy is not None:
                peak[part] = logits.amax(-1) - normalizer
                # H = log Z - E[logit]
                entropy[part] = normalizer - torch.linalg.vecdot((logits - normalizer[:, None]).exp_(), logits)
        self.log_prob, self.max_log_prob, self.entropy = log_prob, peak, entropy

    @torch.no_grad()
    def _distribution(self, rows: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._head(self._hidden[rows.to(self._hidden.device)])
        return logits.float().log_softmax(-1)


def _settings(config: Any) -> str:
    """The model's settings in config.json (activation, heads, rope, norms, scaling) with defaults, without path, author
    and stored precision."""
    left_out = {"_name_or_path", "transformers_version", "dtype", "torch_dtype"}
    stated = {name: value for name, value in config.to_dict().items() if name not in left_out}
    return json.dumps(stated, sort_keys=True, default=str)


def windows(length: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(begin, first, end) of the sliding windows over a stream of `length` tokens. A forward pass reads tokens
    begin..end-1 and predicts tokens first..end, which no earlier window predicted."""
    done = 0  # the first token is given
    begin = 0
    while done < length - 1:
        end = min(begin + window, length - 1)
        yield begin, done + 1, end
        done = end
        begin += stride
