"""Next words by a model's output layer: the base of all softmax-screening tasks.

A prepared setting is a folder of arrays in the cache (`tasks.models.contexts`), which is opened without torch. Each
task decides how the folder is made and how its model is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common import statistics
from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import OutputLayer, SoftmaxScreening, TopK
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Measure, SoftmaxSetting, Task
from tasks.bases.parameters import NotNegative, Positive
from tasks.metrics.accuracy import MEASURES, accuracy
from tasks.models.contexts import read_contexts
from tasks.models.records import as_facts, validation_curve

TOGETHER = 256  # contexts of one product
IMPOSSIBLE = -200.0  # nats; the probability is 0 in float32


@dataclass(kw_only=True, eq=False)
class NextWordTask(Task):
    """Parameters of all such tasks. contexts: most training contexts. evaluation: test contexts of the quality pass,
    drawn with `seed`. timed: contexts of one timed pass. k: words per answer."""

    contexts: Positive = 400_000
    evaluation: Positive = 20_000
    timed: Positive = 2000
    k: Positive = 5
    seed: NotNegative = 0

    def common(self, arrays: dict[str, NDArray[Any]], timed: NDArray[np.float32]) -> dict[str, Any]:
        """Fields of a `SoftmaxSetting` that are the same for all tasks. timed: all contexts that may be timed."""
        test, targets = arrays["test_contexts"], arrays["test_targets"]
        chosen = self.drawn(len(test))
        return {
            "layer": OutputLayer(np.array(arrays["weight"]), np.array(arrays["bias"])),
            "contexts": arrays["contexts"],
            "targets": arrays["targets"],
            "evaluation": np.array(test[chosen]),
            "evaluation_targets": np.array(targets[chosen]),
            "timed": timed,
            "sample": min(self.timed, len(timed)),
            "k": self.k,
        }

    def drawn(self, contexts: int) -> NDArray[np.int64]:
        """Which of so many test contexts the quality pass takes: int64, ascending."""
        return np.sort(np.random.default_rng(self.seed).permutation(contexts)[: self.evaluation])

    def metrics(self, setting: SoftmaxSetting, answers: Sequence[TopK]) -> dict[str, Measure]:
        """Share of test positions whose true next word is the first of the words answered, or any of them."""
        return accuracy(answers, setting.evaluation_targets, setting.k)

    def series(self, setting: SoftmaxSetting, answers: Sequence[TopK]) -> dict[str, list[float]]:
        """Held-out perplexity of the model by epoch of its training, if known."""
        curve = validation_curve(setting.facts)
        return {"model_validation_perplexity": curve} if curve else {}


@dataclass(kw_only=True, eq=False)
class LanguageModelTask(NextWordTask):
    """Next words of a text by a language model.

    Parameters: those of `NextWordTask`, and batch: contexts per call. perplexity: also ask the method for the
    probability of every true next word, and time that instead of the top-k (L2S, Table 5); only with a batch of 1.
    Timed contexts are taken from all test contexts, in the order of the text, as in real use. entropy: [low, high] in
    nats; only test contexts whose next word has an entropy of at least `low` and below `high` under the exact layer,
    which then do not follow each other.
    """

    measures = (
        *MEASURES,
        Metric("model_perplexity", "perplexity of the model", better="lower"),
        Metric("coverage", better="higher"),
        Metric("perplexity", better="lower"),
        Metric("entropy", "entropy of the next word (nats)"),
    )

    batch: Positive = 1
    perplexity: bool = False
    entropy: list[float] | None = None

    def __post_init__(self) -> None:
        if self.entropy is not None and not (len(self.entropy) == 2 and self.entropy[0] < self.entropy[1]):
            raise RequestError(f"entropy={self.entropy}: give a lower and a larger upper bound in nats, such as [0, 1]")
        if self.perplexity and self.batch > 1:
            raise RequestError(
                f"perplexity asks for one probability at a time, given batch={self.batch}; drop one of the two"
            )

    def setting(
        self, folder: Path, cache: Cache, data: str, hashes: dict[str, str], between: Callable[[], Callable[[], object]]
    ) -> SoftmaxSetting:
        """The setting of a prepared folder. data: the text's name in rows; hashes: of the text's content; between: see
        `SoftmaxSetting`. Raises `RequestError` when no context has an entropy that is asked for."""
        arrays, facts = read_contexts(folder)
        if self.entropy is not None:
            low, high = self.entropy

            def write(target: Path) -> None:
                layer = OutputLayer(np.array(arrays["weight"]), np.array(arrays["bias"]))
                np.save(target / "entropies.npy", entropies(layer, arrays["test_contexts"]))

            found = np.load(cache.build("output-layer-entropies", {"contexts": folder.name}, write) / "entropies.npy")
            inside = (low <= found) & (found < high)
            if not inside.any():
                raise RequestError(
                    f"no test context's next word has an entropy in [{low:g}, {high:g}) nats; "
                    f"they have {found.min():.2f} to {found.max():.2f}"
                )
            arrays |= {name: arrays[name][inside] for name in ("test_contexts", "test_targets")}
            facts["entropy"] = float(found[inside][self.drawn(int(inside.sum()))].mean())
        common = self.common(arrays, np.asarray(arrays["test_contexts"]))
        return SoftmaxSetting(
            **common,
            timed_targets=np.asarray(arrays["test_targets"]) if self.perplexity else None,
            between=between,
            batch=self.batch,
            hashes={**hashes, "model": facts.pop("model_hash")},
            facts={"data": data, "evaluated": len(common["evaluation"]), **facts, **as_facts(facts)},
        )

    def metrics(self, setting: SoftmaxSetting, answers: Sequence[TopK]) -> dict[str, Measure]:
        """The accuracy of the answers, the perplexity of the model itself on the whole test text, and, of contexts
        chosen by `entropy`, its mean."""
        found = super().metrics(setting, answers) | {"model_perplexity": Measure(setting.facts["test_perplexity"])}
        if self.entropy is not None:
            found["entropy"] = Measure(setting.facts["entropy"])
        return found

    def evaluate(self, setting: SoftmaxSetting, method: SoftmaxScreening) -> dict[str, Measure]:
        """`coverage`, the share of true next words to which the method gives a probability, and, if that is 1,
        `perplexity` (per word) and `perplexity_ratio`, its ratio to the exact layer's. Only with the parameter
        `perplexity`.
        """
        if not self.perplexity:
            return {}
        pairs = zip(setting.evaluation, setting.evaluation_targets, strict=True)
        tracked = Progress().track(pairs, "perplexity of the screened softmax", len(setting.evaluation), "words")
        log_probs = np.asarray([method.log_prob(context, int(target)) for context, target in tracked])
        covered = np.isfinite(log_probs)
        measures = {"coverage": Measure.of(covered.mean(), statistics.share_interval(covered))}
        if covered.all():
            interval = statistics.block_jackknife([log_probs], lambda mean: np.exp(-mean))
            measures["perplexity"] = Measure.of(np.exp(-log_probs.mean()), interval)
            exact = exact_log_probs(setting.layer, setting.evaluation, setting.evaluation_targets)
            interval = statistics.block_jackknife([log_probs, exact], lambda ours, theirs: np.exp(theirs - ours))
            measures["perplexity_ratio"] = Measure.of(np.exp(exact.mean() - log_probs.mean()), interval)
        return measures


def exact_log_probs(
    layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Natural-log probabilities float64 [n] of targets [n] after contexts [n, d] under the whole layer."""
    result = np.empty(len(contexts))
    for rows, logits, log_totals in _in_parts(layer, contexts):
        result[rows] = logits[np.arange(len(logits)), targets[rows]] - log_totals
    return result


def entropies(layer: OutputLayer, contexts: NDArray[np.float32]) -> NDArray[np.float64]:
    """Entropies float64 [n], in nats, of the next word after contexts [n, d] under the whole layer."""
    result = np.empty(len(contexts))
    for rows, logits, log_totals in _in_parts(layer, contexts):
        log_probs = np.clip(logits - log_totals[:, None].astype(np.float32), IMPOSSIBLE, 0)  # rounded, it may be above
        result[rows] = -(np.exp(log_probs) * log_probs).sum(axis=1, dtype=np.float64)
    return result


def _in_parts(
    layer: OutputLayer, contexts: NDArray[np.float32]
) -> Iterator[tuple[slice, NDArray[np.float32], NDArray[np.float64]]]:
    """Rows of contexts, their logits float32 [m, L], and the log of the sum of their exponentials, float64 [m]."""
    for start in range(0, len(contexts), TOGETHER):
        rows = slice(start, start + TOGETHER)
        logits = contexts[rows] @ layer.weight.T + layer.bias
        peak = logits.max(axis=1)
        yield rows, logits, peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1, dtype=np.float64))
