"""Next-word prediction on Penn Treebank with an LSTM language model: the setting of L2S's Tables 1, 3, 4 and 5.

Contexts are the LSTM's top hidden states: of training text to learn from, of test text to evaluate on. A prepared
setting is a folder of arrays in the cache; the processes that time a method open it without torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness import statistics
from harness.artifacts import Cache
from harness.contracts import OutputLayer, SoftmaxScreening, TopK
from harness.errors import RequestError, unknown
from harness.progress import Progress
from harness.registry import task
from harness.settings import Context, Measure, SoftmaxSetting, Task
from tasks.models.lstm_sizes import SIZES
from tasks.sources import SPLITS, Kind, Source, Split, open_source, split_hash
from tasks.words import encoded_split, vocabulary

TREEBANK = "ptb"
TRAINING_STREAMS = 20  # pieces of the training text read side by side; the test text is read as one
_FORMAT = 1  # raise when a change below changes the arrays


@task(
    "ptb-next-word",
    contract="softmax-screening",
    summary="next word by an LSTM on Penn Treebank (on WikiText-2 cut to 10,000 types where that is not at hand)",
)
class PtbNextWord(Task):
    """Parameters: `model` is a size of `tasks.models.lstm` to train here, or the folder of a trained model.

    dataset `ptb` falls back to `fallback`, cut to `vocabulary` types and named so in the row's facts, where no data
    root has Penn Treebank (its licence keeps it from being shipped). contexts: training words whose hidden states are
    learned from; evaluation: test contexts of the quality pass, drawn with `seed`; timed: consecutive ones of the
    timed pass, for contexts of one text follow each other in use too. batch: contexts asked at a time. perplexity: ask
    the method for the probability of every true next word as well, and time that instead of the top-k (Table 5).
    """

    contract = "softmax-screening"
    scale_defaults = {  # noqa: RUF012 - read-only by convention of `Task`
        "mini": {"source": "embedded", "model": "mini", "vocabulary": 5000, "contexts": 60_000, "timed": 500},
        "small": {"model": "ptb-small"},
        "paper": {"model": "ptb-large"},
    }

    def __init__(
        self,
        *,
        source: Kind = "folder",
        dataset: str = TREEBANK,
        fallback: str = "wikitext-2",
        model: str = "ptb-small",
        vocabulary: int = 10_000,
        contexts: int = 400_000,
        evaluation: int = 20_000,
        timed: int = 2000,
        k: int = 5,
        batch: int = 1,
        perplexity: bool = False,
        seed: int = 0,
    ) -> None:
        if min(vocabulary, contexts, evaluation, timed, k, batch) < 1 or vocabulary < 10:
            raise RequestError(
                "vocabulary (at least 10), contexts, evaluation, timed, k and batch must be positive, given "
                f"{vocabulary}, {contexts}, {evaluation}, {timed}, {k}, {batch}"
            )
        self.source, self.dataset, self.fallback, self.model = source, dataset, fallback, model
        self.vocabulary, self.contexts, self.evaluation, self.timed = vocabulary, contexts, evaluation, timed
        self.k, self.batch, self.perplexity, self.seed = k, batch, perplexity, seed

    def prepare(self, context: Context, progress: Any) -> SoftmaxSetting:
        """Raises `RequestError` when neither data set is found or the model cannot be loaded."""
        cache = Cache(context.cache)
        source, label = self._open(context, cache)
        tokenised = self.source != "embedded"
        splits = {split: split_hash(source, split, cache) for split in SPLITS}
        folder = self._arrays(source, tokenised, cache, context, progress, splits)
        arrays = {file.stem: np.load(file, mmap_mode="r") for file in folder.glob("*.npy")}
        facts = json.loads((folder / "facts.json").read_text())
        test, targets = arrays["test_contexts"], arrays["test_targets"]
        rng = np.random.default_rng(self.seed)
        chosen = np.sort(rng.permutation(len(test))[: self.evaluation])
        first = int(rng.integers(max(1, len(test) - self.timed)))
        timed = slice(first, first + self.timed)
        return SoftmaxSetting(
            layer=OutputLayer(np.array(arrays["weight"]), np.array(arrays["bias"])),
            contexts=arrays["contexts"],
            targets=arrays["targets"],
            evaluation=np.array(test[chosen]),
            evaluation_targets=np.array(targets[chosen]),
            timed=np.array(test[timed]),
            timed_targets=np.array(targets[timed]) if self.perplexity else None,
            k=self.k,
            batch=self.batch,
            hashes={"data": splits["test"], "training_data": splits["train"], "model": facts.pop("model_hash")},
            facts={"data": label, "evaluated": len(chosen), **facts, **_curve(facts)},
        )

    def metrics(self, setting: SoftmaxSetting, answers: Sequence[TopK]) -> dict[str, Measure]:
        """Share of test positions whose true next word is the first of, or among, the words answered, and the
        perplexity of the model itself on the whole test text."""
        ids = np.stack([answer.ids for answer in answers])
        hits = ids == setting.evaluation_targets[:, None]
        measures = {"model_perplexity": Measure(setting.facts["test_perplexity"])}
        for k in sorted({1, setting.k}):
            found = hits[:, :k].any(axis=1).astype(float)
            low, high = statistics.mean_interval(found) or (None, None)
            measures[f"accuracy_at_{k}"] = Measure(float(found.mean()), low, high)
        return measures

    def series(self, setting: SoftmaxSetting, answers: Sequence[TopK]) -> dict[str, list[float]]:
        """Held-out perplexity of the model by epoch of its training."""
        curve = setting.facts["training"].get("validation_perplexity", ())
        return {"model_validation_perplexity": [value for _, value in curve]} if curve else {}

    def evaluate(self, setting: SoftmaxSetting, method: SoftmaxScreening) -> dict[str, Measure]:
        """`coverage`, the share of true next words that the method gives a probability, and where that is 1
        `perplexity` (per word); both only with the parameter `perplexity`."""
        if not self.perplexity:
            return {}
        pairs = zip(setting.evaluation, setting.evaluation_targets, strict=True)
        tracked = Progress().track(pairs, "perplexity of the screened softmax", len(setting.evaluation), "words")
        log_probs = np.asarray([method.log_prob(context, int(target)) for context, target in tracked])
        covered = np.isfinite(log_probs)
        measures = {"coverage": Measure(float(covered.mean()))}
        if covered.all():
            low, high = statistics.block_bootstrap([log_probs], lambda mean: np.exp(-mean)) or (None, None)
            measures["perplexity"] = Measure(float(np.exp(-log_probs.mean())), low, high)
        return measures

    def _open(self, context: Context, cache: Cache) -> tuple[Source, str]:
        """The source, and what a row should call it."""
        if self.source != "folder" or self.dataset != TREEBANK:
            source = open_source(self.source, self.dataset, context.data, cache)
            return source, f"{source.name} cut to {self.vocabulary:,} types"
        try:
            return open_source("folder", TREEBANK, context.data, cache), "Penn Treebank"
        except RequestError as missing:
            try:
                source = open_source("folder", self.fallback, context.data, cache)
            except RequestError:
                roots = ", ".join(map(str, context.data)) or "no folder, because HARNESS_DATA is not set"
                raise RequestError(
                    f"neither {TREEBANK}/ (ptb.train.txt, ptb.valid.txt, ptb.test.txt) nor {self.fallback}/ is in "
                    f"{roots}; point HARNESS_DATA at the folder that holds one, or use --set task.source=embedded"
                ) from missing
            return source, f"{self.fallback} cut to {self.vocabulary:,} types (no Penn Treebank at hand)"

    def _arrays(
        self, source: Source, tokenised: bool, cache: Cache, context: Context, progress: Any, splits: dict[Split, str]
    ) -> Path:
        given = Path(self.model).expanduser() / "config.json"
        model: dict[str, Any]
        if self.model in SIZES:
            model = {"size": SIZES[self.model].stated(), "seed": context.seed}
        elif not given.is_file():
            raise unknown("LSTM size or model folder", self.model, SIZES, "task.model")
        else:  # another model under the same path is another model
            model = {"path": str(given.parent.resolve()), "changed": given.stat().st_mtime_ns}
        key = {
            "splits": splits, "tokenised": tokenised, "vocabulary": self.vocabulary, "contexts": self.contexts,
            "model": model, "format": _FORMAT,
        }  # fmt: skip

        def build(folder: Path) -> None:
            trained = self._model(source, tokenised, cache, context, progress, given)
            write_arrays(folder, trained, source, tokenised, cache, context.device, self.contexts, progress)

        return cache.build("next-word-contexts", key, build)

    def _model(
        self, source: Source, tokenised: bool, cache: Cache, context: Context, progress: Any, given: Path
    ) -> Path:
        if self.model not in SIZES:
            return given.parent
        from tasks.models.lstm import trained_lstm

        types = vocabulary(source, self.vocabulary, tokenised, cache)
        train = encoded_split(source, "train", types, tokenised, cache)
        validation = encoded_split(source, "validation", types, tokenised, cache)
        return trained_lstm(
            self.model, types, train, validation, cache, device=context.device, seed=context.seed, progress=progress
        )


def _curve(facts: dict[str, Any]) -> dict[str, str]:
    """The model's held-out perplexity by epoch, as a line to be read; nothing for a model that was not trained here."""
    curve = facts["training"].get("validation_perplexity", ())
    return {"validation_perplexity_by_epoch": " ".join(f"{value:.1f}" for _, value in curve)} if curve else {}


