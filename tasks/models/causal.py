"""Causal language models as retrieval generation sees them, given by hub id or folder, or trained here."""

from __future__ import annotations

from collections.abc import Mapping

from harness.errors import RequestError
from harness.measure.artifacts import Cache
from harness.progress import Progress
from tasks.models.from_scratch import Size, trained_model
from tasks.models.generation import TextGenerator
from tasks.models.language_sizes import SIZES
from tasks.sources import Source

SERVING_SIZES: Mapping[str, Size] = {
    **SIZES,
    # room for a passage of 256 tokens, a question and 128 tokens of output
    "serving": Size(vocabulary=8192, layers=2, width=256, window=512, batch=4, steps=2000, learning_rate=2e-3),
    # the same, small enough that searching takes the share of the time that it has in the paper
    "serving-tiny": Size(vocabulary=8192, layers=2, width=128, window=512, batch=4, steps=2000, learning_rate=3e-3),
    # the larger language model
    "serving-large": Size(vocabulary=8192, layers=4, width=512, window=512, batch=4, steps=2000, learning_rate=1e-3),
}


def load_causal(
    place: str,
    source: Source,
    cache: Cache,
    *,
    device: str,
    progress: Progress,
    window: int | None = None,
    dtype: str = "float32",
) -> TextGenerator:
    """A model by hub id or folder, or `train:SIZE`, trained on the source's train split (`SERVING_SIZES`).

    window: tokens of the longest sequence, by default what its positions allow. Raises `RequestError` as
    `TextGenerator.load` does, and for an encoder-decoder.
    """
    name = place
    if place.startswith("train:"):
        name = f"{place} on {source.name}"
        size = place.removeprefix("train:")
        place = str(trained_model(size, source, cache, sizes=SERVING_SIZES, device=device, progress=progress))
    model = TextGenerator.load(place, device=device, dtype=dtype, window=window, cache=cache, name=name)
    if model.kind != "causal":
        raise RequestError(f"the model {name} is an encoder-decoder; give a causal language model, such as gpt2")
    return model
