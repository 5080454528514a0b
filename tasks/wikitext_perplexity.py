"""Perplexity of running text with a sliding window: WikiText at `small` and `paper`, Python documentation at `mini`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import TokenScores
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, Measure, Scale, Task, TokenScoringSetting
from harness.plan.registry import task
from tasks.bases.language_model import SlidingWindowOptions
from tasks.bases.parameters import NotNegative, Positive
from tasks.bases.pool import enough
from tasks.data.decontamination import Decontaminated, Joined, Whole
from tasks.data.streams import Selection, streams
from tasks.data.text import Source, split_hash
from tasks.data.text.kinds import open_source
from tasks.metrics.captured import likeliest, longest, occurs
from tasks.metrics.perplexity import perplexity

_CAPTURED = (3, 6, 10)  # lengths of the sequences in worked examples (Alon et al., 2022, Table 2)

_WORDS = "whitespace-separated, and one end mark a line"
_LONGEST_WORD = 15  # mean characters from blank to blank; above it these are sentences


@task(
    "wikitext-perplexity",
    contract="token-scoring",
    provides=("reference-text",),
    summary="Perplexity of held-out text by a sliding window, per token, word and byte",
)
class WikitextPerplexity(SlidingWindowOptions, Task):
    """Held-out perplexity. The train split is the reference text, one stream per document.

    Parameters: those of `SlidingWindowOptions`, and

    *_tokens: tokens of each split, null for all. Evaluation and validation are seeded pieces of `piece_windows`
    windows, cut at word boundaries; the reference text is whole documents.
    timed_piece, timed_tokens: timed are pieces of the test split of at most `timed_piece` tokens, each a stream of its
    own, drawn by the run's seed. A timed pass scores about `timed_tokens` tokens (at least one piece). If the split
    allows, there are enough pieces for `tasks.bases.pool.PASSES` passes. A timed piece of one window is read once, but
    the evaluation's windows overlap, so the LM's share of the time is smaller in timed passes.
    shown: for a method that saves searches, number of the likeliest sequences of each length predicted without one.
    more_text: further data sets, files or folders under HARNESS_DATA, added completely to the reference text.
    own_text: False leaves out the train split. decontaminated: if there is more text, or `held_out` is given, all
    reference text is without documents that overlap too much with test and validation text. held_out: a data set under
    HARNESS_DATA whose validation and test splits are used instead.

    Text whose words are not separated by blanks has bits per byte, and no perplexity per word.

    The seed of a run determines pieces and documents; `train:` models are trained with seed 0 in every run.
    """

    measures = (
        Metric("perplexity", "perplexity (token)", better="lower"),
        Metric("word_perplexity", "perplexity (word)", better="lower"),
        Metric("bits_per_byte", "bits per byte", better="lower"),
        Metric("nll", "negative log-likelihood", "nats", better="lower"),
    )
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"source": "embedded", "model": "train:mini"},
        "small": {
            "source": "folder", "dataset": "wikitext-2", "model": "train:small", "piece_windows": 2,
            "timed_tokens": 512, "timed_piece": 128,
        },
        "paper": {
            "source": "hub", "dataset": "Salesforce/wikitext:wikitext-103-raw-v1",
            "model": "neulab/gpt2-large-finetuned-wikitext103", "evaluation_tokens": None, "validation_tokens": None,
            "timed_tokens": 4096, "timed_piece": 1024,
        },
    }  # fmt: skip

    evaluation_tokens: Positive | None = 20480
    validation_tokens: Positive | None = 4096
    reference_tokens: Positive | None = None
    more_text: list[str] = field(default_factory=list)
    own_text: bool = True
    decontaminated: bool = True
    held_out: str = ""
    piece_windows: Positive = 4  # long enough that most tokens have full context, short enough to sample widely
    timed_tokens: Positive = 512
    timed_piece: Positive = 64
    shown: NotNegative = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.own_text and not self.more_text:
            raise RequestError("own_text=false leaves no reference text; name some by task.more_text")

    def prepare(self, context: Context, progress: Progress) -> TokenScoringSetting:
        """The setting. Slow once (training, tokenizing, hashing), then as fast as loading the model."""
        cache = Cache(context.cache)
        source = self.text(context, cache)
        asked = self.further_text(self.held_out, source, context, cache) if self.held_out else source
        model = self.load(*self.model_place(asked, context, cache, progress), context, cache)
        piece = self.piece_windows * model.window
        seed = context.seed
        filtered, own = self.further(asked, source, context, cache), Decontaminated(source, [asked])
        kept = own if self.decontaminated else source
        texts = [*([kept] if self.own_text else []), *filtered.values()]
        knowledge = Joined(texts) if filtered or (self.decontaminated and asked is not source) else source
        selection = Selection(tokens=self.reference_tokens, seed=seed)
        reference = streams(knowledge, "train", model, selection, cache, progress)
        validation = streams(asked, "validation", model, _part(self.validation_tokens, piece, seed), cache, progress)
        evaluation = streams(asked, "test", model, _part(self.evaluation_tokens, piece, seed), cache, progress)
        words = evaluation.words if _separated(asked, cache) else 0
        sample = max(1, self.timed_tokens // self.timed_piece)
        together = self.timed_piece * enough(sample)
        timed = streams(asked, "test", model, _part(together, self.timed_piece, seed), cache, progress)
        parts = {"validation": validation, "evaluation": evaluation, "timed": timed}
        return TokenScoringSetting(
            hashes={
                "data": reference.hash, **{name: part.hash for name, part in parts.items()}, "model": model.hash,
                "weights": model.weights_hash, "tokenizer": model.tokenizer_hash,
            },
            facts={
                "data": asked.name,
                "reference_text": knowledge.name,
                "model": model.name,
                **model.facts,
                "window": model.window,
                "stride": model.stride,
                "vocabulary": model.vocabulary_size,
                "reference": reference.facts(),
                **{name: part.facts() for name, part in parts.items()},
                "selection": f"pieces of {piece} tokens, seed {seed}" if self.evaluation_tokens else "whole documents",
                "words": _WORDS if words else "not counted: the text has no blanks between them",
            },
            model=model,
            reference=reference,
            validation=validation,
            evaluation=evaluation,
            timed=timed,
            sample=min(sample, len(timed)),
            words=words,
            bytes=evaluation.bytes,
            text=lambda ids: str(model.tokenizer.decode(list(ids))),
            filtered={name: partial(_counted, text) for name, text in {"": own, **filtered}.items()},
        )  # fmt: skip

    def text(self, context: Context, cache: Cache) -> Source:
        """Reference, validation and evaluation text."""
        return open_source(self.source, self.dataset, context.data, cache)

    def further(self, asked: Source, own: Source, context: Context, cache: Cache) -> dict[str, Source]:
        """Further reference text by name: train splits of sources. asked: the held-out text, which they must not
        contain; own: the task's own text."""
        found: dict[str, Source] = {
            name: Whole(self.further_text(name, own, context, cache)) for name in self.more_text
        }
        return {name: Decontaminated(one, [asked]) for name, one in found.items()} if self.decontaminated else found

    def model_place(self, asked: Source, context: Context, cache: Cache, progress: Progress) -> tuple[str, str]:
        """Folder or hub id of the model, and its name. asked: the held-out text."""
        training = open_source(self.source, self.dataset, context.data, cache)
        held_out = None if asked.identity("test") == training.identity("test") else asked
        return self.place(training, context, cache, progress, held_out)

    def metrics(self, setting: TokenScoringSetting, answers: Sequence[TokenScores]) -> dict[str, Measure]:
        return perplexity([answer.log_probs for answer in answers], setting.words, setting.bytes)

    def examples(
        self, setting: TokenScoringSetting, method: Any, answers: Sequence[TokenScores]
    ) -> list[dict[str, str]]:
        """Sequences predicted without a search: the likeliest of each length, and the longest. Those of the last length
        must not occur in the reference text. Sequences that do not occur in it are marked."""
        if not self.shown or not all("searched" in answer.series for answer in answers):
            return []
        found = []
        for length in _CAPTURED:
            several = iter(likeliest(setting.evaluation, answers, length))
            if length == _CAPTURED[-1]:
                several = (one for one in several if not occurs(one.ids, setting.reference))
            texts = [self._quoted(setting, one.ids) for one in islice(several, self.shown)]
            which = f"{length} tokens" + (", none of them in the reference text" if length == _CAPTURED[-1] else "")
            found.append({"without a search": which, "output": "   ".join(texts) or "none"})
        ids = longest(setting.evaluation, answers)
        text = self._quoted(setting, ids) if ids else "none"
        return [*found, {"without a search": "the longest", "output": f"{len(ids)} tokens: {text}"}]

    def _quoted(self, setting: TokenScoringSetting, ids: Sequence[int]) -> str:
        """Ids as text, with a star if they do not occur in the reference text."""
        assert setting.text is not None
        return f"“{setting.text(ids)}”" + ("" if occurs(ids, setting.reference) else "*")


def _counted(text: Source) -> tuple[int, int]:
    """Numbers of documents of a train split: all, and those left out."""
    kept = len(text.documents("train"))
    dropped = text.dropped if isinstance(text, Decontaminated) else 0
    return kept + dropped, dropped


def _separated(text: Source, cache: Cache) -> bool:
    """Whether blanks separate the words of a test split; not in Chinese, Japanese or Thai."""

    def made() -> bool:
        words = [word for document in text.documents("test") for word in document.split()]
        return sum(map(len, words)) <= _LONGEST_WORD * len(words)

    return bool(cache.value("separated-words", {"text": split_hash(text, "test", cache)}, made))


def _part(tokens: int | None, piece: int, seed: int) -> Selection:
    return Selection(tokens=tokens, piece=None if tokens is None else piece, seed=seed)
