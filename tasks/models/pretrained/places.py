"""Finding a model: its folder in the hub's layout, whatever it is given by, and what a row says of its origin.

Without torch, unless a GGUF file is converted.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.common.cache import Cache
from harness.common.checkpoints import ADAPTER, CHECKPOINTS, INSTALL, place, sha256
from harness.common.errors import RequestError
from tasks.models.pretrained.checkpoints import locate, tokenizer_hash, weights_hash
from tasks.models.pretrained.gguf import FACTS, converted

_ADAPTER = "adapter_config.json"
_TOKENIZER_FILES = ["*token*", "vocab*", "merges.txt", "*.model", "*.spm", "*.jinja", "generation_config.json"]


@dataclass(frozen=True, slots=True)
class Found:
    """folder: config, weights, tokenizer. gguf: the file that they were read from, if any. facts: for rows; none for a
    model that was trained here, whose folder is in the cache."""

    folder: Path
    gguf: Path | None
    facts: dict[str, str]


def find(model: str, cache: Cache | None = None) -> Found:
    """The model that a hub id, a folder, a GGUF file, `package:NAME` or a name of `CHECKPOINTS` stands for.

    A hub model is downloaded and a GGUF file converted at the first use. Raises `RequestError` when there is no such
    model, and for an adapter; as `place` and `converted` do for a package and a GGUF file.
    """
    cache = cache or Cache()
    found = place(model, cache)
    gguf = Path(found.at) if found.at.lower().endswith(".gguf") else None
    if gguf:
        content = sha256(gguf, cache)
        folder = converted(gguf, content, cache)
        stated = json.loads((folder / FACTS).read_text())
        entry = found.checkpoint or next((one for one in CHECKPOINTS.values() if one.sha256 == content), None)
        precision = f"{stated['type']}, dequantised to float32"
        licence = entry.licence if entry else stated["licence"]
        facts = {"source": found.source, "sha256": content, "stored_as": precision, "licence": licence}
        return Found(folder, gguf, facts)
    try:
        folder = Path(found.at) if (Path(found.at) / _ADAPTER).exists() else locate(found.at)
    except RequestError as error:
        entry = CHECKPOINTS.get(model)
        if entry is None or found.at != entry.hub:
            raise
        package = f"the package {entry.package} is not installed ({INSTALL})" if entry.package else "no package has it"
        raise RequestError(
            f"no model {model}: no models/{model}*.gguf nor models/{model} under HARNESS_DATA; {package}; {error}"
        ) from error
    if (folder / _ADAPTER).exists():
        raise RequestError(ADAPTER.format(found.at))
    if found.source.startswith("folder ") and folder.resolve().is_relative_to(cache.root.resolve()):
        return Found(folder, None, {})
    whole = (folder / "tokenizer_config.json").exists() and tokenizer_hash(folder)
    if found.source.startswith("hub ") and not whole:  # as where another program fetched the weights alone
        from huggingface_hub import snapshot_download

        with suppress(OSError):  # no network: whatever needs the tokenizer will say so
            snapshot_download(found.at, revision=folder.name, allow_patterns=_TOKENIZER_FILES)  # into the same folder
    facts = {"source": found.source, "weights": weights_hash(folder, cache)}
    return Found(folder, None, facts | ({"licence": found.checkpoint.licence} if found.checkpoint else {}))
