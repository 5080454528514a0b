"""Next-word prediction on Penn Treebank with an LSTM language model: the setting of L2S's Tables 1, 3, 4 and 5.

Contexts are the LSTM's top hidden states: of training text to learn from, of test text to evaluate on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.contracts.tasks import Context, Scale, SoftmaxSetting
from harness.plan.registry import task
from tasks.bases.next_word import LanguageModelTask
from tasks.data.text import SPLITS, Source, Split, split_hash
from tasks.data.text.kinds import Kind, open_source
from tasks.data.words import encoded_split, vocabulary
from tasks.models.contexts import write_contexts, write_layer
from tasks.models.lstm.sizes import SIZES
from tasks.models.pretrained.checkpoints import check_weights, weights_hash
from tasks.models.records import training_record
from tasks.models.trained import identity

if TYPE_CHECKING:
    from numpy.typing import NDArray

TREEBANK = "ptb"
TRAINING_STREAMS = 20  # pieces of the training text read in parallel; the test text is read as one


@task(
    "ptb-next-word",
    contract="softmax-screening",
    summary="next word by an LSTM on Penn Treebank (on WikiText-2 cut to 10,000 types where that is not at hand)",
)
class PtbNextWord(LanguageModelTask):
    """Parameters: `model` is a size of `tasks.models.lstm.sizes` to train here, or the folder of a trained model.

    dataset: `ptb` falls back to `fallback` if no data root has Penn Treebank, whose licence does not allow shipping it.
    The fallback is cut to `vocabulary` types, and the row's facts name it. contexts: training words whose hidden states
    are learned from. Between two timed calls the LSTM reads one word of the test text (in each of `batch` pieces). The
    rest: see `LanguageModelTask`.
    """

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"source": "embedded", "model": "mini", "vocabulary": 5000, "contexts": 60_000, "timed": 500},
        "small": {"model": "ptb-small"},
        "paper": {"model": "ptb-large"},
    }

    source: Kind = "folder"
    dataset: str = TREEBANK
    fallback: str = "wikitext-2"
    model: str = "ptb-small"
    vocabulary: Annotated[int, Field(ge=10)] = 10_000
    contexts: Annotated[int, Field(ge=TRAINING_STREAMS)] = 400_000

    def prepare(self, context: Context, progress: Any) -> SoftmaxSetting:
        """Raises `RequestError` when neither data set is found or the model cannot be loaded."""
        cache = Cache(context.cache)
        source, label = self._open(context, cache)
        splits = {split: split_hash(source, split, cache) for split in SPLITS}
        folder = self._arrays(source, splits, context, cache, progress)

        def between() -> Callable[[], object]:
            from tasks.models.lstm.model import load_lstm
            from tasks.models.steps import lstm_steps

            trained = self._model(source, context, cache, progress)
            check_weights(trained, setting.hashes["model"], folder, cache)
            model, types = load_lstm(trained, context.device)
            return lstm_steps(model, self._ids(source, "test", types, cache), self.batch)

        setting = self.setting(
            folder, cache, label, {"data": splits["test"], "training_data": splits["train"]}, between
        )
        return setting

    def _open(self, context: Context, cache: Cache) -> tuple[Source, str]:
        """The source, and its name in rows."""
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

    @property
    def _tokenised(self) -> bool:
        """Whether the text is already tokenised: words between blanks."""
        return self.source != "embedded"

    def _ids(self, source: Source, split: Split, types: Sequence[str], cache: Cache) -> NDArray[Any]:
        return encoded_split(source, split, types, self._tokenised, cache)

    def _arrays(self, source: Source, splits: dict[Split, str], context: Context, cache: Cache, progress: Any) -> Path:
        key = {
            "splits": splits, "tokenised": self._tokenised, "vocabulary": self.vocabulary, "contexts": self.contexts,
            "model": identity(self.model, SIZES, "LSTM", context.seed, cache),
        }  # fmt: skip

        def build(folder: Path) -> None:
            self._write(folder, self._model(source, context, cache, progress), source, context, cache, progress)

        return cache.build("next-word-contexts", key, build)

    def _model(self, source: Source, context: Context, cache: Cache, progress: Any) -> Path:
        """Folder of the model, trained here unless it is given or the cache has it."""
        if self.model not in SIZES:
            return Path(self.model).expanduser()
        from tasks.models.lstm.model import trained_lstm

        types = vocabulary(source, self.vocabulary, self._tokenised, cache)
        train, validation = (self._ids(source, split, types, cache) for split in ("train", "validation"))
        return trained_lstm(
            self.model, SIZES[self.model], types, train, validation, cache,
            device=context.device, seed=context.seed, progress=progress,
        )  # fmt: skip

    def _write(
        self, folder: Path, trained: Path, source: Source, context: Context, cache: Cache, progress: Any
    ) -> None:
        """Hidden states of the training text (at most `contexts`) and the test text, their next words, the layer, and
        the model's perplexity on the whole test text, read once from its start.

        Raises `RequestError` for a text that is too short.
        """
        from tasks.models.lstm.model import hidden_states, load_lstm, mean_loss

        model, types = load_lstm(trained, context.device)
        train = self._ids(source, "train", types, cache)[: self.contexts + TRAINING_STREAMS]
        test = self._ids(source, "test", types, cache)
        for prefix, ids, streams in (("", train, TRAINING_STREAMS), ("test_", test, 1)):
            rows = (len(ids) // streams - 1) * streams
            if rows < 1:
                raise RequestError(
                    f"the {'test' if prefix else 'train'} split of {source.name} has {len(ids)} words, fewer than the "
                    f"{2 * streams} needed; give more text"
                )
            stage = f"hidden states of the {'test' if prefix else 'training'} text"
            states = hidden_states(model, ids, streams, progress, stage)
            write_contexts(folder, prefix, (rows, model.output.in_features), states)
        write_layer(
            folder,
            model.output,
            training_contexts=(len(train) // TRAINING_STREAMS - 1) * TRAINING_STREAMS,
            test_perplexity=math.exp(mean_loss(model, test, 1)),
            training=training_record(trained),
            model_hash=weights_hash(trained, cache),
        )
