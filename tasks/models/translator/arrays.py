"""Arrays of a trained translator for the translation tasks: contexts, layer, and contexts of the exact beam search.

They are folders in the cache, which timing processes open without torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.cache import Cache
from harness.common.progress import Progress
from harness.contracts import TopK
from tasks.data.parallel import Pair, ParallelSource
from tasks.data.sentences import Vocabulary
from tasks.models.beam_search import Search
from tasks.models.contexts import write_contexts, write_layer
from tasks.models.pretrained.checkpoints import weights_hash
from tasks.models.records import training_record
from tasks.models.translator.decoding import full_softmax, translate
from tasks.models.translator.model import Pairs, decoder_states, load_translator, mean_loss


def encoded(pairs: Sequence[Pair], left: Vocabulary, right: Vocabulary) -> list[tuple[list[int], list[int]]]:
    """Ids of sentence pairs."""
    return [(left.ids(source), right.ids(target)) for source, target in pairs]


def write_states(
    folder: Path, model_folder: Path, parallel: ParallelSource, contexts: int, cache: Cache, device: str, progress: Any
) -> None:
    """Write teacher-forced decoder states (contexts float32 [n, d]) and their next words, for the training pairs (the
    first whole pairs, at most `contexts` states) and the test pairs; the layer; facts.json."""
    model, *types = load_translator(model_folder, device)
    left, right = map(Vocabulary, types)
    test = encoded(parallel.pairs("test"), left, right)
    train = _leading(encoded(parallel.pairs("train"), left, right), contexts)
    for prefix, pairs, text in (("", train, "training"), ("test_", test, "test")):
        ends = np.cumsum([len(target) + 1 for _, target in pairs])
        found = decoder_states(model, pairs, progress, f"decoder states of the {text} pairs")
        blocks = ((slice(ends[n] - len(words), ends[n]), states, words) for n, states, words in found)
        write_contexts(folder, prefix, (int(ends[-1]), model.output.in_features), blocks)
    write_layer(
        folder,
        model.output,
        source_types=len(left),
        training_contexts=int(sum(len(target) + 1 for _, target in train)),
        test_sentences=len(test),
        test_perplexity=math.exp(mean_loss(model, test)),
        training=training_record(model_folder),
        model_hash=weights_hash(model_folder, cache),
    )


def translations(model_folder: Path, sources: Sequence[str], search: Search, device: str, progress: Any) -> list[str]:
    """Translations of the sources by beam search with the exact softmax."""
    model, types, target_types = load_translator(model_folder, device)
    left, right = Vocabulary(types), Vocabulary(target_types)
    ids = [left.ids(source) for source in sources]
    found = translate(model, ids, full_softmax(model), search, progress=progress, stage="exact beam search")
    return [right.text(hypothesis.words) for hypothesis in found]


def write_visited(
    folder: Path, model_folder: Path, sources: Sequence[str], search: Search, timed: int, seed: int,
    device: str, progress: Any,
) -> None:  # fmt: skip
    """Write visited.npy, float32 [<= timed, d]: the contexts that this search gives to the softmax, in its order,
    sentence by sentence, beginning at one drawn with the seed."""
    model, types, _ = load_translator(model_folder, device)
    left, exact = Vocabulary(types), full_softmax(model)
    ids = [left.ids(source) for source in sources]
    visited: list[NDArray[np.float32]] = []

    def watched(context: NDArray[np.float32], k: int) -> TopK:
        visited.append(context.copy())
        return exact(context, k)

    first = int(np.random.default_rng(seed).integers(len(ids)))
    for sentence in [*ids[first:], *ids[:first]]:
        if len(visited) >= timed:
            break
        translate(model, [sentence], watched, search, progress=Progress(quiet=True), stage="")
        progress.update("contexts of the exact search", min(len(visited), timed), timed, "contexts")
    np.save(folder / "visited.npy", np.stack(visited[:timed]))


def _leading(pairs: Pairs, contexts: int) -> Pairs:
    """The first pairs whose targets have at most `contexts` words in total, including end marks; at least one pair."""
    total = np.cumsum([len(target) + 1 for _, target in pairs])
    return pairs[: max(1, int(np.searchsorted(total, contexts, side="right")))]
