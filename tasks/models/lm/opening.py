"""Causal language models given by hub id or folder, or trained here: as token scoring and as generation see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import RequestError
from harness.measure.artifacts import Cache
from harness.progress import Progress
from harness.text import Source
from tasks.models.lm.sizes import SIZES
from tasks.models.trained import TRAIN, size_to_train

if TYPE_CHECKING:
    from tasks.models.pretrained.generation import TextGenerator
    from tasks.models.pretrained.language import CausalLM


def place_of(model: str, source: Source, cache: Cache, *, device: str, progress: Progress) -> tuple[str, str]:
    """Folder or hub id of a model, and its name in rows. `train:SIZE` is trained on the source's train split unless the
    cache has it. Raises `RequestError` for an unknown size, missing text or too little of it."""
    size = size_to_train(model, SIZES)
    if size is None:
        return model, model
    from tasks.models.lm.training import trained_model

    name = model.removeprefix(TRAIN)
    return str(trained_model(name, size, source, cache, device=device, progress=progress)), f"{model} on {source.name}"


def load_language_model(
    model: str,
    source: Source,
    cache: Cache,
    *,
    device: str,
    progress: Progress,
    window: int | None = None,
    stride: int | None = None,
    dtype: str = "float32",
) -> CausalLM:
    """A model as token scoring sees it, by `place_of`. Raises `RequestError` as `CausalLM.load` does."""
    from tasks.models.pretrained.language import CausalLM

    place, name = place_of(model, source, cache, device=device, progress=progress)
    return CausalLM.load(place, device=device, window=window, stride=stride, dtype=dtype, cache=cache, name=name)


def load_generator(
    model: str,
    source: Source,
    cache: Cache,
    *,
    device: str,
    progress: Progress,
    window: int | None = None,
    dtype: str = "float32",
) -> TextGenerator:
    """A model as retrieval generation sees it, by `place_of`.

    window: tokens of the longest sequence, by default what its positions allow. Raises `RequestError` as
    `TextGenerator.load` does, and for an encoder-decoder.
    """
    from tasks.models.pretrained.generation import TextGenerator

    place, name = place_of(model, source, cache, device=device, progress=progress)
    generator = TextGenerator.load(place, device=device, dtype=dtype, window=window, cache=cache, name=name)
    if generator.kind != "causal":
        raise RequestError(f"the model {name} is an encoder-decoder; give a causal language model, such as gpt2")
    return generator
