"""The words for what a method needs from a task and what a task provides."""

from __future__ import annotations

from collections.abc import Mapping

NEEDS: Mapping[str, str] = {
    "causal": "a causal model: `GenerationModel.kind` is `causal`",
    "encoder-decoder": "an encoder-decoder model: `GenerationModel.kind` is `encoder-decoder`",
    "passages": "passages of text to retrieve from, as the knowledge",
    "reference-text": "streams of token ids of reference text, to build a datastore or index from",
    "training-pairs": "pairs of source and target ids, to train a drafter on",
}
"""Word -> what it means. A method runs on the tasks of its contract that provide all that it needs."""
