"""The ∞-gram language model, mixed with a neural one (Liu et al., 2024, sections 2 and 5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, LanguageModel, Phases, Shared, Streams, TokenScores, TokenScoring
from harness.contracts.metrics import Metric
from harness.plan.registry import method
from methods.infinigram.answers import Scores
from methods.infinigram.engine import Engine
from methods.infinigram.forest import Forest
from methods.infinigram.indexed import index_reference, opened_reference, streams_hash
from methods.infinigram.mixing import LARGEST, best_lambda, log_probs, mixture

FOREST = "infinigram-forest"
SUFFIXES = 10  # suffix lengths in the features of a forest


@method(
    "infinigram-lm",
    contract="token-scoring",
    needs=("reference-text",),
    baseline="lm",
    summary="LM mixed with n-gram probabilities of unbounded n from a suffix array",
)
class InfinigramLm(TokenScoring):
    """p(w) = lambda p_inf(w) + (1 - lambda) p_LM(w), p_inf of the longest context that occurs in the reference text.

    longest: most tokens of a context; None: no limit; 4: a 5-gram LM with backoff; 0: unigrams.
    sparse: lambda if a single token follows the context in the reference text. other: lambda otherwise. Numbers, or
        `tuned` on the validation text.
    forest: lambda for each token by a random forest, trained on the validation text. Its features are the lengths and
        frequencies of the context's suffixes (section 5.4). `sparse` and `other` are then not used.
    seed: of the forest.
    """

    measures = (
        Metric("lambda_sparse", kind="counter"),
        Metric("lambda_other", kind="counter"),
        Metric("table_bytes", "tables that shorten searches", "bytes", "lower", "memory"),
        Metric("bytes_per_token", "bytes a token", "bytes", "lower", "memory"),
        Metric("entries", kind="counter"),
    )

    longest: Annotated[int, Field(ge=0)] | None = None
    sparse: Annotated[float, Field(ge=0, le=LARGEST)] | Literal["tuned"] = "tuned"
    other: Annotated[float, Field(ge=0, le=LARGEST)] | Literal["tuned"] = "tuned"
    forest: bool = False
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def random_fit(self) -> bool:
        return self.forest

    def fit(self, model: LanguageModel, reference: Streams, validation: Streams, artifacts: Artifacts) -> None:
        key = index_reference(artifacts, reference, model.vocabulary_size, model.tokenizer_hash)
        self._engine = opened_reference(artifacts, model.tokenizer_hash)
        wanted = {"sparse": self.sparse, "other": self.other}
        if self.forest or "tuned" in wanted.values():
            self._learn(
                model, validation, artifacts, {**key, "validation": streams_hash(validation), "model": model.hash}
            )
        else:
            artifacts.values.update(wanted)
        self.open(model, artifacts)

    def open(self, subject: LanguageModel, artifacts: Artifacts) -> None:
        self._engine = opened_reference(artifacts, subject.tokenizer_hash)
        self._forest: Forest | None = None
        if self.forest:
            self._forest = Forest.open(artifacts.path(FOREST))
        else:
            self._lambdas = float(artifacts.values["sparse"]), float(artifacts.values["other"])

    def counters(self) -> dict[str, float]:
        engine, tokens = self._engine, self._engine.count([])
        found = {
            "index_bytes": engine.bytes, "table_bytes": engine.table_bytes, "entries": tokens,
            "bytes_per_token": engine.bytes / max(tokens, 1),
        }  # fmt: skip
        if self.forest:
            return found
        return {**found, "lambda_sparse": self._lambdas[0], "lambda_other": self._lambdas[1]}

    def score(
        self, model: LanguageModel, streams: Streams, phases: Phases, shared: Shared | None = None
    ) -> list[TokenScores]:
        with phases("lm"):
            log_lm = [log_probs(model, stream) for stream in streams]
        with phases("search"):
            scores = self._engine.score_many(streams, self.longest)
        answers = []
        with phases("interpolate"):
            for stream, neural, found in zip(streams, log_lm, scores, strict=True):
                here = found.behind(1)  # a stream's first token is given, not predicted
                weights = self._weights(stream, here)
                mixed = np.log(mixture(np.exp(neural), here.probabilities, weights))
                series = {"effective_n": here.n, "sparse": here.sparse}
                answers.append(TokenScores(mixed, {"tokens": len(mixed)}, series))
        return answers

    def _weights(self, stream: NDArray[np.int64], scores: Scores) -> NDArray[np.float64]:
        """Lambda [T - 1] of each predicted token."""
        if self._forest is None:
            return np.where(scores.sparse, *self._lambdas)
        return self._forest(features(self._engine, stream, scores))

    def _learn(self, model: LanguageModel, validation: Streams, artifacts: Artifacts, key: dict[str, Any]) -> None:
        """The lambdas, or the forest."""
        given = {"longest": self.longest, **({"seed": self.seed} if self.forest else
                                             {"sparse": self.sparse, "other": self.other})}  # fmt: skip

        def fill(folder: Path) -> None:
            log_lm = np.concatenate([np.empty(0), *(log_probs(model, stream) for stream in validation)])
            parts = [found.behind(1) for found in self._engine.score_many(validation, self.longest)]
            if not len(log_lm):
                raise RequestError("no validation text to tune lambda on; give sparse and other as numbers")
            scores = Scores(*(np.concatenate([getattr(p, name) for p in parts]) for name in Scores.__slots__))
            if self.forest:
                known = [features(self._engine, *pair) for pair in zip(validation, parts, strict=True)]
                Forest.learned(np.concatenate(known), np.exp(log_lm), scores.probabilities, self.seed).save(folder)
                return
            found = {}
            for name, given, mask in (("sparse", self.sparse, scores.sparse), ("other", self.other, ~scores.sparse)):
                best = best_lambda(np.exp(log_lm[mask]), scores.probabilities[mask]) if given == "tuned" else given
                found[name] = best
            (folder / "lambdas.json").write_text(json.dumps(found))

        folder = artifacts.build(FOREST if self.forest else "infinigram-lambdas", {**key, **given}, fill)
        if not self.forest:
            artifacts.values.update(json.loads((folder / "lambdas.json").read_text()))


def features(engine: Engine, stream: NDArray[np.int64], scores: Scores) -> NDArray[np.float64]:
    """Features of a forest, [T - 1, 3 + `SUFFIXES`]: the effective n, the frequency of the context (log), whether the
    estimate is sparse, and the frequencies of the suffixes of 1, 2, ... tokens (log).

    Source: Liu et al., 2024, section 5.4 (suffix lengths and their frequencies).
    """
    suffixes = np.log1p(engine.suffix_counts(stream, SUFFIXES)[1:])
    columns = [scores.n.astype(np.float64), np.log1p(scores.context_counts), scores.sparse.astype(np.float64)]
    return np.concatenate([np.stack(columns, 1), suffixes], 1)
