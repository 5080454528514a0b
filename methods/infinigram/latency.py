"""Time of each kind of query, next to that of an installable peer (Liu et al., 2024, Table 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import Artifacts
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.metrics import Metric
from harness.contracts.ratios import Ratio
from harness.contracts.tasks import TokenScoringSetting
from harness.plan.registry import analysis
from methods.infinigram.answers import CnfCount, Distribution, NgramProbability
from methods.infinigram.indexed import index_reference, opened_reference, streams_hash
from methods.infinigram.peers import PEERS, SEPARATOR

Query = Literal[
    "count",
    "count_many",
    "ngram_prob",
    "ngram_distribution",
    "infinigram_prob",
    "infinigram_distribution",
    "score_many",
    "documents",
    "count_cnf",
    "attribute",
]
_TEXT = 512  # tokens of a scored or attributed text, and of a context of the ∞-gram LM with its next token
_SHOWN = 3  # documents of one query
_SPAN = 5  # fewest tokens of an attributed span
Given = tuple[list[int], int] | list[list[int]]


@dataclass(frozen=True, slots=True)
class _OfPeer:
    """An answer in the peer's own form."""

    found: Any


@analysis("infinigram-latency", summary="microseconds of a query of the engine, beside infini-gram or tokengrams")
class InfinigramLatency(TimedAnalysis):
    """The same queries, from the evaluation text, to a peer (`baseline`) and to the engine. An item is the position of
    a query in this text, or the seed by which the positions of a batch are drawn; batches may overlap.

    query: its kind. `count_many` counts a batch of `together` n-grams (Python lists) in one call. `score_many` gives
    the probabilities of all tokens of `texts` texts of 512 tokens in one call. For both, the peer gets one query at a
    time. `documents` shows 3 documents that hold an n-gram, `count_cnf` counts those that hold an n-gram and the one
    after it, `attribute` finds the spans of 5 tokens or more of a text of 512 and a document of each; tokengrams has
    none of them. n: tokens of an n-gram, the last of which is the target; contexts of the ∞-gram LM have up to 511
    tokens. queries: calls of one timed pass, if each is one query.
    """

    measures = (
        Metric("latency_us", "a query", "us", "lower", "time"),
        Metric("peer_us", "a query of the peer", "us", "lower", "time"),
        Metric("peer_ratio", "peer's time / the engine's", "", "higher", "speed", equal=1.0),
    )

    peer: Literal["infini-gram", "tokengrams"] = "infini-gram"
    query: Query = "count"
    n: Annotated[int, Field(ge=1)] = 5
    together: Annotated[int, Field(ge=1)] = 4096
    texts: Annotated[int, Field(ge=1)] = 8
    queries: Annotated[int, Field(ge=1)] = 100

    @property
    def asked(self) -> int:
        """Queries of one call."""
        return {"count_many": self.together, "score_many": self.texts * _TEXT, "attribute": _TEXT}.get(self.query, 1)

    @property
    def _batched(self) -> bool:
        return self.query.endswith("many")

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Microseconds per query of the engine and of the peer, and the peer's time over the engine's."""
        return {
            "latency_us": Ratio({"method": 1e6}, per={"items": self.asked}),
            "peer_us": Ratio({"baseline": 1e6}, per={"items": self.asked}),
            "peer_ratio": Ratio({"baseline": 1.0}, per={"method": 1.0}, equal=1.0),
        }

    def fit(self, setting: TokenScoringSetting, artifacts: Artifacts, progress: Progress) -> None:
        """Build both indexes. Raises `RequestError` for a vocabulary beyond 16 bits or a query that the peer lacks, and
        `NotInstalledError` if the peer is not installed."""
        if self.query in ("documents", "count_cnf", "attribute") and not hasattr(PEERS[self.peer], self.query):
            raise RequestError(f"{self.peer} finds no documents; compare {self.query} with infini-gram")
        model, reference = setting.model, setting.reference
        if model.vocabulary_size > SEPARATOR:
            raise RequestError(
                f"{self.peer} stores tokens in 16 bits, and the model has a vocabulary of {model.vocabulary_size}: "
                f"take a model of at most {SEPARATOR} tokens"
            )
        index_reference(artifacts, reference, model.vocabulary_size, model.tokenizer_hash)

        def fill(folder: Path) -> None:
            PEERS[self.peer].build(reference, folder, model.vocabulary_size)

        key = {"reference": streams_hash(reference), "vocabulary_size": model.vocabulary_size}
        artifacts.build(f"{self.peer}-index", key, fill)
        self.open(setting, artifacts)
        if not self.items()[0]:
            raise RequestError(
                f"no stream of the evaluation text has {self._needed} tokens, which {self.query} needs; give longer "
                "text or a smaller n"
            )
        artifacts.values.update(tokens=self._engine.count([]))

    def open(self, setting: TokenScoringSetting, artifacts: Artifacts) -> None:
        self._engine = opened_reference(artifacts, setting.model.tokenizer_hash)
        self._engine.preload()  # both peers map or read their whole indexes on opening
        self._peer: Any = PEERS[self.peer](artifacts.path(f"{self.peer}-index"), setting.model.vocabulary_size)
        self._ours, self._theirs = self._asked(self._engine), self._asked(self._peer)
        self._streams = [stream.tolist() for stream in setting.evaluation]
        step = _TEXT if self.query in ("score_many", "attribute") else 1  # no two texts share tokens
        self._places = [
            (number, end)
            for number, stream in enumerate(self._streams)
            for end in range(self._needed, len(stream) + 1, step)
        ]

    @property
    def _needed(self) -> int:
        """Tokens of a stream before the first position at which a query can end."""
        if self.query in ("score_many", "attribute"):
            return _TEXT
        if self.query == "count_cnf":
            return 2 * self.n
        return 2 if self.query.startswith("infinigram") else self.n

    def items(self) -> tuple[int, int]:
        calls = 4 if self._batched else self.queries
        return len(self._places), min(calls, max(len(self._places) // 50, 1))

    def inputs(self, items: NDArray[np.int64]) -> list[Given]:
        if self._batched:
            size, each = (self.together, self.n) if self.query == "count_many" else (self.texts, _TEXT)
            drawn = [np.random.default_rng(item).integers(len(self._places), size=size) for item in items]
            return [[self._ngram(place, each) for place in row.tolist()] for row in drawn]
        length = _TEXT if self.query.startswith("infinigram") else self._needed
        found: list[Given] = []
        for item in items.tolist():
            *context, token = self._ngram(item, length)
            found.append((context, token))
        return found

    def _ngram(self, place: int, length: int) -> list[int]:
        number, end = self._places[place]
        ids: list[int] = self._streams[number][max(end - length, 0) : end]
        return ids

    def method(self, given: Any) -> Any:
        return getattr(self._engine, self.query)(given) if self._batched else self._ours(*given)

    def baseline(self, given: Any) -> Any:
        if self.query == "count_many":
            return _OfPeer([self._peer.count(ngram) for ngram in given])
        if self.query == "score_many":
            return _OfPeer(
                [self._peer.infinigram_prob(text[:at], text[at]) for text in given for at in range(len(text))]
            )
        return _OfPeer(self._theirs(*given))

    def _asked(self, index: Any) -> Callable[[list[int], int], Any]:
        """The query, which gets a context and the token after it."""
        n = self.n
        if self.query == "count":
            return lambda context, token: index.count([*context, token])
        if self.query == "documents":
            return lambda context, token: index.documents([*context, token], _SHOWN)
        if self.query == "count_cnf":
            return lambda context, token: index.count_cnf([[context[:n]], [[*context[n:], token]]])
        if self.query == "attribute":
            return lambda context, token: index.attribute([*context, token], _SPAN)
        if self.query.endswith("distribution"):
            return lambda context, token: getattr(index, self.query)(context)
        return lambda context, token: getattr(index, self.query)(context, token)

    def answers(self, call: Any) -> list[Sequence[int]]:
        """Counts, from either side; of documents, whether there are any; of attribution, the spans. Counts of contexts
        are not compared: a peer also counts a context at the end of a document."""
        if self.query in ("documents", "count_cnf"):
            found = self._peer.any_found(call.found) if isinstance(call, _OfPeer) else call
            return [[int(bool(found.documents if isinstance(found, CnfCount) else found))]]
        if self.query == "attribute":
            if isinstance(call, _OfPeer):
                spans = self._peer.spans(call.found)
            else:
                spans = [(span.begin, span.end, span.count) for span in call]
            flat = [number for span in spans for number in span]
            return [flat] * self.asked
        if isinstance(call, Distribution):
            return [[*call.tokens.tolist(), *call.counts.tolist()]]
        if isinstance(call, NgramProbability):
            return [[call.count]]
        if isinstance(call, list):
            return [[count] for text in call for count in text.counts.tolist()]
        if isinstance(call, int | np.ndarray):
            return [[count] for count in np.atleast_1d(call).tolist()]
        found = call.found
        if self.query.endswith("distribution"):
            following = self._peer.following(found)
            return [[*sorted(following), *(following[token] for token in sorted(following))]]
        return [[self._peer.counted(one)] for one in (found if self._batched else [found])]
