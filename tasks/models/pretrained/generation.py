"""Transformers that generate text, by hub id or local folder: see `harness.contracts.GenerationModel`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.files import digest
from harness.common.generate import Constraints, until_end
from harness.contracts import LanguageModel
from tasks.models.pretrained.checkpoints import tokenizer_hash, weights_hash
from tasks.models.pretrained.languages import choose_languages
from tasks.models.pretrained.opening import added_start, open_module, open_tokenizer, positions

_LONGEST_WINDOW = 1024  # of models without a stated limit


class TextGenerator:
    """An encoder-decoder (Marian, BART, T5, ...) or causal model in eval mode.

    window: most tokens of a causal model's sequence, by default its positions. longest_source: most tokens of a source:
    the window of a causal model, the positions of an encoder, or None if these are relative. `hash` covers everything
    that outputs depend on: weights, configuration, dtype, tokenizer, a given window, the tokens that begin and end an
    output, and the constraints of the generation configuration (`constraints`).
    """

    def __init__(
        self,
        module: Any,
        *,
        name: str,
        hash_of_weights: str,
        tokenizer: Any = None,
        folder: Path | None = None,
        window: int | None = None,
        device: str = "cpu",
        gguf: Path | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        config = module.config
        self.module = module
        self.tokenizer = tokenizer
        self.name = name
        self.device = device
        self.gguf, self.facts = gguf, dict(facts or {})
        self.assistant: TextGenerator | None = None
        self.kind: Literal["encoder-decoder", "causal"] = "encoder-decoder" if config.is_encoder_decoder else "causal"
        self.added_start = added_start(tokenizer) if tokenizer is not None and self.kind == "causal" else None
        self.vocabulary_size: int = module.get_output_embeddings().weight.shape[0]
        encoder_decoder = self.kind == "encoder-decoder"
        longest = positions(
            config.get_text_config(), module.get_decoder() if encoder_decoder else module,
            "max_decoder_position_embeddings", "max_position_embeddings", "max_seq_len",
        )  # fmt: skip
        self.window: int = window or longest or _LONGEST_WINDOW
        if longest and self.window > longest:
            raise RequestError(f"window {window} is longer than the {longest} positions of the model {name}")
        self.longest_source: int | None = self.window
        if encoder_decoder:
            self.longest_source = positions(
                getattr(config, "encoder", config), module.get_encoder(),
                "max_encoder_position_embeddings", "max_position_embeddings",
            )  # fmt: skip
        ends = _given(module, tokenizer, "eos_token_id")
        self.eos_ids: tuple[int, ...] = (
            tuple(ends) if isinstance(ends, list | tuple) else () if ends is None else (ends,)
        )
        self.start_id = _start(module, tokenizer, self.kind, self.eos_ids, name)
        self.constraints = Constraints.of(module, self.eos_ids)
        self._weights_hash, self._tokens_hash = hash_of_weights, tokenizer_hash(folder) if folder else ""
        self._folder, self._given_window = folder, window
        demands = replace(self.constraints, suppressed=(), ends=(), ignored=())
        self.hash = digest(
            [
                hash_of_weights, _settings(config), str(module.dtype), self._tokens_hash,
                [list(self.eos_ids), self.start_id, list(self.constraints.suppressed)],
                *([window] if window else []),
                *([asdict(demands)] if demands != Constraints() else []),
                *([tokenizer.src_lang] if getattr(tokenizer, "src_lang", None) else []),
            ]
        )  # fmt: skip

    @cached_property
    def language_model(self) -> LanguageModel | None:
        """The same weights in the interface of token scoring; None for an encoder-decoder.

        Raises `RequestError` for a model whose probabilities cannot be computed row by row, which decoding does not
        need.
        """
        if self.kind == "encoder-decoder":
            return None
        from tasks.models.pretrained.language import CausalLM

        return CausalLM(
            self.module, name=self.name, weights_hash=self._weights_hash, tokenizer_hash=self._tokens_hash,
            folder=self._folder, start=self.added_start, window=self._given_window, device=self.device,
            facts=self.facts,
        )  # fmt: skip

    @classmethod
    def load(
        cls,
        path_or_id: str,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        window: int | None = None,
        cache: Cache | None = None,
        name: str | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> TextGenerator:
        """Load a model. path_or_id: as for `tasks.models.pretrained.places.find`.

        source_language, target_language: of a multilingual model, by its tokenizer's names. Raises `RequestError` when
        there is no such model, when it can be loaded neither as an encoder-decoder nor as a causal model, when it has
        no tokenizer, when the dtype or a language is unknown, or when the window exceeds a causal model's positions;
        `MachineError` when there is no such device.
        """
        module, found = open_module(path_or_id, device=device, dtype=dtype, causal=False, cache=cache)
        tokenizer = open_tokenizer(found.folder, path_or_id)
        choose_languages(module, tokenizer, source_language, target_language, path_or_id)
        if target_language:
            tokenizer.tgt_lang = target_language
        return cls(
            module,
            name=name or path_or_id,
            hash_of_weights=weights_hash(found.folder, cache),
            tokenizer=tokenizer,
            folder=found.folder,
            window=window,
            device=device,
            gguf=found.gguf,
            facts=found.facts,
        )

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts for the model's input, with the tokens that its tokenizer adds (the end token). Raises
        `RequestError` for a token that the model has no embedding of."""
        return self._within(self.tokenizer(list(texts))["input_ids"]) if texts else []

    @property
    def chat_template(self) -> str | None:
        """The tokenizer's template of a conversation; None: it has none."""
        return getattr(self.tokenizer, "chat_template", None) or None

    def prompts(self, texts: Sequence[str], longest: int, chat: bool) -> list[list[int]]:
        """Ids of texts that a causal model goes on with: BOS if its tokenizer adds one, and the text, of which the end
        is kept if there are more than `longest` ids.

        chat: each text is the user's turn in the tokenizer's chat template, up to where the answer begins; if there are
        too many ids, the text is cut and not the template. Raises `RequestError` for a tokenizer without template, for
        a template of `longest` ids or more, and as `encode` does.
        """
        bodies: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        if chat:
            if self.chat_template is None:
                raise RequestError(f"the tokenizer of {self.name} has no chat template: leave out task.chat")
            return self._within([self._turn(text, ids, longest) for text, ids in zip(texts, bodies, strict=True)])
        front = [] if self.added_start is None else [self.added_start]
        kept = longest - len(front)
        return self._within([[*front, *ids[max(0, len(ids) - kept) :]] for ids in bodies if ids])

    def _turn(self, text: str, ids: list[int], longest: int) -> list[int]:
        """Ids of a user's turn, at most `longest`. ids: of the text alone."""
        while True:
            turn = [{"role": "user", "content": text}]
            whole: list[int] = self.tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
            over = len(whole) - longest
            if over <= 0:
                return whole
            if over >= len(ids):
                raise RequestError(
                    f"the chat template of {self.name} fills prompt_tokens={longest}: raise it, or set task.chat=false"
                )
            ids = ids[over:]
            text = self.tokenizer.decode(ids)

    def _within(self, encoded: list[list[int]]) -> list[list[int]]:
        """The same ids. Raises `RequestError` for one without an embedding, as a token added by the user has."""
        rows = int(self.module.get_input_embeddings().num_embeddings)
        if beyond := next((token for ids in encoded for token in ids if token >= rows), None):
            raise RequestError(
                f"the tokenizer of {self.name} makes token {beyond} of the text, and the model has {rows} embeddings: "
                "resize them, or take the tokenizer that belongs to it"
            )
        return encoded

    def encode_outputs(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts as outputs of the model: its forced first token, the text, and an end token.

        Raises `RequestError` if the tokenizer cannot encode outputs: it has no end token, or another language or
        vocabulary than outputs have.
        """
        if not texts:
            return []
        if self.kind == "causal" and self.eos_ids:
            behind = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
            return [[*ids, self.eos_ids[0]] for ids in behind]
        if getattr(self.tokenizer, "tgt_lang", "") is None:
            raise RequestError(f"outputs of {self.name} are in one of several languages: name task.target_language")
        encoded = [until_end(ids, self.eos_ids) for ids in self.tokenizer(text_target=list(texts))["input_ids"]]
        config, forced = self.module.config, self.constraints.first
        framed = all(ids and ids[-1] in self.eos_ids and forced in (None, ids[0]) for ids in encoded)
        if not framed or getattr(config, "src_vocab_size", None) != getattr(config, "tgt_vocab_size", None):
            raise RequestError(
                f"the tokenizer of {self.name} does not encode texts as the model writes them (its first token, its "
                "end token or its vocabulary is another): gold outputs need a model whose tokenizer does"
            )
        return encoded

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens."""
        return str(
            self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        ).strip()


def _given(module: Any, tokenizer: Any, name: str) -> Any:
    """A token of the generation configuration, else of the model's, else of the tokenizer."""
    places = (getattr(module, "generation_config", None), module.config, tokenizer)
    return next((value for place in places if (value := getattr(place, name, None)) is not None), None)


def _start(module: Any, tokenizer: Any, kind: str, ends: tuple[int, ...], name: str) -> int:
    """The decoder's first input (encoder-decoder), or the token that begins a text (causal)."""
    begin = _given(module, tokenizer, "bos_token_id")
    first = _given(module, None, "decoder_start_token_id")
    candidates = (first, begin) if kind == "encoder-decoder" else (begin, *ends[:1])
    for token in candidates:
        if token is not None:
            return int(token)
    raise RequestError(f"the configuration of {name} names no start token; set decoder_start_token_id in it")


def _settings(config: Any) -> dict[str, Any]:
    """The configuration without names of files and versions."""
    left_out = {"_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"}
    return {name: repr(value) for name, value in sorted(config.to_dict().items()) if name not in left_out}
