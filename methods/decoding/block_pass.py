"""What a pass over a block of tokens costs: verifying k drafted tokens gains only where it takes less than k steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import Artifacts
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.metrics import Metric
from harness.contracts.ratios import Ratio
from harness.contracts.tasks import DecodingSetting
from harness.plan.registry import analysis
from methods.decoding.engine.engines import shared_engine
from methods.decoding.search.best import best_of_rows
from methods.decoding.search.decoder import EngineOptions

if TYPE_CHECKING:
    from methods.decoding.engine.session import Session

Given = tuple["Session", list[int]]
BACK = 32  # tokens before a prompt's end at which blocks begin


@analysis("block-pass", summary="time of a pass over several tokens, in steps of one token")
class BlockPass(EngineOptions, TimedAnalysis):
    """Tokens in one pass (the method) and one by one (the baseline), each with the logits after it, as drafts are
    verified. An item is an evaluation prompt. The block begins 32 tokens before the prompt's end, or `tokens` before it
    if that is more; what precedes it is in the cache. So blocks of up to 32 tokens are compared on the same prompts. Of
    an encoder-decoder the block is the beginning of the source.

    tokens: of a block. prompts: of a timed pass. engine: see `EngineOptions`.
    """

    measures = (
        Metric("pass_ms", "a pass", "ms", "lower", "time"),
        Metric("step_ms", "a step of one token", "ms", "lower", "time"),
        Metric("pass_in_steps", "a pass in steps", better="lower", kind="time"),
    )

    tokens: Annotated[int, Field(ge=1)] = 8
    prompts: Annotated[int, Field(ge=1)] = 4

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        return {
            "pass_ms": Ratio({"method": 1e3}, per={"items": 1}),
            "step_ms": Ratio({"baseline": 1e3}, per={"items": self.tokens}),
            "pass_in_steps": Ratio({"method": self.tokens}, per={"baseline": 1}, equal=self.tokens),
        }

    def fit(self, setting: DecodingSetting, artifacts: Artifacts, progress: Progress) -> None:
        """Raises `RequestError` if no prompt is long enough, for a source that the decoder cannot read, and for what
        `shared_engine` refuses."""
        self.open(setting, artifacts)
        if not self._sources:
            lower = ", or lower tokens" if self._back == self.tokens else ""
            raise RequestError(f"no prompt has more than {self._back} tokens; give longer prompts{lower}")
        vocabulary = self._session(self._sources[0])[0].vocabulary
        if max(map(max, self._sources)) >= vocabulary:
            raise RequestError(f"a source has ids that the decoder of {setting.model.name} does not know")
        if self._engine.weights is not None:
            read = self._engine.weights.each_pass
            artifacts.values.update(bytes_read=read, baseline_bytes_read=read * self.tokens)

    def open(self, setting: DecodingSetting, artifacts: Artifacts) -> None:
        self._engine, self._causal = shared_engine(setting.model, self.engine), setting.model.kind == "causal"
        self._sources = [list(source) for source in setting.evaluation if len(source) > self._back]

    @property
    def _back(self) -> int:
        """Tokens of a prompt that are not in the cache."""
        return max(self.tokens, BACK) if self._causal else self.tokens

    def items(self) -> tuple[int, int]:
        return len(self._sources), self.prompts

    def inputs(self, items: NDArray[Any]) -> list[Given]:
        """Sessions with the prompt in their cache, and the block that follows."""
        return [self._session(self._sources[item]) for item in items.tolist()]

    def _session(self, source: list[int]) -> Given:
        import torch

        size, begin = self.tokens, len(source) - self._back
        prompt, block = (source[:begin], source[begin : begin + size]) if self._causal else (source, source[:size])
        with torch.inference_mode():
            session = self._engine.start([prompt], [size + 1])
            session.advance(session.first, last=True)
        return session, block

    def baseline(self, given: Given) -> list[int]:
        session, block = given
        return self._words(session, [[token] for token in block])

    def method(self, given: Given) -> list[int]:
        session, block = given
        return self._words(session, [block])

    def _words(self, session: Session, parts: list[list[int]]) -> list[int]:
        """The best word after each token; the session is left as it was."""
        import torch

        length, words = session.lengths[0], []
        with torch.inference_mode():
            for part in parts:
                chosen = best_of_rows(session.logits(session.advance([part])), 1)
                words += [chosen(row)[1][0] for row in range(len(part))]
        session.lengths[0] = length
        return words

    def answers(self, call: list[int]) -> list[Sequence[int]]:
        """Each word alone: one that rounding decides does not count for the whole block."""
        return [[word] for word in call]
