"""The constraints of a model's generation configuration, which the decoders here honour like `generate` of
transformers; and `generate` itself on token ids, for methods and tasks that need what a user would call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.common.errors import RequestError

if TYPE_CHECKING:
    import torch

    from harness.contracts.models import GenerationModel

# Settings that would change outputs and are not honoured, with the values that have no effect. Settings of the search
# (sampling, beams and their length penalty) belong to methods and are not listed.
_NOT_HONOURED: dict[str, tuple[Any, ...]] = {
    "bad_words_ids": (None, []),  # of several tokens; single ones are suppressed
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1.0),
    "exponential_decay_length_penalty": (None,),
    "force_words_ids": (None, []),
    "guidance_scale": (None, 1, 1.0),
    "renormalize_logits": (None, False),  # beams would renormalise over the allowed tokens
    "repetition_penalty": (None, 1.0),
    "sequence_bias": (None, {}, []),
    "stop_strings": (None, []),
    "watermarking_config": (None,),
}


NOT_FINITE = (
    "the logits of {} are not finite numbers after {} tokens, as in float16 where a model overflows, or where its "
    "generation configuration forbids every token: decode it in bfloat16 or float32 (task.dtype)"
)


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints of a generation configuration, in the terms of `GenerationConfig` of transformers.

    suppressed: ids that are never generated: `suppress_tokens` and the one-token entries of `bad_words_ids` (Marian
    checkpoints forbid their padding token this way). begin_suppressed: ids that are not generated first.
    first: id forced after a sequence of one token (`forced_bos_token_id`). last: ids forced as the last token before
    the limit (`forced_eos_token_id`).
    longest, shortest: limits of a sequence, the start token or prompt included (`max_length`, `min_length`).
    longest_output, shortest_output: limits without it (`max_new_tokens`, `min_new_tokens`), which replace the former.
    ngram: length of n-grams that must not repeat (0: all may). ends: ids that end an output. ignored: settings that
    would change outputs and are not honoured.
    """

    suppressed: tuple[int, ...] = ()
    begin_suppressed: tuple[int, ...] = ()
    first: int | None = None
    last: tuple[int, ...] = ()
    longest: int | None = None
    longest_output: int | None = None
    shortest: int = 0
    shortest_output: int = 0
    ngram: int = 0
    ends: tuple[int, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def of(cls, module: Any, ends: Sequence[int]) -> Constraints:
        """The constraints of a module's generation configuration. ends: the ids that end an output of the model."""
        config = getattr(module, "generation_config", None)

        def given(name: str) -> Any:
            return getattr(config, name, None)

        words = given("bad_words_ids") or []
        single = [entry[0] for entry in words if len(entry) == 1]
        ignored = [name for name, harmless in _NOT_HONOURED.items() if given(name) not in harmless]
        if len(single) == len(words) and words:
            ignored.remove("bad_words_ids")
        return cls(
            suppressed=_ids([*single, *(given("suppress_tokens") or [])]),
            begin_suppressed=_ids(given("begin_suppress_tokens") or []),
            first=given("forced_bos_token_id"),
            last=_ids(given("forced_eos_token_id")),
            longest=given("max_length") if given("max_new_tokens") is None else None,  # as in `generate`
            longest_output=given("max_new_tokens"),
            shortest=0 if given("min_new_tokens") else given("min_length") or 0,
            shortest_output=given("min_new_tokens") or 0,
            ngram=given("no_repeat_ngram_size") or 0,
            ends=tuple(ends),
            ignored=tuple(ignored),
        )

    @property
    def by_position(self) -> bool:
        """Whether any constraint depends on the tokens before, besides the suppressed tokens."""
        return bool(
            self.begin_suppressed or self.first is not None or self.last or self.ngram
            or (self.ends and max(self.shortest, self.shortest_output))
        )  # fmt: skip

    def restrict(self, scores: torch.Tensor, written: Iterable[tuple[Sequence[int], Sequence[int], int]]) -> None:
        """Forbid and force the next tokens, in place. scores: logits or log-probabilities [n, V].

        written: for each row of the scores the prompt (the start token of an encoder-decoder model), the output so far,
        and the output's limit in tokens; read only if `by_position`. Forbidden tokens get `-inf`. A forced token gets 0
        and all others `-inf`. The order is that of `generate`.
        """
        if self.by_position:
            for row, (prompt, output, limit) in zip(scores, written, strict=True):
                self._restrict(row, prompt, output, limit)
        if self.suppressed:
            scores.index_fill_(1, _index(self.suppressed, scores.device), float("-inf"))

    def _restrict(self, row: torch.Tensor, prompt: Sequence[int], output: Sequence[int], limit: int) -> None:
        """One row [V]."""
        held = len(prompt) + len(output)
        banned: list[int] = []
        if self.ngram:
            banned = repeated(prompt, output, self.ngram)
        if held < self.shortest or len(output) < self.shortest_output:
            banned.extend(self.ends)
        if banned:
            row[banned] = float("-inf")
        forced = self.last if len(output) == limit - 1 else ()
        if not forced and self.first is not None and held == 1:
            forced = (self.first,)
        if forced:
            row.fill_(float("-inf"))
            row[list(forced)] = 0.0
        begin = 1 if self.first is not None and len(prompt) == 1 else 0  # a forced token does not count
        if self.begin_suppressed and len(output) == begin:
            row[list(self.begin_suppressed)] = float("-inf")

    def facts(self) -> dict[str, str]:
        """Facts for rows about the generation configuration: honoured settings, without suppressed tokens, and ignored
        settings."""
        given = {name: value for name, value in self.settings().items() if value is not None}
        given.pop("suppress_tokens", None)
        if self.longest is not None:
            given["max_length"] = self.longest
        if self.longest_output is not None:
            given["max_new_tokens"] = self.longest_output
        listed = {
            "generation_settings": ", ".join(f"{name} {value}" for name, value in given.items()),
            "ignored_generation_settings": ", ".join(self.ignored),
        }
        return {name: text for name, text in listed.items() if text}

    def settings(self) -> dict[str, Any]:
        """The constraints as arguments of `GenerationConfig`, except limits of new tokens (`maximum_new_tokens`)."""
        return {
            "suppress_tokens": list(self.suppressed) or None,
            "begin_suppress_tokens": list(self.begin_suppressed) or None,
            "forced_bos_token_id": self.first,
            "forced_eos_token_id": list(self.last) or None,
            "min_length": self.shortest or None,
            "min_new_tokens": self.shortest_output or None,
            "no_repeat_ngram_size": self.ngram or None,
        }


def repeated(prompt: Sequence[int], output: Sequence[int], size: int) -> list[int]:
    """Tokens that would make the last `size` tokens of prompt and output equal to an earlier n-gram of them."""
    text = [*prompt, *output]
    end = text[len(text) - size + 1 :]
    places = range(len(text) - size + 1)
    return [text[place + size - 1] for place in places if text[place : place + size - 1] == end]


def _ids(given: Any) -> tuple[int, ...]:
    """Sorted ids of one, of several, or of none."""
    several = given if isinstance(given, Iterable) else [] if given is None else [given]
    return tuple(sorted({int(token) for token in several}))


@lru_cache(maxsize=64)
def _index(ids: tuple[int, ...], device: torch.device) -> torch.Tensor:
    import torch

    return torch.tensor(ids, device=device)


def maximum_new_tokens(model: GenerationModel, source: Sequence[int], limit: int) -> int:
    """`limit`, or less if the model's window, `max_length` or `max_new_tokens` allows less. A causal model's window and
    `max_length` include the source."""
    prompt = max(len(source), 1) if model.kind == "causal" else 1
    # the last token of an output is never fed, so there may be one more than the window has left
    most = min(limit, model.window - prompt + 1)
    demands = Constraints.of(model.module, model.eos_ids)
    if demands.longest is not None:
        most = min(most, demands.longest - prompt)
    if demands.longest_output is not None:
        most = min(most, demands.longest_output)
    return max(most, 0)


def until_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Ids up to and including the first end token."""
    stop = next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids))
    return list(ids[:stop])


def generate(
    model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, *, streamer: Any = None,
    assistant: Any = None, **settings: Any,
) -> list[list[int]]:  # fmt: skip
    """Outputs of one padded batch, at most `limit` tokens each. assistant: a module that drafts. settings: of
    `GenerationConfig`.

    A causal model's sources are padded on the left, so that padding does not separate source and output; an empty one
    becomes the start token. Sources of an encoder-decoder model must have a token. Of the model's own generation
    configuration only `Constraints` apply. They count padding as text, so causal sources of a batch should be equally
    long. Raises `RequestError` if the last logits are not finite numbers: a check of every step would slow a peer.
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
    constraints = Constraints.of(model.module, model.eos_ids)
    config = GenerationConfig(
        max_new_tokens=limit,
        eos_token_id=list(model.eos_ids) or None,
        pad_token_id=pad,
        bos_token_id=model.start_id if causal else None,
        decoder_start_token_id=None if causal else model.start_id,
        **constraints.settings(),
        **{"do_sample": False, **settings},
    )

    module = model.module
    last: dict[str, torch.Tensor] = {}
    hook = module.register_forward_hook(lambda _, given, output: last.update(logits=output.logits))
    own, module.generation_config = module.generation_config, config  # None must not be filled from it
    try:
        with torch.inference_mode():
            answers = module.generate(
                torch.tensor(ids, device=model.device),
                attention_mask=torch.tensor(mask, device=model.device),
                generation_config=config,
                streamer=streamer,
                **({"assistant_model": assistant} if assistant is not None else {}),
            ).tolist()
    finally:
        module.generation_config = own
        hook.remove()
    if not bool(last["logits"][:, -1].amax(-1).isfinite().all()):
        raise RequestError(NOT_FINITE.format(model.name, len(answers[0]) - 1))
    first = longest if causal else 1
    return [until_end(answer[first : first + limit], model.eos_ids) for answer in answers]
