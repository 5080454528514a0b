"""The output layer of any causal language model as a softmax-screening task (beyond L2S's paper: GPT-2's 50k words).

Contexts are the last hidden states of the model's windows over training and test text, as token scoring sees them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.contracts.tasks import Context, SoftmaxSetting
from harness.errors import RequestError
from harness.measure.artifacts import Cache
from harness.plan.registry import task
from tasks.models.checkpoints import locate, tokenizer_hash, weights_hash
from tasks.next_words import NextWords
from tasks.sources import Source, Split, split_hash
from tasks.sources.kinds import Kind, open_source

if TYPE_CHECKING:
    from tasks.models.language import CausalLM

PIECE_WINDOWS = 4  # a piece of text is so many windows: most tokens have full context, and many places are sampled


@task(
    "lm-output-layer",
    contract="softmax-screening",
    summary="output layer of any causal language model: hub id, model folder, or trained here",
)
class LmOutputLayer(NextWords):
    """source, dataset: `embedded`, a `folder` under HARNESS_DATA, or a `hub` id with an optional config after a colon.

    model: `train:mini`, `train:small` (trained on the train split here), a hub id or a folder. window, stride: tokens,
    null for the model's own length (at most 1024) and half of it. dtype: in which the model runs; the layer and the
    contexts are float32 whatever it is, and a layer without bias gets one of zeros. contexts, evaluation: tokens of
    seeded pieces of the train and the test split. Between two calls in use the model, without its output layer, reads a
    token of the test text (`batch` of them in as many texts). The rest: see `NextWords`.
    """

    scale_defaults = {  # noqa: RUF012 - read-only by convention of `Task`
        "mini": {"model": "train:mini", "contexts": 60_000, "timed": 500},
        "small": {"source": "folder", "dataset": "wikitext-2", "model": "train:small"},
        "paper": {"source": "hub", "dataset": "Salesforce/wikitext:wikitext-103-raw-v1", "model": "gpt2"},
    }

    def __init__(
        self,
        *,
        source: Kind = "embedded",
        dataset: str = "",
        model: str = "train:mini",
        window: int | None = None,
        stride: int | None = None,
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        contexts: int = 200_000,
        evaluation: int = 20_000,
        timed: int = 2000,
        k: int = 5,
        batch: int = 1,
        perplexity: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(
            contexts=contexts, evaluation=evaluation, timed=timed, k=k, batch=batch, perplexity=perplexity, seed=seed
        )
        for name, value in (("window", window), ("stride", stride)):
            if value is not None and value < 1:
                raise RequestError(f"{name} must be positive, given {value}")
        self.source, self.dataset, self.model = source, dataset, model
        self.window, self.stride, self.dtype = window, stride, dtype

    def prepare(self, context: Context, progress: Any) -> SoftmaxSetting:
        """Raises `RequestError` when text or model are not found, or the model's logits are not its output layer's."""
        cache = Cache(context.cache)
        source = open_source(self.source, self.dataset, context.data, cache)
        splits: dict[Split, str] = {split: split_hash(source, split, cache) for split in ("train", "test")}
        place = self._place(source, cache, context, progress)
        folder = locate(place)
        key = {
            "splits": splits, "weights": weights_hash(folder, cache), "tokenizer": tokenizer_hash(folder),
            "config": hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()[:20],
            "window": self.window, "stride": self.stride, "dtype": self.dtype, "contexts": self.contexts,
            "evaluation": self.evaluation, "seed": self.seed,
        }  # fmt: skip

        def load() -> CausalLM:
            from tasks.models.language import CausalLM

            name = f"{self.model} on {source.name}" if self.model.startswith("train:") else self.model
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

    def _place(self, source: Source, cache: Cache, context: Context, progress: Any) -> str:
        """Folder or hub id of the model, trained first where it is to be trained here (which imports torch even to find
        the model in the cache)."""
        if not self.model.startswith("train:"):
            return self.model
        from tasks.models.from_scratch import trained_model
        from tasks.models.language_sizes import SIZES

        size = self.model.removeprefix("train:")
        return str(trained_model(size, source, cache, sizes=SIZES, device=context.device, progress=progress))

    def _write(self, folder: Path, model: CausalLM, source: Source, cache: Cache, progress: Any) -> None:
        """Contexts and next tokens of both splits, and the layer. facts.json: sizes, and the model's perplexity (per
        token) on the test positions."""
        from tasks.streams import Selection, streams

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
        weight = head.weight.detach().float().cpu().numpy()
        bias = None if getattr(head, "bias", None) is None else head.bias.detach().float().cpu().numpy()
        np.save(folder / "weight.npy", weight)
        np.save(folder / "bias.npy", np.zeros(len(weight), np.float32) if bias is None else bias)
        facts = {
            "model": model.name, "words": len(weight), "dimension": weight.shape[1], "window": model.window,
            "stride": model.stride, "training_contexts": len(written["train"]),
            "test_perplexity": float(np.exp(-written["test"].mean())), "model_hash": model.hash,
        }  # fmt: skip
        (folder / "facts.json").write_text(json.dumps(facts))
