"""Suffix decoding (Oliaro et al., 2024): drafts from suffix trees over prompts and outputs. The trees are those of the
package arctic-inference; verification is that of all drafters here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from harness.common.errors import NotInstalledError
from harness.contracts import Phases
from harness.plan.registry import method
from methods.decoding.drafting.decoder import DraftingDecoder
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.search.decoder import Batch


class SuffixTreeDrafter(Drafter):
    """The package's cache of suffix trees, with one request for each output of a batch."""

    def __init__(self, prompts: Sequence[Sequence[int]], block: int, depth: int, factor: float, share: float) -> None:
        self._block, self._depth = block, depth
        self._options = {"max_spec_factor": factor, "min_token_prob": share}
        self._cache = _package().SuffixDecodingCache(max_tree_depth=depth)
        self._written = [list(prompt) for prompt in prompts]
        for number, prompt in enumerate(self._written):
            self._cache.start_request(number, prompt)

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        return [
            self._cache.speculate(
                number, self._written[number][-self._depth :], max_spec_tokens=min(count, self._block), **self._options
            ).token_ids
            if count > 0 else ()
            for number, count in zip(outputs, most, strict=True)
        ]  # fmt: skip

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self._written[output].extend(tokens)
        self._cache.add_active_response(output, list(tokens))


@method(
    "suffix-decoding",
    contract="sequence-decoding",
    baseline="greedy",
    needs=("causal",),
    summary="drafts from suffix trees over prompt and output by arctic-inference, verified at once",
)
class SuffixDecoding(DraftingDecoder):
    """The output equals that of greedy decoding. Each batch has its own suffix trees. The package would also keep the
    outputs of earlier requests, but here these would be outputs for the same prompts.

    block: longest draft, in tokens. depth: of the trees, which limits the match. factor: limit of the draft's length,
    in lengths of its match. share: least probability of a drafted token by the trees' counts. Defaults are the
    package's, except `block`, for which it has none.
    """

    block: Annotated[int, Field(ge=1)] = 32
    depth: Annotated[int, Field(ge=1)] = 64
    factor: Annotated[float, Field(gt=0)] = 1.0
    share: Annotated[float, Field(ge=0, le=1)] = 0.1

    def drafter(self, batch: Batch, phases: Phases) -> Drafter:
        with phases("draft"):
            return SuffixTreeDrafter(batch.encoded.sources, self.block, self.depth, self.factor, self.share)


def _package() -> Any:
    """The package. Raises `NotInstalledError` if it is not installed; other cells do not need it."""
    try:
        from arctic_inference import suffix_decoding
    except ImportError as error:
        raise NotInstalledError(
            "arctic-inference is not installed; on a machine without GPU, docs/decoding.md says how to build the part "
            "that drafts"
        ) from error
    return suffix_decoding
