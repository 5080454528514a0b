"""Perplexity per token and per word, and the mean negative log-likelihood they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.common import statistics
from harness.contracts.tasks import Measure

if TYPE_CHECKING:
    from numpy.typing import NDArray


def perplexity(log_probs: Sequence[NDArray[np.float64]], words: int) -> dict[str, Measure]:
    """Metrics of natural-log probabilities, one array [T] per stream; `words` is the word count of all their text.

    nll: mean over tokens, nats. perplexity: exp(nll), per token, comparable only between models of one tokenizer.
    word_perplexity: exp(total nll / words), comparable between tokenizers. All intervals are that of the mean over
    blocks of tokens, with the number of words per token fixed.
    """
    values = np.concatenate([np.asarray(stream, np.float64) for stream in log_probs])
    per_word = len(values) / words
    statistic: dict[str, Callable[[Any], Any]] = {
        "perplexity": lambda mean: np.exp(-mean),
        "word_perplexity": lambda mean: np.exp(-mean * per_word),
        "nll": lambda mean: -mean,
    }
    interval = statistics.block_jackknife([values], lambda mean: mean)
    with np.errstate(over="ignore"):  # with a token of probability 0 the perplexity is infinite
        return {
            name: Measure.of(
                falls(values.mean()), (float(falls(interval[1])), float(falls(interval[0]))) if interval else None
            )
            for name, falls in statistic.items()
        }
