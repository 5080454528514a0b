"""Adaptive retrieval, AdaptRet (He et al., 2021, section 4; a baseline of Alon et al., 2022)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, LanguageModel, Phases, Streams
from harness.plan.registry import method
from methods.knnlm.gate import Gate
from methods.knnlm.ngrams import ARTIFACT as NGRAMS
from methods.knnlm.ngrams import NgramStatistics, ngram_statistics
from methods.knnlm.positions import Positions
from methods.knnlm.scorer import Choice, KnnLm, Text, confidence


@method(
    "adaptret",
    contract="token-scoring",
    needs=("reference-text",),
    baseline="lm",
    summary="kNN-LM that leaves out the searches for which a network predicts the lowest lambda",
)
class AdaptRet(KnnLm):
    """A network predicts lambda before a search. Its features are the context's key, the LM's confidence, and for the
    last one to four words their frequency in the reference text and their number of distinct successors there. Tokens
    with the lowest lambda are left to the LM; the others are mixed with the predicted lambda.

    foss: fraction of tokens left out. The threshold is set on validation tokens that the network was not trained on, so
        the fraction of another text differs a little. penalty: cost of lambda in training (nats at lambda = 1).
    The others: see `KnnLm`. A `lambda` is used only to tune the temperature.
    """

    penalty: Annotated[float, Field(ge=0)] = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lambda_ == "dynamic":
            raise RequestError("adaptret learns lambda before a search: leave lambda as it is, or use knnlm")

    @property
    def learns(self) -> bool:
        return True

    def fit(self, model: LanguageModel, reference: Streams, validation: Streams, artifacts: Artifacts) -> None:
        ngram_statistics(artifacts, reference)
        self._ngrams = NgramStatistics(artifacts.path(NGRAMS))
        super().fit(model, reference, validation, artifacts)

    def open(self, subject: LanguageModel, artifacts: Artifacts) -> None:
        super().open(subject, artifacts)
        self._ngrams = NgramStatistics(artifacts.path(NGRAMS))

    def choice(self, text: Text, phases: Phases) -> Choice:
        expects = self.gate
        assert expects is not None
        with phases("choose"):
            before, threshold = [self._ngrams.features(stream) for stream in text.streams], self._threshold(expects)
            lambdas = text.lambdas = np.zeros(len(text.targets))

        def promising(number: int, block: Positions) -> NDArray[np.bool_]:
            with phases("choose"):
                expected = expects(_features(block, before[number]))
                start = text.spans[number][0] + block.start
                lambdas[start : start + len(block)] = expected
                chosen: NDArray[np.bool_] = expected > threshold
                return chosen

        return promising

    def _threshold(self, expects: Gate) -> float:
        """The lambda below which a fraction `foss` of the held-out tokens lies."""
        if self.foss in (0.0, 1.0):
            return -np.inf if self.foss == 0.0 else np.inf
        return float(np.quantile(expects.held_out, self.foss))

    def gate_key(self) -> dict[str, Any]:
        return {**super().gate_key(), "penalty": self.penalty}

    def learn_gate(self, model: LanguageModel, validation: Streams, artifacts: Artifacts) -> Gate:
        before = [self._ngrams.features(stream) for stream in validation]

        def looks(number: int, block: Positions, *_: Any) -> NDArray[np.float32]:
            return _features(block, before[number])

        return self._learned(model, validation, artifacts, looks, self.penalty)


def _features(block: Positions, before: NDArray[np.float32]) -> NDArray[np.float32]:
    """Features [t, d + 10] of positions before a search."""
    here = before[block.start : block.start + len(block)]
    return np.concatenate([confidence(block), here, block.queries], 1)
