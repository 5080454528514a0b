"""Perplexity per token and per word, bits per byte, and the mean negative log-likelihood they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common import statistics
from harness.contracts.tasks import Measure


def perplexity(log_probs: Sequence[NDArray[np.float64]], words: int, size: int) -> dict[str, Measure]:
    """Metrics of natural-log probabilities, one array [T] per stream. words, size: number of words and of UTF-8 bytes
    of all their text; a metric per word or per byte is left out if the number is 0.

    nll: mean over tokens, nats. perplexity: exp(nll), per token, comparable only between models of one tokenizer.
    word_perplexity: exp(total nll / words), comparable between tokenizers. bits_per_byte: total nll / (bytes x ln 2),
    comparable between tokenizers in any script. All intervals are that of the mean over blocks of tokens, with the
    number of words and bytes per token fixed.
    """
    values = np.concatenate([np.asarray(stream, np.float64) for stream in log_probs])
    statistic: dict[str, Callable[[Any], Any]] = {"perplexity": lambda mean: np.exp(-mean), "nll": lambda mean: -mean}
    if words:
        statistic["word_perplexity"] = lambda mean: np.exp(-mean * len(values) / words)
    if size:
        statistic["bits_per_byte"] = lambda mean: -mean * len(values) / (size * np.log(2))
    interval = statistics.block_jackknife([values], lambda mean: mean)
    with np.errstate(over="ignore"):  # with a token of probability 0 the perplexity is infinite
        return {
            name: Measure.of(
                falls(values.mean()), (float(falls(interval[1])), float(falls(interval[0]))) if interval else None
            )
            for name, falls in statistic.items()
        }
