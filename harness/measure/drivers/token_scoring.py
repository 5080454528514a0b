"""How token scoring is driven."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common import statistics
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from harness.contracts import Phases, Shared, TokenScores
from harness.contracts.tasks import Measure
from harness.measure.drivers.driver import Demand, Driver, Essence, by_item, sums, thinned
from harness.measure.drivers.refusals import counted, probable
from harness.plan.registry import label

ABOVE_ONE = 1e-3  # by so much probabilities of one place may sum to more than 1, in float32 arithmetic
PIECES, LONGEST_PIECE, WORDS = 20, 32, 256  # streams and their tokens that are looked at, words that are scored


class TokenScoringDriver(Driver):
    """On the same tokens: the perplexity difference in perplexity points, method minus baseline, and the share in
    percent of the baseline's distance to the perplexity 1 that the method saves (Liu et al., 2024, Equation 2). One
    call scores all streams of a timed pass, so that a method's batches are as full as in use."""

    demands = (Demand("perplexity_difference", "at most", 0.5),)
    material = ("model", "reference", "validation")

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[TokenScores]:
        answers: list[TokenScores] = method.score(setting.model, items, phases, shared)
        counted(method, len(answers), len(items), "streams")
        for scores, stream in zip(answers, items, strict=True):
            counted(method, len(scores.log_probs), len(stream) - 1, "tokens of a stream")
            probable(method, scores.log_probs)
        return answers

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        return [[setting.timed[i] for i in items.tolist()]]

    def vary(self, given: Any) -> Any:
        return [np.delete(stream, len(stream) // 2) if len(stream) > 2 else stream for stream in given]

    def work(self, answers: Sequence[TokenScores]) -> float | None:
        lengths = {len(answer.log_probs) for answer in answers}
        return float(len(answers) * lengths.pop()) if len(lengths) == 1 else None

    def consistent(self, method: Any, setting: Any) -> None:
        """Refuse probabilities of one place that sum to more than 1 + 1e-3: the words that the model thinks likeliest
        at its surest place are scored there in turn."""
        if (streams := _continued(setting)) is None:
            return
        scores: list[TokenScores] = method.score(setting.model, streams, NoPhases())
        if (total := float(np.exp([one.log_probs[-1] for one in scores]).sum())) > 1 + ABOVE_ONE:
            raise RequestError(
                f"{label(method)} gives {len(scores)} words at one place probabilities that sum to {total:.4g}, more "
                "than 1"
            )

    def essence(self, answers: Sequence[TokenScores]) -> Essence:
        return {"log_probs": np.concatenate([a.log_probs for a in answers])}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        ours, theirs = method["log_probs"], baseline["log_probs"]
        block = min(256, max(1, len(ours) // 20))  # the timed calls score few tokens
        compared = {"perplexity_difference": _difference}
        if theirs.mean() < 0:
            compared["improvement_pct"] = _improvement
        return {
            name: Measure.of(
                by(ours.mean(), theirs.mean()), statistics.block_jackknife([ours, theirs], by, block)
            ) for name, by in compared.items()
        }  # fmt: skip

    def counters(self, answers: Sequence[TokenScores]) -> dict[str, float]:
        totals = sums([a.counters for a in answers])
        read = by_item(totals, len(answers))
        if totals.get("tokens") and "searches" in totals:
            totals["foss"] = 1 - totals["searches"] / totals["tokens"]
        return totals | read

    def series(self, answers: Sequence[TokenScores]) -> dict[str, list[float]]:
        names = dict.fromkeys(name for a in answers for name in a.series)
        return {name: thinned([float(v) for a in answers for v in a.series.get(name, ())]) for name in names}


def _continued(setting: Any) -> list[NDArray[np.int64]] | None:
    """Streams that differ in their last token: of the places in the first tokens of the evaluation, the surest one,
    with the likeliest words in turn. None where the model gives no distributions."""
    best: tuple[float, list[NDArray[np.int64]]] | None = None
    for stream in setting.evaluation[:PIECES]:
        piece = np.asarray(stream[:LONGEST_PIECE])
        for block in setting.model.encode(piece, statistics=True):
            row = int(block.entropy.argmin())
            if best is not None and float(block.entropy[row]) >= best[0]:
                continue
            rows = block.targets.new_tensor([row])
            words = block.log_distribution(rows)[0].topk(min(WORDS, setting.model.vocabulary_size)).indices
            prefix = piece[: block.start + row]
            best = float(block.entropy[row]), [np.append(prefix, word) for word in words.tolist()]
    return best[1] if best else None


def _difference(ours: Any, theirs: Any) -> Any:
    """Of perplexities, from mean log-probabilities."""
    return np.exp(-ours) - np.exp(-theirs)


def _improvement(ours: Any, theirs: Any) -> Any:
    """Percent of the distance to perplexity 1."""
    return 100 * (1 - (np.exp(-ours) - 1) / (np.exp(-theirs) - 1))
