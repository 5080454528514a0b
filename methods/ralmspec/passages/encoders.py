"""Text to vectors for the dense retrievers: latent semantic analysis fitted on the passages, or a trained encoder.

`lsa` (Deerwester et al., 1990) needs only the passages: TF-IDF with sublinear term frequencies, reduced by a truncated
SVD. It is for machines without a checkpoint. The paper's encoder is DPR.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.common.cache import Cache
from harness.common.checkpoints import ADAPTER, place
from harness.common.documents import word_pattern
from harness.common.errors import RequestError, reason
from harness.common.files import write_atomically
from harness.common.progress import Progress
from harness.common.training.precision import fast_precision

TERM = word_pattern(r"\W", least=2)
TERMS = 50_000  # vocabulary of lsa
CHUNK = 256  # passages whose vectors are written at once
PADDED = 65536  # vectors of padding drawn at once
BATCH = 32  # passages that an encoder reads at once
VECTORS = "vectors.npy"
NUMBERS = fast_precision("cpu") or torch.float32  # of trained encoders
OTHER_FORMATS = ["*.onnx", "*.onnx_data", "openvino/*", "*.h5", "*.msgpack", "*.ot", "*.gguf"]  # of a hub model


class LatentSemantic:
    """An opened `lsa` encoder. The weights are multiplied here: a query of 32 words takes 30 microseconds, against a
    millisecond through scikit-learn's transformers."""

    bytes = 0

    def __init__(self, folder: Path) -> None:
        terms: list[str] = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
        self.terms = {term: number for number, term in enumerate(terms)}
        self.idf = np.load(folder / "idf.npy")
        self.components = np.load(folder / "components.npy")  # float32 [terms, d]
        self._split = re.compile(TERM).findall

    def query(self, text: str) -> NDArray[np.float32]:
        """Vector [d] of a query; zeros if it has no known word."""
        counts = Counter(self.terms[word] for word in self._split(text.lower()) if word in self.terms)
        if not counts:
            return np.zeros(self.components.shape[1], np.float32)
        rows = np.fromiter(counts.keys(), np.int64)
        weights = (1 + np.log(np.fromiter(counts.values(), np.float32))) * self.idf[rows]
        return _unit(weights.astype(np.float32) @ self.components[rows])

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors [n, d]."""
        return np.stack([self.query(text) for text in texts])


class Pretrained:
    """A model of sentence-transformers on the CPU, given as models are (`harness.common.checkpoints`), with the
    pooling, normalisation, prompts and further modules that its files name. The first module, the transformer, computes
    in bfloat16 where the processor multiplies it, the others in float32: MiniLM then encodes passages 2.8 times as
    fast, with cosines of at least 0.9998 to the vectors of float32. bytes: of the weights that a query reads, without
    tables of words."""

    def __init__(self, name: str) -> None:
        """Raises `RequestError` when there is no such model, or for one that sentence-transformers cannot read."""
        from sentence_transformers import SentenceTransformer

        try:
            self.model = SentenceTransformer(str(located(name)), device="cpu", model_kwargs={"dtype": torch.float32})
            self.model[0].register_forward_hook(_in_float32)
            for weight in self.model[0].parameters():  # not the buffers: angles of rotary positions stay exact
                weight.data = weight.data.to(NUMBERS)
            self.query("a")
        except (AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
            why = f"{name} cannot be loaded as an encoder ({reason(error)})"
            raise RequestError(f"{why}; give a model of sentence-transformers, or lsa") from error
        embedding = torch.nn.Embedding | torch.nn.EmbeddingBag
        tables = {part.weight for part in self.model.modules() if isinstance(part, embedding)}
        self.bytes = sum(weight.nbytes for weight in {*self.model.parameters()} - tables)

    def query(self, text: str) -> NDArray[np.float32]:
        """Vector [d]."""
        return np.asarray(self.model.encode_query(text, show_progress_bar=False), np.float32)

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors [n, d]."""
        found = self.model.encode_document(list(texts), batch_size=BATCH, show_progress_bar=False)
        return np.asarray(found, np.float32)


def _in_float32(module: torch.nn.Module, arguments: Any, states: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.float() if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in states.items()
    }


Encoder = LatentSemantic | Pretrained  # text to float32 vectors that are compared by inner product


