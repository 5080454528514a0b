"""Agreement of the ∞-gram estimate with text: the share of tokens to which it gives a probability above one half
(Liu et al., 2024, section 4)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common import statistics
from harness.common.counts import Counts
from harness.common.errors import RequestError
from harness.common.files import digest
from harness.common.generate import generate
from harness.common.progress import Progress
from harness.contracts import Artifacts, GenerationModel
from harness.contracts.metrics import Metric
from harness.contracts.tasks import DecodingSetting, Measure, TokenScoringSetting
from harness.plan.registry import analysis
from methods.infinigram.answers import Scores
from methods.infinigram.engine import Engine
from methods.infinigram.indexed import index_reference, opened_reference
from methods.infinigram.mixing import log_probs

FEWEST = 30  # fewest chosen tokens for which a share is given
AGREES = 0.5  # the estimate agrees with a token above this probability (section 4.1)
MEASURES = (
    Metric("agreement", "agreement with the token", better="higher"),
    Metric("share_of_tokens", "share of all tokens"),
    Metric("tokens", kind="counter"),
    Metric("mean_effective_n", "mean effective n"),
    Metric("median_effective_n", "median effective n"),
    Metric("n", "effective n"),
)
_ANY = "1+"


@dataclass(kw_only=True)
class TokenChoice:
    """The tokens that count.

    longest: most tokens of a context; None: no limit; 4: a 5-gram LM with backoff. n: range of the effective n (`2`,
    `3-4`, `5+`). context_count: range of the context's occurrences in the reference text. sparse: only tokens whose
    context is always followed by the same token.
    """

    longest: Annotated[int, Field(ge=0)] | None = None
    n: int | str = _ANY
    context_count: int | str = "0+"
    sparse: bool = False

    def __post_init__(self) -> None:
        self._n, self._context = Counts.parse(self.n, "n"), Counts.parse(self.context_count, "context_count")

    def chosen(self, scores: Scores) -> NDArray[np.bool_]:
        """Mask [T] of the tokens of a text that count."""
        found: NDArray[np.bool_] = np.array(
            [
                n in self._n and count in self._context
                for n, count in zip(scores.n.tolist(), scores.context_counts.tolist(), strict=True)
            ],
            np.bool_,
        )
        return found & scores.sparse if self.sparse else found

    def measured(self, scores: Sequence[Scores], chosen: Sequence[NDArray[np.bool_]]) -> dict[str, Measure]:
        """The measures of `agreement`, and the effective n of the chosen tokens: mean and median, or, if `n` was given,
        the mean as `n`."""
        found = agreement(scores, chosen)
        lengths = np.concatenate([one.n[wanted] for one, wanted in zip(scores, chosen, strict=True)])
        if len(lengths) and self.n == _ANY:
            found["mean_effective_n"] = Measure.of(lengths.mean(), None)
            found["median_effective_n"] = Measure.of(np.median(lengths), None)
        elif len(lengths):
            found["n"] = Measure.of(lengths.mean(), None)
        return found


def agreement(scores: Iterable[Scores], chosen: Iterable[NDArray[np.bool_]]) -> dict[str, Measure]:
    """Share of the chosen tokens that the estimate agrees with, their number and their share of all tokens. No
    agreement for fewer than `FEWEST` tokens. The interval of the agreement is over texts; that of the share of all
    tokens is Wilson's, which takes tokens as independent."""
    agreed, asked, every = [], [], 0
    for found, wanted in zip(scores, chosen, strict=True):
        agreed.append(float(((found.probabilities > AGREES) & wanted).sum()))
        asked.append(float(wanted.sum()))
        every += len(wanted)
    right, total = np.array(agreed), np.array(asked)
    counted = {
        "share_of_tokens": Measure.of(
            total.sum() / every if every else 0.0, statistics.wilson(float(total.sum()), every) if every else None
        ),
        "tokens": Measure.of(total.sum(), None),
    }
    if total.sum() < FEWEST:
        return counted
    interval = statistics.block_jackknife(
        [right[total > 0], total[total > 0]], lambda hits, among: hits / among, block=1
    )  # fmt: skip
    return {"agreement": Measure.of(right.sum() / total.sum(), interval), **counted}


