"""The output layer of any causal language model as a softmax-screening task (beyond L2S's paper: GPT-2's 50k words).

Contexts are the last hidden states of the model's windows over training and test text, as in token scoring.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.common.cache import Cache
from harness.contracts.tasks import Context, Scale, SoftmaxSetting
from harness.plan.registry import task
from tasks.bases.language_model import SlidingWindowOptions
from tasks.bases.next_word import LanguageModelTask
from tasks.bases.parameters import Positive
from tasks.data.text import Source, Split, split_hash
from tasks.data.text.kinds import open_source
from tasks.models.contexts import write_contexts, write_layer
from tasks.models.pretrained.checkpoints import tokenizer_hash, weights_hash
from tasks.models.pretrained.places import find

if TYPE_CHECKING:
    from tasks.data.streams import Streams
    from tasks.models.pretrained.language import CausalLM

PIECE_WINDOWS = 4  # most windows of a piece of text
PIECES = 16  # with fewer pieces than this, a piece has fewer windows, down to one


@task(
    "lm-output-layer",
    contract="softmax-screening",
    summary="output layer of any causal language model: hub id, model folder, or trained here",
)
class LmOutputLayer(SlidingWindowOptions, LanguageModelTask):
    """Parameters: those of `SlidingWindowOptions` and of `LanguageModelTask`.

    Layer and contexts are float32 for any dtype; a layer without bias gets a bias of zeros. contexts, evaluation:
    tokens of the train and of the test split, in pieces drawn with `seed`; pieces of both have the same number of
    windows (`piece_windows`); `entropy` keeps a part of the test split's. Between two timed calls the model, without
    its output layer, reads one token of the test text (in each of `batch` texts).
    """

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"model": "train:mini", "contexts": 60_000, "timed": 500},
        "small": {"source": "folder", "dataset": "wikitext-2", "model": "train:small"},
        "paper": {"source": "hub", "dataset": "Salesforce/wikitext:wikitext-103-raw-v1", "model": "gpt2"},
    }

    contexts: Positive = 200_000

    def __post_init__(self) -> None:
        SlidingWindowOptions.__post_init__(self)
        LanguageModelTask.__post_init__(self)

    def prepare(self, context: Context, progress: Any) -> SoftmaxSetting:
        """Raises `RequestError` when text or model are not found, the model's logits are not its output layer's, or no
        context has an entropy that is asked for."""
        cache = Cache(context.cache)
        source = open_source(self.source, self.dataset, context.data, cache)
        splits: dict[Split, str] = {split: split_hash(source, split, cache) for split in ("train", "test")}
        # for a model trained here this imports torch, even if the cache has the model
        place, name = self.place(source, context, cache, progress)
        found = find(place, cache)
        folder = found.folder
        key = {
            "splits": splits, "weights": weights_hash(folder, cache), "tokenizer": tokenizer_hash(folder),
            "config": hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()[:20],
            "window": self.window, "stride": self.stride, "dtype": self.dtype, "contexts": self.contexts,
            "evaluation": self.evaluation, "seed": self.seed,
        }  # fmt: skip

        def build(target: Path) -> None:
            self._write(target, self.load(place, name, context, cache), source, cache, progress)

        arrays = cache.build("output-layer-contexts", key, build)

        def between() -> Callable[[], object]:
            from tasks.models.steps import transformer_steps

            model = self.load(place, name, context, cache)
            ids = np.concatenate([[model.start_id], np.load(arrays / "test_targets.npy")])
            return transformer_steps(model, ids, self.batch)

        hashes = {"data": splits["test"], "training_data": splits["train"]}
        setting = self.setting(arrays, cache, source.name, hashes, between)
        return replace(setting, facts={**setting.facts, "model": name, **found.facts})

    def _write(self, folder: Path, model: CausalLM, source: Source, cache: Cache, progress: Any) -> None:
        """Contexts and next tokens of both splits, and the layer. `test_perplexity` is per token."""
        from tasks.data.streams import Selection, streams

        log_probs: list[NDArray[np.float32]] = []  # of the test text

        def states(text: Streams, split: Split) -> Iterator[tuple[slice, NDArray[np.float32], NDArray[np.int64]]]:
            row = 0
            for stream in text:
                for block in model.encode(stream, key="last_hidden"):
                    assert block.keys is not None  # asked for
                    rows = slice(row, row + len(block.targets))
                    yield rows, block.keys.cpu().numpy(), block.targets.cpu().numpy()
                    if split == "test":
                        log_probs.append(block.log_prob.cpu().numpy())
                    row = rows.stop
                progress.update(f"hidden states of the {split} text", row, text.tokens, "tokens")

        sizes = {}
        length = model.window * piece_windows(min(self.contexts, self.evaluation), model.window)
        parts: tuple[tuple[str, Split, int], ...] = (("", "train", self.contexts), ("test_", "test", self.evaluation))
        for prefix, split, tokens in parts:
            chosen = Selection(tokens=tokens, piece=length, seed=self.seed)
            text = streams(source, split, model, chosen, cache, progress)
            sizes[split] = text.tokens
            write_contexts(folder, prefix, (text.tokens, model.key_dimension("last_hidden")), states(text, split))
        write_layer(
            folder,
            model.module.get_output_embeddings(),
            window=model.window,
            stride=model.stride,
            training_contexts=sizes["train"],
            test_perplexity=float(np.exp(-np.concatenate(log_probs).mean(dtype=np.float64))),
            model_hash=model.hash,
            **({"bos": model.facts["bos"]} if "bos" in model.facts else {}),
        )


def piece_windows(tokens: int, window: int) -> int:
    """Windows of a piece of text, 1 to 4: the most for which `tokens` still gives 16 pieces, so that even a few tokens
    come from many articles."""
    return min(PIECE_WINDOWS, max(1, tokens // (PIECES * window)))
