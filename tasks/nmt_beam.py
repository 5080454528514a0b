"""Translation by beam search over a screened softmax: the setting of L2S's Tables 2 and 6.

Contexts are the attentional states of an LSTM translator, teacher-forced over training pairs (for learning) and over
test pairs (for precision). The timed contexts are those that the exact beam search visits, in its order, as in real
use. BLEU is that of a beam search over the whole test set with the method's softmax.

The timed pass differs from a search in two ways. It asks for max(k, beam) words, a search for `beam`. And between every
two calls the translator makes a step for the whole beam, while a search makes one step for all live hypotheses. The
timed pass is stricter: nothing that a method keeps in the inner caches survives until the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common import statistics
from harness.common.cache import Cache
from harness.common.progress import Progress
from harness.contracts import SoftmaxScreening, TopK
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, Measure, Scale, SoftmaxSetting
from harness.plan.registry import task
from tasks.bases.next_word import NextWordTask
from tasks.bases.parallel import ParallelOptions
from tasks.bases.parameters import NotNegative, Positive
from tasks.bases.pool import enough
from tasks.data.parallel import ParallelSource, pairs_hash
from tasks.data.sentences import Vocabulary, types_of
from tasks.data.text import SPLITS, Split
from tasks.metrics.accuracy import MEASURES
from tasks.models.beam_search import Clock, Hypothesis, Search
from tasks.models.contexts import read_contexts
from tasks.models.pretrained.checkpoints import check_weights
from tasks.models.records import as_facts
from tasks.models.trained import identity
from tasks.models.translator.sizes import SIZES


@dataclass(slots=True, kw_only=True)
class TranslationSetting(SoftmaxSetting):
    """A softmax setting with the data of beam search: the model (loaded on demand) and its device, the test set, and
    its translations with the exact softmax."""

    translator: Callable[[], Path]
    device: str
    sources: list[str]
    references: list[str]
    exact: list[str]


@task(
    "nmt-beam",
    contract="softmax-screening",
    summary="translation by beam search with an LSTM translator, BLEU under each softmax",
)
class NmtBeam(ParallelOptions, NextWordTask):
    """Parameters: those of `NextWordTask` and of `ParallelOptions`, and model: a size of
    `tasks.models.translator.sizes` to train here, or the folder of a trained one.

    vocabulary: most frequent types kept per side, including the end mark and `<unk>`. beam, limit (words per sentence),
    length_penalty: see `tasks.models.beam_search`. Contexts are states of the decoder; those of a timed pass are among
    the first `timed` x `PASSES` that a search visits, beginning at a sentence drawn with `seed`. k is at least `beam`
    (a search asks for `beam`). shown: number of translations that are worked examples.
    """

    measures = (
        *MEASURES,
        Metric("bleu", "BLEU", better="higher"),
        Metric("chrf", "chrF", better="higher"),
        Metric("bleu_difference", "BLEU difference", better="higher"),
        Metric("same_translations", better="higher"),
        Metric("quality_softmax_s", "softmax in the quality pass", "s", "lower", "time"),
        Metric("quality_lstm_s", "LSTM in the quality pass", "s", "lower", "time"),
        Metric("quality_contexts", "contexts of the quality pass", kind="counter"),
    )
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"source": "generated", "model": "mini", "timed": 500},
        "small": {"model": "nmt-500"},
        "paper": {
            "source": "hub", "dataset": "bbaaaa/iwslt14-de-en:de-en@refs/convert/parquet", "test": "test",
            "model": "nmt-500",
        },
    }  # fmt: skip

    model: str = "nmt-500"
    vocabulary: Annotated[int, Field(ge=3)] = 50_000
    beam: Positive = 5
    limit: Positive = 100
    length_penalty: float = 1.0
    shown: NotNegative = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        self.search = Search(beam=self.beam, limit=self.limit, length_penalty=self.length_penalty)
        self.k = max(self.k, self.beam)
        self._translations: list[str] = []  # of the last `evaluate`, for `examples`

    def prepare(self, context: Context, progress: Any) -> TranslationSetting:
        """Raises `RequestError` when the data are not found, the model cannot be loaded, or BLEU's tokenizer is not
        installed."""
        from tasks.metrics.bleu import signature

        bleu_signature = signature(self.target)  # first: what it lacks must not be found after training
        cache = Cache(context.cache)
        parallel = self.parallel(context)
        hashes = {split: pairs_hash(parallel, split, cache) for split in SPLITS}

        def translator() -> Path:
            return self._translator(parallel, context, cache, progress)

        contexts = self._contexts(parallel, hashes, translator, context, cache, progress)
        arrays, facts = read_contexts(contexts)
        model_hash = facts.pop("model_hash")

        def same_translator() -> Path:
            folder = translator()
            check_weights(folder, model_hash, contexts, cache)
            return folder

        sources, references = _test_set(parallel, hashes["test"], cache)
        key = {
            "test": hashes["test"], "model": model_hash, **asdict(self.search), "device": context.device,
        }  # fmt: skip
        exact, visited = self._searched(sources, key, same_translator, context, cache, progress)

        def between() -> Callable[[], object]:
            from tasks.models.steps import translation_steps
            from tasks.models.translator.model import load_translator

            model, *types = load_translator(same_translator(), context.device)
            left, right = map(Vocabulary, types)
            pairs = [(left.ids(source), right.ids(text)) for source, text in zip(sources, exact, strict=True)]
            return translation_steps(model, pairs, self.search.beam)

        common = self.common(arrays, visited)
        return TranslationSetting(
            **common,
            between=between,
            hashes={"data": hashes["test"], "training_data": hashes["train"], "model": model_hash},
            facts={
                "data": f"{parallel.name} {parallel.source}-{parallel.target}",
                "test_set": self.test if self.source != "generated" else "test",
                "evaluated": len(common["evaluation"]),
                "beam": self.search.beam,
                "longest": self.search.limit,  # words per sentence
                "length_penalty": self.search.length_penalty,
                "bleu_signature": bleu_signature,
                **facts,
                **as_facts(facts),
            },
            translator=same_translator,
            device=context.device,
            sources=sources,
            references=references,
            exact=exact,
        )

    def evaluate(self, setting: TranslationSetting, method: SoftmaxScreening) -> dict[str, Measure]:
        """`bleu` and `chrf` of the beam search with this softmax, `bleu_difference` to the exact softmax (paired over
        sentences), and `same_translations`, the share of equal sentences.

        quality_softmax_s, quality_lstm_s: wall-clock seconds of softmax and LSTM in this one pass, on one thread as in
        the recipes; they support no claim of speed. quality_contexts: number of contexts given to the softmax.
        """
        from tasks.metrics.bleu import bleu, bleu_difference, chrf
        from tasks.models.translator.decoding import translate
        from tasks.models.translator.model import load_translator

        model, types, target_types = load_translator(setting.translator(), setting.device)
        left, right, clock = Vocabulary(types), Vocabulary(target_types), Clock()
        found: list[Hypothesis] = translate(
            model, [left.ids(s) for s in setting.sources], method.topk, self.search,
            progress=Progress(), stage="beam search with this softmax", clock=clock,
        )  # fmt: skip
        self._translations = [right.text(hypothesis.words) for hypothesis in found]
        same = np.asarray([ours == theirs for ours, theirs in zip(self._translations, setting.exact, strict=True)])
        return {
            "bleu": bleu(self._translations, setting.references, self.target),
            "chrf": chrf(self._translations, setting.references),
            "bleu_difference": bleu_difference(self._translations, setting.exact, setting.references, self.target),
            "same_translations": Measure.of(same.mean(), statistics.share_interval(same)),
            "quality_softmax_s": Measure(clock.softmax_s),
            "quality_lstm_s": Measure(clock.model_s),
            "quality_contexts": Measure(clock.contexts),
        }

    def examples(
        self, setting: TranslationSetting, method: SoftmaxScreening, answers: Sequence[TopK]
    ) -> list[dict[str, str]]:
        """Sentences drawn with the seed, the same for every method. Those whose exact translation differs from the
        reference come first."""
        if not self._translations:
            return []
        drawn = np.random.default_rng(self.seed).permutation(len(setting.sources)).tolist()
        drawn.sort(key=lambda n: setting.exact[n] == setting.references[n])  # stable: the drawn order stays
        return [
            {"source": setting.sources[n], "reference": setting.references[n], "output": self._translations[n]}
            for n in drawn[: self.shown]
        ]

    def _translator(self, parallel: ParallelSource, context: Context, cache: Cache, progress: Any) -> Path:
        """Folder of the model, trained here unless it is given or the cache has it."""
        if self.model not in SIZES:
            return Path(self.model).expanduser()
        from tasks.models.translator.arrays import encoded
        from tasks.models.translator.model import trained_translator

        train = parallel.pairs("train")
        left, right = (Vocabulary(types_of((pair[side] for pair in train), self.vocabulary)) for side in (0, 1))
        return trained_translator(
            self.model, SIZES[self.model], left.types, right.types, encoded(train, left, right),
            encoded(parallel.pairs("validation"), left, right), cache, device=context.device,
            seed=context.seed, progress=progress,
        )  # fmt: skip

    def _contexts(
        self, parallel: ParallelSource, hashes: dict[Split, str], translator: Callable[[], Path], context: Context,
        cache: Cache, progress: Any,
    ) -> Path:  # fmt: skip
        key = {
            "pairs": hashes, "vocabulary": self.vocabulary, "contexts": self.contexts,
            "model": identity(self.model, SIZES, "translator", context.seed, cache),
        }  # fmt: skip

        def build(folder: Path) -> None:
            from tasks.models.translator.arrays import write_states

            write_states(folder, translator(), parallel, self.contexts, cache, context.device, progress)

        return cache.build("translation-contexts", key, build)

    def _searched(
        self, sources: list[str], key: dict[str, Any], translator: Callable[[], Path], context: Context, cache: Cache,
        progress: Any,
    ) -> tuple[list[str], NDArray[np.float32]]:  # fmt: skip
        """The exact beam search's translations of the test set, and the first n <= `timed` x `PASSES` contexts [n, d]
        that it visits."""
        number = enough(self.timed, 0)

        def translated() -> list[str]:
            from tasks.models.translator.arrays import translations

            return translations(translator(), sources, self.search, context.device, progress)

        def visit(folder: Path) -> None:
            from tasks.models.translator.arrays import write_visited

            write_visited(folder, translator(), sources, self.search, number, self.seed, context.device, progress)

        exact = cache.value("translation-search", key, translated)
        seen = cache.build("translation-visited", {**key, "timed": number, "seed": self.seed}, visit)
        visited = np.asarray(np.load(seen / "visited.npy", mmap_mode="r"))
        return exact, visited


def _test_set(parallel: ParallelSource, test_hash: str, cache: Cache) -> tuple[list[str], list[str]]:
    """Sources and references of the test split, cached so that a timing process reads no data set."""
    pairs = cache.value("parallel-test", {"pairs": test_hash}, lambda: parallel.pairs("test"))
    return [source for source, _ in pairs], [target for _, target in pairs]
