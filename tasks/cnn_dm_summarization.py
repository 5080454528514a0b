"""Summarisation of CNN/DailyMail: GAD's Table 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, Measure, Scale
from harness.plan.registry import task
from tasks.bases.distilled import DistilledTask
from tasks.bases.parameters import Positive
from tasks.bases.seq2seq import Items
from tasks.data.parallel import ParallelSource
from tasks.data.summaries import HubSummaries, Leads, cnn_dailymail
from tasks.data.text.kinds import open_source
from tasks.metrics.rouge import rouge

_FILES = ("cnn-dailymail/specbench-80.jsonl", "cnn-dailymail/train-200.jsonl")


@task(
    "cnn-dm-summarization", contract="sequence-decoding", provides=("training-pairs",),
    summary="summarisation of CNN/DailyMail, ROUGE-1, -2 and -L",
)  # fmt: skip
@dataclass(kw_only=True, eq=False)
class CnnDmSummarization(DistilledTask):
    """Parameters: those of `DistilledTask`, and

    source: `hub` takes articles and training pairs from the data set `dataset`; `folder` takes all articles of the
    JSON-lines `files` as test set (the default has 200 of the data set's training articles, which published summarisers
    have seen), and trains on leads of the documents of `text` and of parts of them; `embedded` takes leads of Python's
    documentation for both. body_words, lead_words: longest body and lead in training. Longer articles are cut to the
    model's positions.
    """

    measures = (
        Metric("rouge1", "ROUGE-1", better="higher"),
        Metric("rouge2", "ROUGE-2", better="higher"),
        Metric("rougeL", "ROUGE-Lsum", better="higher"),
    )
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"source": "embedded", "model": "train:mini-summariser", "evaluation": 60, "timed": 4, "limit": 48,
                 "body_words": 60, "lead_words": 25},
        "small": {"model": "train:small-summariser", "limit": 128},
        "paper": {"source": "hub", "model": "facebook/bart-large-cnn", "limit": 256},
    }  # fmt: skip

    source: Literal["embedded", "folder", "hub"] = "folder"
    dataset: str = "abisee/cnn_dailymail:3.0.0"
    files: list[str] = field(default_factory=lambda: list(_FILES))
    text: str = "wikipedia-2015/sample.jsonl.gz"
    body_words: Positive = 300
    lead_words: Positive = 60

    def texts(self, context: Context) -> ParallelSource:
        if self.source == "hub":
            return HubSummaries(self.dataset)
        text = open_source(self.source, self.text, context.data, Cache(context.cache))
        return Leads(text, self.body_words, self.lead_words)

    @property
    def learned_from(self) -> str:
        if self.source == "hub":
            return self.dataset
        return "leads of " + ("Python's documentation" if self.source == "embedded" else self.text)

    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        if self.source == "folder":
            pairs, label = cnn_dailymail(self.files, context.data), "CNN/DailyMail, " + " and ".join(self.files)
        else:
            pairs, label = self.texts(context).pairs("test"), self.learned_from
        return Items([article for article, _ in pairs], [summary for _, summary in pairs], label)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of articles in the prompt. Long articles are cut, so that the whole prompt and, of a causal model, the
        output fit."""
        encode, tokenizer, longest = super().ids, self.generator.tokenizer, self.generator.longest_source
        encoded = encode(texts)
        if longest is None:
            return encoded
        room = longest - self.limit * (self.generator.kind == "causal")
        without = len(encode([""])[0])
        if room <= without:
            output = f" and limit={self.limit}" if room < longest else ""
            raise RequestError(f"the prompt{output} leaves no room for an article in {longest} tokens; shorten it")

        def cut(text: str) -> list[int]:
            article = tokenizer(text, add_special_tokens=False)["input_ids"][: room - without]
            while True:
                kept = tokenizer.decode(article, clean_up_tokenization_spaces=False)
                if len(ids := encode([kept.rstrip("\ufffd")])[0]) <= room:  # the cut may split a character
                    return ids
                article = article[: room - len(ids)]

        return [ids if len(ids) <= room else cut(text) for text, ids in zip(texts, encoded, strict=True)]

    def encoded(self, items: Items) -> list[list[int]]:
        whole, encoded = super().ids(items.sources), self.ids(items.sources)
        self._cut = sum(len(ids) > len(kept) for ids, kept in zip(whole, encoded, strict=True))
        return encoded

    def gold_texts(self, items: Items) -> list[list[str]]:
        return [[" ".join(summary.split())] for summary in items.gold]

    def score(self, items: Items, outputs: Sequence[str]) -> dict[str, Measure]:
        """`rouge1`, `rouge2` and `rougeL` of whole summaries, from 0 to 100."""
        return rouge(outputs, items.gold)

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "articles_cut": self._cut}
