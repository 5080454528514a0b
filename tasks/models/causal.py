"""Causal language models as retrieval generation sees them, given by hub id or folder, or trained here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.artifacts import Cache
from harness.contracts import LanguageModel
from harness.progress import Progress
from tasks.models.from_scratch import SIZES, Size, trained_model
from tasks.models.language import CausalLM
from tasks.sources import Source

SERVING_SIZES: Mapping[str, Size] = {
    **SIZES,
    # room for a passage of 256 tokens, a question and 128 tokens of output
    "serving": Size(vocabulary=8192, layers=2, width=256, window=512, batch=4, steps=2000, learning_rate=2e-3),
    # the same, small enough that searching takes the share of the time that it has in the paper
    "serving-tiny": Size(vocabulary=8192, layers=2, width=128, window=512, batch=4, steps=2000, learning_rate=3e-3),
}


@dataclass(slots=True)
class CausalGeneration:
    """A `harness.contracts.GenerationModel` over the same weights as its `language_model`."""

    language_model: LanguageModel | None
    module: Any
    tokenizer: Any
    tokenizer_hash: str
    name: str
    hash: str
    start_id: int
    eos_ids: tuple[int, ...]
    vocabulary_size: int
    window: int
    device: str
    kind: Literal["encoder-decoder", "causal"] = "causal"

    @classmethod
    def of(cls, model: CausalLM) -> CausalGeneration:
        """The generation side of a language model; ends at the tokens that its generation settings name."""
        named = getattr(model.module.generation_config, "eos_token_id", None)
        named = model.tokenizer.eos_token_id if named is None else named
        ends = tuple(named) if isinstance(named, list | tuple) else () if named is None else (int(named),)
        return cls(
            model, model.module, model.tokenizer, model.tokenizer_hash, model.name, model.hash, model.start_id, ends,
            model.vocabulary_size, model.window, model.device,
        )  # fmt: skip


def load_causal(
    place: str, source: Source, cache: Cache, *, device: str, progress: Progress, window: int | None = None
) -> CausalGeneration:
    """A model by hub id or folder, or `train:SIZE`, trained on the source's train split (`SERVING_SIZES`)."""
    name = place
    if place.startswith("train:"):
        name = f"{place} on {source.name}"
        size = place.removeprefix("train:")
        place = str(trained_model(size, source, cache, device=device, progress=progress, sizes=SERVING_SIZES))
    return CausalGeneration.of(CausalLM.load(place, device=device, window=window, cache=cache, name=name))
