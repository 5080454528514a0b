"""The language model alone: the exact baseline of token scoring."""

from __future__ import annotations

from harness.contracts import LanguageModel, Phases, Shared, Streams, TokenScores, TokenScoring
from harness.plan.registry import method
from methods.bandwidth import counted


@method("lm", contract="token-scoring", summary="the language model alone")
class Lm(TokenScoring):
    """p_LM of every token. It requests no keys or statistics from the model, so nothing unused is computed."""

    def score(
        self, model: LanguageModel, streams: Streams, phases: Phases, shared: Shared | None = None
    ) -> list[TokenScores]:
        import numpy as np

        answers = []
        for stream in streams:
            with phases("lm"):
                parts = [block.log_prob.double().cpu().numpy() for block in model.encode(stream)]
            log_probs = np.concatenate(parts) if parts else np.empty(0)
            # no `searches`: a count of 0 would mean that all were saved
            answers.append(TokenScores(log_probs, {"tokens": len(log_probs), **counted(model, len(parts))}))
        return answers
