"""Where a causal language model lies that is given by hub id or folder, or trained here."""

from __future__ import annotations

from harness.measure.artifacts import Cache
from harness.progress import Progress
from harness.text import Source
from tasks.models.lm.sizes import SIZES
from tasks.models.trained import TRAIN, size_to_train


def place_of(model: str, source: Source, cache: Cache, *, device: str, progress: Progress) -> tuple[str, str]:
    """Folder or hub id of a model, and its name in rows. `train:SIZE` is trained on the source's train split unless the
    cache has it. Raises `RequestError` for an unknown size, missing text or too little of it."""
    size = size_to_train(model, SIZES)
    if size is None:
        return model, model
    from tasks.models.lm.training import trained_model

    name = model.removeprefix(TRAIN)
    return str(trained_model(name, size, source, cache, device=device, progress=progress)), f"{model} on {source.name}"
