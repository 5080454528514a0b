"""Locations of a model's files (a folder, or a hub id that is downloaded once), and hashes of their content.

Without torch: a worker process that opens a known model only reads two small files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from harness.common.cache import Cache
from harness.common.errors import RequestError, reason

_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm", "target.spm",
    "vocab.json", "target_vocab.json", "vocab-src.json", "vocab-tgt.json", "merges.txt", "vocab.txt",
)  # fmt: skip
_SPECIAL_TOKEN_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_SMALL_FILES = ["*.json", "*.txt", "*.model", "*.spm", "*.jinja"]


def locate(path_or_id: str) -> Path:
    """Folder that holds config, weights and tokenizer of a model given by local path or hub id.

    A hub model is downloaded at its first use (as safetensors if there are any) and never requested again.
    Raises `RequestError` when the folder is not a model or the hub does not have it.
    """
    folder = Path(path_or_id).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise RequestError(f"{folder} is not a model folder: config.json is missing; save it with save_pretrained")
        if not weight_files(folder):
            raise RequestError(f"{folder} has no *.safetensors or *.bin weights; save the model with save_pretrained")
        return folder
    if path_or_id.startswith(("/", ".", "~")) or path_or_id.count("/") > 1:
        raise RequestError(f"no model folder {folder}; give an existing folder, or a hub id such as gpt2")
    return _download(path_or_id)


def weight_files(folder: Path) -> list[Path]:
    """The weight files that `from_pretrained` reads; empty unless complete (for an interrupted download)."""
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        index = folder / f"{stem}.{suffix}.index.json"
        if index.exists():
            shards = [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
            if all(shard.exists() for shard in shards):
                return shards
        elif (folder / f"{stem}.{suffix}").exists():
            return [folder / f"{stem}.{suffix}"]
    return []


def weights_hash(folder: Path, cache: Cache | None = None) -> str:
    """SHA-256 (20 hex digits) over the content of the weight files.

    Reading gigabytes in each of a dozen processes would take minutes, so the hash is cached under the files' paths,
    sizes and modification times.
    """
    files = weight_files(folder)
    stamps = [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    return str((cache or Cache()).value("weights-hash", {"files": stamps}, lambda: _content_hash(files)))


def check_weights(folder: Path, expected: str, contexts: Path, cache: Cache) -> None:
    """Raise `RequestError` if a model's weights have changed since the contexts were made."""
    if weights_hash(folder, cache) != expected:
        raise RequestError(
            f"the model in {folder} is not the one whose contexts are in {contexts}; delete the latter to have them "
            "made again"
        )


def content(folder: Path, cache: Cache) -> dict[str, str]:
    """The identity of a model trained here: hashes of its weights and of the JSON files next to them (size, vocabulary,
    training)."""
    return {"weights": weights_hash(folder, cache), "files": _content_hash(sorted(folder.glob("*.json")))}


def tokenizer_hash(folder: Path) -> str:
    """SHA-256 (20 hex digits) over the tokenizer's vocabulary, merges, options and special tokens (which begin every
    stream); empty if the folder has no tokenizer."""
    files = [folder / name for name in _TOKENIZER_FILES if (folder / name).exists()]
    if not files:
        return ""
    # tokenizer.json contains vocabulary and merges; the older files next to it may or may not have been downloaded
    files = files[:1] if files[0].name == "tokenizer.json" else files
    return _content_hash([*files, *(folder / name for name in _SPECIAL_TOKEN_FILES if (folder / name).exists())])


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(hub_id, local_files_only=True))
        if (folder / "config.json").exists() and weight_files(folder):
            return folder
    except LocalEntryNotFoundError:
        pass
    except HFValidationError as error:
        raise RequestError(
            f"{hub_id!r} is neither a model folder nor a hub id: {type(error).__name__}: {reason(error)}"
        ) from error
    try:
        for weights in ("*.safetensors", "*.bin"):
            folder = Path(snapshot_download(hub_id, allow_patterns=[*_SMALL_FILES, weights]))
            if weight_files(folder):
                return folder
    except (OSError, HfHubHTTPError) as error:
        raise RequestError(
            f"the hub does not give the model {hub_id!r} ({type(error).__name__}: {reason(error)}); "
            "check the id and the network, or give a local folder"
        ) from error
    raise RequestError(f"the hub model {hub_id!r} has no safetensors or bin weights")


def _content_hash(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        with open(file, "rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()[:20]
