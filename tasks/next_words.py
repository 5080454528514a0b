"""Next words of a text by a model's output layer: what all softmax-screening tasks over hidden states have in common.

A prepared setting is a folder of arrays in the cache (`ARRAYS` and `facts.json`), and opening it needs no torch. How it
came about, and how the model that it belongs to is found again, is the subclass's matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.contracts import OutputLayer, SoftmaxScreening, TopK
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Measure, SoftmaxSetting, Task
from harness.errors import RequestError
from harness.measure import statistics
from harness.progress import Progress
from tasks.metrics.accuracy import MEASURES, accuracy
from tasks.models.curves import as_facts, validation_curve

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOGETHER = 256  # contexts of one product
# contexts float32 [n, d], targets int64 [n] of the training text; the same of the test text; the layer float32
ARRAYS = ("contexts", "targets", "test_contexts", "test_targets", "weight", "bias")


class NextWords(Task):
    """`evaluation`: test contexts of the quality pass, drawn with `seed`; `timed`: contexts of one timed pass, taken
    from all test contexts, which stand in the order of the text, for contexts of one text follow each other in use too.
    `batch`: contexts asked at a time. `perplexity`: ask the method for the probability of every true next word as well,
    and time that instead of the top-k (L2S, Table 5); it goes with a batch of 1 only."""

    contract = "softmax-screening"
    measures = (
        *MEASURES,
        Metric("model_perplexity", "perplexity of the model", better="lower"),
        Metric("coverage", better="higher"),
        Metric("perplexity", better="lower"),
    )

    def __init__(
        self, *, contexts: int, evaluation: int, timed: int, k: int, batch: int, perplexity: bool, seed: int
    ) -> None:
        given = {"contexts": contexts, "evaluation": evaluation, "timed": timed, "k": k, "batch": batch}
        for name, value in given.items():
            if value < 1:
                raise RequestError(f"{name} must be positive, given {value}")
        if seed < 0:
            raise RequestError(f"seed must not be negative, given {seed}")
        if perplexity and batch > 1:
            raise RequestError(
                f"perplexity asks for one probability at a time, given batch={batch}; drop one of the two"
            )
        self.contexts, self.evaluation, self.timed = contexts, evaluation, timed
        self.k, self.batch, self.perplexity, self.seed = k, batch, perplexity, seed

    def setting(
        self, folder: Path, data: str, hashes: dict[str, str], between: Callable[[], Callable[[], object]]
    ) -> SoftmaxSetting:
        """The setting of a prepared folder. data: what a row should call the text; hashes: of the text by content;
        between: opens the model, as `SoftmaxSetting` has it."""
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
        facts = json.loads((folder / "facts.json").read_text())
        test, targets = arrays["test_contexts"], arrays["test_targets"]
        chosen = np.sort(np.random.default_rng(self.seed).permutation(len(test))[: self.evaluation])
        return SoftmaxSetting(
            layer=OutputLayer(np.array(arrays["weight"]), np.array(arrays["bias"])),
            contexts=arrays["contexts"],
            targets=arrays["targets"],
            evaluation=np.array(test[chosen]),
            evaluation_targets=np.array(targets[chosen]),
            timed=np.asarray(test),
            timed_targets=np.asarray(targets) if self.perplexity else None,
            sample=min(self.timed, len(test)),
            between=between,
            k=self.k,
            batch=self.batch,
            hashes={**hashes, "model": facts.pop("model_hash")},
            facts={"data": data, "evaluated": len(chosen), **facts, **as_facts(facts)},
        )

    def metrics(self, setting: SoftmaxSetting, answers: Sequence[TopK]) -> dict[str, Measure]:
        """Share of test positions whose true next word is the first of, or among, the words answered, and the
        perplexity of the model itself on the test text."""
        found = accuracy(answers, setting.evaluation_targets, setting.k)
        return {**found, "model_perplexity": Measure(setting.facts["test_perplexity"])}

    def series(self, setting: SoftmaxSetting, answers: Sequence[TopK]) -> dict[str, list[float]]:
        """Held-out perplexity of the model by epoch of its training, where that is known."""
        curve = validation_curve(setting.facts)
        return {"model_validation_perplexity": curve} if curve else {}

    def evaluate(self, setting: SoftmaxSetting, method: SoftmaxScreening) -> dict[str, Measure]:
        """`coverage`, the share of true next words that the method gives a probability, and where that is 1
        `perplexity` (per word) and `perplexity_ratio`, that to the exact layer's; only with the parameter `perplexity`.
        """
        if not self.perplexity:
            return {}
        pairs = zip(setting.evaluation, setting.evaluation_targets, strict=True)
        tracked = Progress().track(pairs, "perplexity of the screened softmax", len(setting.evaluation), "words")
        log_probs = np.asarray([method.log_prob(context, int(target)) for context, target in tracked])
        covered = np.isfinite(log_probs)
        measures = {"coverage": Measure(float(covered.mean()))}
        if covered.all():
            low, high = statistics.block_bootstrap([log_probs], lambda mean: np.exp(-mean)) or (None, None)
            measures["perplexity"] = Measure(float(np.exp(-log_probs.mean())), low, high)
            exact = exact_log_probs(setting.layer, setting.evaluation, setting.evaluation_targets)
            interval = statistics.block_bootstrap([log_probs, exact], lambda ours, theirs: np.exp(theirs - ours))
            low, high = interval or (None, None)
            measures["perplexity_ratio"] = Measure(float(np.exp(exact.mean() - log_probs.mean())), low, high)
        return measures


def exact_log_probs(
    layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Natural-log probabilities float64 [n] of targets [n] after contexts [n, d] under the whole layer."""
    result = np.empty(len(contexts))
    for start in range(0, len(contexts), TOGETHER):
        logits = contexts[start : start + TOGETHER] @ layer.weight.T + layer.bias
        peak = logits.max(axis=1)
        true = logits[np.arange(len(logits)), targets[start : start + TOGETHER]]
        total = np.exp(logits - peak[:, None]).sum(axis=1, dtype=np.float64)
        result[start : start + len(logits)] = true - peak - np.log(total)
    return result