@analysis("infinigram-agreement", summary="how often the ∞-gram estimate agrees with the tokens of held-out text")
class InfinigramAgreement(TokenChoice):
    """Human-written text (Figures 4, 5 and 14). lm: [low, high], only tokens whose probability under the neural LM is
    in [low, high), or in [low, 1]. The others: see `TokenChoice`."""

    measures = (*MEASURES, Metric("lm_probability", "neural LM's probability"))

    lm: list[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lm is not None and not (len(self.lm) == 2 and self.lm[0] < self.lm[1]):
            raise RequestError(f"lm = {self.lm}: give a lower bound and a larger upper bound, such as [0.2, 0.4]")

    def __call__(self, setting: TokenScoringSetting, artifacts: Artifacts, progress: Progress) -> dict[str, Measure]:
        """`agreement`, the chosen tokens' `share_of_tokens`, their number and effective n, and, if `lm` is given, their
        mean probability under the neural LM, `lm_probability`."""
        model = setting.model
        index_reference(artifacts, setting.reference, model.vocabulary_size, model.tokenizer_hash)
        engine = opened_reference(artifacts, model.tokenizer_hash)
        scores = [found.behind(1) for found in engine.score_many(list(setting.evaluation), self.longest)]
        chosen = [self.chosen(found) for found in scores]
        found: dict[str, Measure] = {}
        if self.lm is not None:
            low, high = self.lm
            read = progress.track(setting.evaluation, "reading", unit="texts")
            given = [np.exp(log_probs(model, stream)) for stream in read]
            inside = [(low <= p) & ((p < high) | (high >= 1)) for p in given]
            chosen = [wanted & among for wanted, among in zip(chosen, inside, strict=True)]
            every = np.concatenate([p[wanted] for p, wanted in zip(given, chosen, strict=True)])
            if len(every):
                found["lm_probability"] = Measure.of(every.mean(), None)
        return {**self.measured(scores, chosen), **found}


@analysis("infinigram-agreement-generated", summary="the same with what a language model writes")
class GeneratedAgreement(TokenChoice):
    """Machine-written text (Figure 6): the model's continuations of the task's prompts. search: the most probable
    token, one drawn from the model's probabilities, or one drawn from the most probable tokens with total probability
    `top_p`. The others: see `TokenChoice`."""

    measures = MEASURES

    search: Literal["greedy", "sampling", "nucleus"] = "greedy"
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.8
    seed: Annotated[int, Field(ge=0)] = 0

    def __call__(self, setting: DecodingSetting, artifacts: Artifacts, progress: Progress) -> dict[str, Measure]:
        """`agreement`, the chosen tokens' `share_of_tokens`, their number and effective n. Raises `RequestError` for a
        task without reference text or a model that is not causal."""
        model = setting.model
        if setting.reference is None or model.language_model is None:
            raise RequestError(
                "infinigram-agreement-generated needs a causal model and reference text; use causal-generation"
            )
        tokenizer = model.language_model.tokenizer_hash
        index_reference(artifacts, setting.reference(), model.vocabulary_size, tokenizer)
        engine: Engine = opened_reference(artifacts, tokenizer)
        prompts = [list(prompt) for prompt in setting.evaluation]
        key = {"model": model.hash, "prompts": digest(prompts), "limit": setting.limit, "search": self.search,
               **({"top_p": self.top_p} if self.search == "nucleus" else {}),
               **({"seed": self.seed} if self.search != "greedy" else {})}  # fmt: skip

        def write(folder: Path) -> None:
            every = enumerate(progress.track(prompts, "the model writes", unit="prompts"))
            texts = [self._written(model, prompt, setting.limit, number) for number, prompt in every]
            (folder / "texts.json").write_text(json.dumps(texts))

        outputs = json.loads((artifacts.build("generated-text", key, write) / "texts.json").read_text())
        texts = [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)]
        found = engine.score_many(texts, self.longest)
        scores = [one.behind(len(prompt)) for one, prompt in zip(found, prompts, strict=True)]
        return self.measured(scores, [self.chosen(one) for one in scores])

    def _written(self, model: GenerationModel, prompt: Sequence[int], limit: int, number: int) -> list[int]:
        import torch

        settings: dict[str, Any] = {}
        if self.search != "greedy":
            settings = {"do_sample": True, "top_k": 0, "top_p": self.top_p if self.search == "nucleus" else 1.0}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]))
            return generate(model, [prompt], limit, **settings)[0]