def fit_latent_semantic(folder: Path, texts: Sequence[str], dimension: int, sample: int, seed: int) -> None:
    """Fit on at most `sample` passages drawn by seed and write the folder that `LatentSemantic` opens.

    Raises `RequestError` when the passages hold no term.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    progress = Progress()
    if len(texts) > sample:
        chosen = np.sort(np.random.default_rng(seed).choice(len(texts), sample, replace=False))
        texts = [texts[i] for i in chosen]
    progress.update("encoder", 0, None, "passages", f"terms of {len(texts):,} passages")
    vectorizer = TfidfVectorizer(
        token_pattern=TERM,
        sublinear_tf=True,
        max_features=TERMS,
        min_df=2 if len(texts) > 1000 else 1,
        dtype=np.float32,
    )
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError as error:
        raise RequestError(f"no passage holds a word to search by ({error}); give other passages") from error
    width = min(dimension, matrix.shape[0], matrix.shape[1])
    progress.update("encoder", 0, None, "passages", f"{width} dimensions of {matrix.shape[1]:,} terms")
    if width < matrix.shape[1]:
        reduction = TruncatedSVD(width, random_state=seed, n_iter=4).fit(matrix)
        components = np.ascontiguousarray(reduction.components_.T, np.float32)
    else:
        components = np.eye(width, dtype=np.float32)
    (folder / "terms.json").write_text(json.dumps(vectorizer.get_feature_names_out().tolist()), encoding="utf-8")
    np.save(folder / "idf.npy", vectorizer.idf_.astype(np.float32))
    np.save(folder / "components.npy", components)


def encode_passages(folder: Path, encoder: Encoder, texts: Sequence[str]) -> None:
    """Write the vectors float16 [N, d + 1] of all passages to `vectors.npy`, all of the same length.

    They are written chunk by chunk; if an earlier call was interrupted, its chunks in the folder are kept. The last
    column, 0 in a query, extends each to the length of the longest. The nearest vector is then the one with the largest
    inner product (Bachrach et al., 2014, section 3). lsa's vectors need the column too: their lengths are 1 only up to
    rounding, and 0 for a passage without a known word.

    Raises `RequestError` for a vector that float16 cannot hold.
    """
    if (folder / VECTORS).exists():  # interrupted while the chunks were removed
        _remove_chunks(folder)
        return
    progress = Progress()
    starts = range(0, len(texts), CHUNK)
    files = [folder / f"part-{start}.npy" for start in starts]
    for start, file in zip(starts, files, strict=True):
        if not file.exists():
            with io.BytesIO() as buffer:
                np.save(buffer, encoder.passages(texts[start : start + CHUNK]).astype(np.float16))
                write_atomically(file, buffer.getvalue())
        progress.update("passage vectors", min(start + CHUNK, len(texts)), len(texts), "passages")
    squares = [np.square(np.load(file), dtype=np.float64).sum(1) for file in files]
    # a length that float16 holds exactly, so that the largest fill, that of a vector of zeros, is not rounded
    length = np.nextafter(np.float16(max(float(square.max()) for square in squares) ** 0.5), np.float16(np.inf))
    if not np.isfinite(length):
        raise RequestError("a passage's vector exceeds float16 or holds NaN; choose another encoder")
    shape = len(texts), np.load(files[0], mmap_mode="r").shape[1] + 1
    whole = np.lib.format.open_memmap(folder / "whole.npy", "w+", np.float16, shape)
    for start, file, square in zip(starts, files, squares, strict=True):
        rows = whole[start : start + CHUNK]
        rows[:, :-1], rows[:, -1] = np.load(file), np.sqrt(np.float64(length) ** 2 - square)
    whole.flush()
    (folder / "whole.npy").replace(folder / VECTORS)
    _remove_chunks(folder)


def pad_vectors(folder: Path, vectors: NDArray[np.float16], padding: int, seed: int) -> None:
    """Write vectors [N, d + 1] of `encode_passages`, and after them random ones of the same length. Without the last
    column they are half as long, so their inner products with a query are small."""
    count, width = vectors.shape
    length = np.linalg.norm(vectors[0].astype(np.float64))
    rng, progress = np.random.default_rng(seed), Progress()
    whole = np.lib.format.open_memmap(folder / VECTORS, "w+", np.float16, (count + padding, width))
    whole[:count] = vectors
    for start in range(count, count + padding, PADDED):
        rows = whole[start : start + PADDED]
        drawn = _unit(rng.standard_normal((len(rows), width - 1), np.float32)) * np.float32(length / 2)
        rows[:, :-1], rows[:, -1] = drawn, length * 0.75**0.5
        progress.update("padding", start - count + len(rows), padding, "vectors")
    whole.flush()


def _remove_chunks(folder: Path) -> None:
    for file in folder.glob("part-*.npy"):
        file.unlink()


def located(name: str) -> Path:
    """A trained encoder's folder. A hub model is downloaded at its first use; one in the layout of
    sentence-transformers is not asked for again.

    Raises `RequestError` for an adapter, and for a model that the hub does not give.
    """
    at = place(name, Cache()).at
    try:
        folder = Path(at) if Path(at).exists() else _snapshot(at)
    except (OSError, ValueError) as error:
        raise RequestError(f"{name} cannot be loaded as an encoder ({reason(error)}); give a folder, or lsa") from error
    if (folder / "adapter_config.json").exists():
        raise RequestError(ADAPTER.format(name))
    return folder


def _snapshot(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with suppress(LocalEntryNotFoundError):
        folder = Path(snapshot_download(hub_id, ignore_patterns=OTHER_FORMATS, local_files_only=True))
        if (folder / "modules.json").exists():  # else another program may have fetched a part of it
            return folder
    return Path(snapshot_download(hub_id, ignore_patterns=OTHER_FORMATS))


def identity(name: str) -> str:
    """Of what decides a trained encoder's vectors: hex SHA-256 (20 characters) of its folder's files and of the version
    of sentence-transformers. Raises as `located` does."""
    folder, state = located(name), hashlib.sha256(version("sentence-transformers").encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "key.json"):
        state.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            state.update(hashlib.file_digest(file, "sha256").digest())
    return state.hexdigest()[:20]


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit
