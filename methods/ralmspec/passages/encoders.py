"""Text to vectors for the dense retrievers: latent semantic analysis fitted on the passages, or a trained encoder.

`lsa` (Deerwester et al., 1990) needs only the passages: TF-IDF with sublinear term frequencies, reduced by a truncated
SVD. It is for machines without a checkpoint. The paper's encoder is DPR, given by hub id or folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.common.bandwidth import weights_of
from harness.common.errors import RequestError
from harness.common.progress import Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

TERM = r"(?u)\b\w\w+\b"
TERMS = 50_000  # vocabulary of lsa
CHUNK = 4096  # passages turned into vectors at once
LONGEST = 256  # tokens that a trained encoder reads


class Encoder(ABC):
    """Turns text into float32 vectors that are compared by inner product. bytes: of the weights that a query reads,
    without tables of words."""

    bytes = 0

    @abstractmethod
    def query(self, text: str) -> NDArray[np.float32]:
        """Vector [d] of a query; zeros if it has no known word."""

    @abstractmethod
    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors [n, d]."""


class LatentSemantic(Encoder):
    """An opened `lsa` encoder. The weights are multiplied here: a query of 32 words takes 30 microseconds, against a
    millisecond through scikit-learn's transformers."""

    def __init__(self, folder: Path) -> None:
        terms: list[str] = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
        self.terms = {term: number for number, term in enumerate(terms)}
        self.idf = np.load(folder / "idf.npy")
        self.components = np.load(folder / "components.npy")  # float32 [terms, d]
        self._split = re.compile(TERM).findall

    def query(self, text: str) -> NDArray[np.float32]:
        counts = Counter(self.terms[word] for word in self._split(text.lower()) if word in self.terms)
        if not counts:
            return np.zeros(self.components.shape[1], np.float32)
        rows = np.fromiter(counts.keys(), np.int64)
        weights = (1 + np.log(np.fromiter(counts.values(), np.float32))) * self.idf[rows]
        return _unit(weights.astype(np.float32) @ self.components[rows])

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self.query(text) for text in texts])


class Pretrained(Encoder):
    """A transformers encoder by hub id or folder, on the CPU. Vectors are DPR's pooled output, else the mean of the
    last hidden states."""

    def __init__(self, place: str) -> None:
        """Raises `RequestError` when there is no such model."""
        import transformers

        try:
            config = transformers.AutoConfig.from_pretrained(place)
            named = (config.architectures or [""])[0]
            loader = getattr(transformers, named) if named.startswith("DPR") else transformers.AutoModel
            self.module: Any = loader.from_pretrained(place).eval()
            self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(place)
        except (OSError, ValueError, AttributeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            raise RequestError(f"{place} cannot be loaded as an encoder ({reason}); give a folder, or lsa") from error
        weights = weights_of(self)
        self.bytes = weights.each_pass if weights else 0

    def query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.passages([text])[0]
        return vector

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import torch

        batch = self.tokenizer(list(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
        with torch.no_grad():
            output = self.module(**batch)
        pooled = getattr(output, "pooler_output", None) if hasattr(self.module.config, "projection_dim") else None
        if pooled is None:
            mask = batch["attention_mask"][..., None]
            pooled = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
        vectors: NDArray[np.float32] = pooled.float().numpy()
        return vectors


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


def encode_passages(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float16]:
    """Vectors float16 [N, d + 1] of all passages, all of the same length.

    The last column, 0 in a query, extends each to the length of the longest. The nearest vector is then the one with
    the largest inner product (Bachrach et al., 2014, section 3). lsa's vectors need the column too: their lengths are
    1 only up to rounding, and 0 for a passage without a known word.

    Raises `RequestError` for a vector that float16 cannot hold.
    """
    progress = Progress()
    parts = []
    for start in range(0, len(texts), CHUNK):
        parts.append(encoder.passages(texts[start : start + CHUNK]).astype(np.float16))
        progress.update("passage vectors", min(start + CHUNK, len(texts)), len(texts), "passages")
    squares = [np.square(part, dtype=np.float64).sum(1) for part in parts]
    # a length that float16 holds exactly, so that the largest fill, that of a vector of zeros, is not rounded
    length = np.nextafter(np.float16(max(float(square.max()) for square in squares) ** 0.5), np.float16(np.inf))
    if not np.isfinite(length):
        raise RequestError("a passage's vector exceeds float16 or holds NaN; choose another encoder")
    filled = (np.sqrt(np.float64(length) ** 2 - square).astype(np.float16) for square in squares)
    return np.concatenate([np.column_stack([part, fill]) for part, fill in zip(parts, filled, strict=True)])


def identity(place: str) -> str:
    """A trained encoder's content: hex SHA-256 (20 characters) of a folder's files, or the commit of a hub id.

    Raises `RequestError` when the encoder cannot be loaded.
    """
    folder = Path(place)
    if not folder.is_dir():
        return str(getattr(Pretrained(place).module.config, "_commit_hash", "") or "")
    state = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        state.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            state.update(hashlib.file_digest(file, "sha256").digest())
    return state.hexdigest()[:20]


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit
