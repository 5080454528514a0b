"""Corpus BLEU and chrF by sacrebleu, with intervals over sentences.

BLEU is a function of counts summed over sentences. So its interval, and that of the difference of two systems on the
same sentences, is that of these counts over sentences (`harness.common.statistics.block_jackknife`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF

from harness.common import statistics
from harness.common.errors import RequestError, reason
from harness.contracts.tasks import Measure

_ORDERS = 4
_TOKENIZERS = {
    "zh": {"zh", "zho", "chi", "cmn", "yue", "wuu"},
    "ja-mecab": {"ja", "jpn"},
    "ko-mecab": {"ko", "kor"},
    "char": {"th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz", "dzo"},
}


def bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Measure:
    """Corpus BLEU (0-100) of detokenised sentences against one reference each, with its interval. language: as for
    `tokenizer`, as in all functions here."""
    value = _of(language).corpus_score(list(hypotheses), [list(references)]).score
    return Measure.of(value, _interval(_columns(hypotheses, references, language), len(hypotheses)))


def bleu_of_tokens(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> Measure:
    """Corpus BLEU (0-100) of tokens in lower case against several references each, with its interval.

    references[i] holds the references of sentence i; all sentences have the same number.
    """
    texts = [" ".join(tokens) for tokens in hypotheses]
    wanted = [[" ".join(tokens) for tokens in several] for several in references]
    value = _of_tokens().corpus_score(texts, [list(stream) for stream in zip(*wanted, strict=True)]).score
    return Measure.of(value, _interval(_counts(_of_tokens(effective_order=True), texts, wanted), len(texts)))


def bleu_difference(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str], language: str
) -> Measure:
    """BLEU of the hypotheses minus BLEU of the baseline's, with the interval over paired sentences."""
    ours, theirs = (_of(language).corpus_score(list(h), [list(references)]).score for h in (hypotheses, baseline))
    columns = [*_columns(hypotheses, references, language), *_columns(baseline, references, language)]
    size, half = len(hypotheses), len(columns) // 2
    interval = statistics.block_jackknife(columns, lambda *m: _score(size, m[:half]) - _score(size, m[half:]), block=1)
    return Measure.of(ours - theirs, interval)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Measure:
    """Corpus chrF2 (0-100)."""
    return Measure(float(CHRF().corpus_score(list(hypotheses), [list(references)]).score))


def signature(language: str) -> str:
    """sacrebleu's signature for one reference, quoted with a score to make it comparable."""
    return _signature(_of(language), 1)


def signature_of_tokens(references: int) -> str:
    """The signature of `bleu_of_tokens` for this number of references."""
    return _signature(_of_tokens(), references)


def tokenizer(language: str) -> str:
    """sacrebleu's tokenizer of a target language (`zh`, `zh-CN`, `zho_Hans`, `ja`, ...): its own choice of Chinese,
    Japanese and Korean, characters for other scripts without blanks between words, else `13a`."""
    code = re.split("[-_]", language.lower())[0]
    return next((name for name, codes in _TOKENIZERS.items() if code in codes), "13a")


def _of(language: str, *, effective_order: bool = False) -> Any:
    """Raises `RequestError` if the tokenizer needs a package that is not installed."""
    try:
        return BLEU(tokenize=tokenizer(language), effective_order=effective_order)
    except RuntimeError as error:
        extra = tokenizer(language).partition("-")[0]
        why = reason(error).rstrip(".")
        raise RequestError(f"BLEU of {language}: {why}; install it: pip install 'sacrebleu[{extra}]'") from error


def _of_tokens(*, effective_order: bool = False) -> Any:
    return BLEU(lowercase=True, tokenize="none", effective_order=effective_order)


def _signature(metric: Any, references: int) -> str:
    metric.corpus_score(["a"], [["a"]] * references)  # a metric gets its number of references at its first use
    return str(metric.get_signature())


def _interval(columns: Sequence[NDArray[np.float64]], sentences: int) -> tuple[float, float] | None:
    return statistics.block_jackknife(columns, lambda *m: _score(sentences, m), block=1)


def _columns(hypotheses: Sequence[str], references: Sequence[str], language: str) -> list[NDArray[np.float64]]:
    return _counts(_of(language, effective_order=True), hypotheses, [[reference] for reference in references])


def _counts(
    metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[NDArray[np.float64]]:  # fmt: skip
    """Per sentence: lengths of hypothesis and reference, matches and n-grams of each order; ten columns [n]."""
    rows = []
    for hypothesis, several in zip(hypotheses, references, strict=True):
        found = metric.sentence_score(hypothesis, several)
        rows.append([found.sys_len, found.ref_len, *found.counts, *found.totals])
    return list(np.asarray(rows, np.float64).reshape(-1, 2 + 2 * _ORDERS).T)


def _score(sentences: int, means: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """BLEU (0-100) from the number of sentences and the means of their `_columns`, smoothed as in sacrebleu: the j-th
    order without a match counts as a match of 1 / 2^j (only in sets of a few sentences)."""
    system, reference = sentences * means[0], sentences * means[1]
    matches, totals = (sentences * np.stack(part) for part in (means[2 : 2 + _ORDERS], means[2 + _ORDERS :]))
    none = matches < 0.5
    smoothed = np.where(none, 0.5 ** np.cumsum(none, axis=0), matches)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.exp(np.log(smoothed / totals).mean(axis=0))
        score = 100 * np.minimum(1.0, np.exp(1 - reference / system)) * precision
    return np.where((totals > 0.5).all(axis=0) & ~none.all(axis=0), score, 0.0)