def write_arrays(
    folder: Path, model_folder: Path, source: Source, tokenised: bool, cache: Cache, device: str, contexts: int,
    progress: Any,
) -> None:  # fmt: skip
    """Hidden states of the training text (at most `contexts`) and of the test text, their next words, and the layer.

    facts.json: sizes, the model's test perplexity (the whole test text, read once from its start) and how it was made.
    """
    from tasks.models.checkpoints import weights_hash
    from tasks.models.lstm import hidden_states, load_lstm, mean_loss

    model, types = load_lstm(model_folder, device)
    train = encoded_split(source, "train", types, tokenised, cache)[: contexts + TRAINING_STREAMS]
    test = encoded_split(source, "test", types, tokenised, cache)
    for prefix, ids, streams in (("", train, TRAINING_STREAMS), ("test_", test, 1)):
        rows = (len(ids) // streams - 1) * streams
        shape = (rows, model.output.in_features)
        states = np.lib.format.open_memmap(folder / f"{prefix}contexts.npy", "w+", np.float32, shape)
        stage = f"hidden states of the {'test' if prefix else 'training'} text"
        np.save(folder / f"{prefix}targets.npy", hidden_states(model, ids, streams, states, progress, stage))
        states.flush()
    np.save(folder / "weight.npy", model.output.weight.detach().float().cpu().numpy())
    np.save(folder / "bias.npy", model.output.bias.detach().float().cpu().numpy())
    record = model_folder / "training.json"
    facts = {
        "words": len(types),
        "dimension": model.output.in_features,
        "training_contexts": (len(train) // TRAINING_STREAMS - 1) * TRAINING_STREAMS,
        "test_perplexity": math.exp(mean_loss(model, test, 1)),
        "training": json.loads(record.read_text()) if record.exists() else {},
        "model_hash": weights_hash(model_folder, cache),
    }
    (folder / "facts.json").write_text(json.dumps(facts))
