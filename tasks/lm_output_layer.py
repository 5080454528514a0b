"""The output layer of any causal language model as a softmax-screening task (beyond L2S's paper: GPT-2's 50k words).

Contexts are the last hidden states of the model's windows over training and test text, as token scoring sees them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.contracts.tasks import Context, Scale, SoftmaxSetting
from harness.measure.artifacts import Cache
from harness.plan.registry import task
from harness.text import Source, Split, split_hash
from harness.text.kinds import Kind, open_source
from tasks.bases.next_word import LanguageModelTask
from tasks.bases.parameters import Positive, Precision
from tasks.models.layer import write_layer
from tasks.models.lm.place import place_of
from tasks.models.pretrained.checkpoints import locate, tokenizer_hash, weights_hash

if TYPE_CHECKING:
    from tasks.models.pretrained.language import CausalLM

PIECE_WINDOWS = 4  # a piece of text is so many windows: most tokens have full context, and many places are sampled


@task(
    "lm-output-layer",
    contract="softmax-screening",
    summary="output layer of any causal language model: hub id, model folder, or trained here",
)
@dataclass(kw_only=True, eq=False)
class LmOutputLayer(LanguageModelTask):
    """source, dataset: `embedded`, a `folder` under HARNESS_DATA, or a `hub` id with an optional config after a colon.

    model: `train:mini`, `train:small` (trained on the train split here), a hub id or a folder. window, stride: tokens,
    null for the model's own length (at most 1024) and half of it. dtype: in which the model runs; the layer and the
    contexts are float32 whatever it is, and a layer without bias gets one of zeros. contexts, evaluation: tokens of
    seeded pieces of the train and the test split. Between two calls in use the model, without its output layer, reads a
    token of the test text (`batch` of them in as many texts). The rest: see `LanguageModelTask`.
    """

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"model": "train:mini", "contexts": 60_000, "timed": 500},
        "small": {"source": "folder", "dataset": "wikitext-2", "model": "train:small"},
        "paper": {"source": "hub", "dataset": "Salesforce/wikitext:wikitext-103-raw-v1", "model": "gpt2"},
    }

    source: Kind = "embedded"
    dataset: str = ""
    model: str = "train:mini"
    window: Positive | None = None
    stride: Positive | None = None
    dtype: Precision = "float32"
    contexts: Positive = 200_000

    def prepare(self, context: Context, progress: Any) -> SoftmaxSetting:
        """Raises `RequestError` when text or model are not found, or the model's logits are not its output layer's."""
        cache = Cache(context.cache)
        source = open_source(self.source, self.dataset, context.data, cache)
        splits: dict[Split, str] = {split: split_hash(source, split, cache) for split in ("train", "test")}
        # a model to train is looked for first, which imports torch even where the cache has it
        place, name = place_of(self.model, source, cache, device=context.device, progress=progress)
        folder = locate(place)
        key = {
            "splits": splits, "weights": weights_hash(folder, cache), "tokenizer": tokenizer_hash(folder),
            "config": hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()[:20],
            "window": self.window, "stride": self.stride, "dtype": self.dtype, "contexts": self.contexts,
            "evaluation": self.evaluation, "seed": self.seed,
        }  # fmt: skip

        def load() -> CausalLM:
            from tasks.models.pretrained.language import CausalLM

            return CausalLM.load(
                place, device=context.device, window=self.window, stride=self.stride, dtype=self.dtype, cache=cache,
                name=name,
            )  # fmt: skip

        def build(target: Path) -> None:
            self._write(target, load(), source, cache, progress)

        arrays = cache.build("output-layer-contexts", key, build)

        def between() -> Callable[[], object]:
            from tasks.models.steps import transformer_steps

            model = load()
            ids = np.concatenate([[model.start_id], np.load(arrays / "test_targets.npy")])
            return transformer_steps(model, ids, self.batch)

        hashes = {"data": splits["test"], "training_data": splits["train"]}
        return self.setting(arrays, source.name, hashes, between)

    def _write(self, folder: Path, model: CausalLM, source: Source, cache: Cache, progress: Any) -> None:
        """Contexts and next tokens of both splits, and the layer. facts.json: sizes, and the model's perplexity (per
        token) on the test positions."""
        from tasks.data.streams import Selection, streams

        written = {}
        parts: tuple[tuple[str, Split, int], ...] = (("", "train", self.contexts), ("test_", "test", self.evaluation))
        for prefix, split, tokens in parts:
            piece = PIECE_WINDOWS * model.window
            text = streams(source, split, model, Selection(tokens=tokens, piece=piece, seed=self.seed), cache, progress)
            shape = (text.tokens, model.key_dimension("last_hidden"))
            contexts = np.lib.format.open_memmap(folder / f"{prefix}contexts.npy", "w+", np.float32, shape)
            targets, log_probs = np.empty(text.tokens, np.int64), np.empty(text.tokens)
            row = 0
            for stream in text:
                for block in model.encode(stream, key="last_hidden"):
                    here = slice(row, row + len(block.targets))
                    assert block.keys is not None  # asked for
                    contexts[here], targets[here] = block.keys.cpu().numpy(), block.targets.cpu().numpy()
                    if split == "test":
                        log_probs[here] = block.log_prob.cpu().numpy()
                    row = here.stop
                progress.update(f"hidden states of the {split} text", row, text.tokens, "tokens")
            contexts.flush()
            np.save(folder / f"{prefix}targets.npy", targets)
            written[split] = log_probs
        head: Any = model.module.get_output_embeddings()
        write_layer(folder, head)
        facts = {
            "model": model.name, "words": head.weight.shape[0], "dimension": head.weight.shape[1],
            "window": model.window, "stride": model.stride, "training_contexts": len(written["train"]),
            "test_perplexity": float(np.exp(-written["test"].mean())), "model_hash": model.hash,
        }  # fmt: skip
        (folder / "facts.json").write_text(json.dumps(facts))
