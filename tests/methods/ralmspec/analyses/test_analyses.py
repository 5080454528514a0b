"""The two timed analyses on a small knowledge base: what they report hangs together."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import torch

from harness.common.cache import CellArtifacts
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts.tasks import RetrievalSetting
from harness.measure.timed import passes
from methods.ralmspec.analyses.asynchronous_saving import AsynchronousSaving
from methods.ralmspec.analyses.retriever_latency import RetrieverLatency
from tests.harness.made import ratio_in, timed_once

from ..conftest import make_model, make_passages

MODEL = make_model()


def setting(knowledge):
    prompts = [[5 + i, 9, 14 + i] for i in range(24)]
    return RetrievalSetting(
        hashes={}, model=MODEL, knowledge=knowledge, validation=[], evaluation=prompts[:6], timed=prompts, sample=4,
        limit=24,
    )  # fmt: skip


def opened(analysis, on, artifacts):
    """The analysis fitted, then opened as another process would."""
    analysis.fit(on, artifacts, Progress(quiet=True))
    analysis.open(on, CellArtifacts(artifacts.cache, **artifacts.manifest()))
    return analysis


def process(analysis, number=0, pairs=3):
    """What one timing process measures, and the row's metrics of it alone."""
    pool, sample = analysis.items()
    given, stored = timed_once(analysis, passes(pool, sample, pairs + 1, number, 1))
    return given, stored["pairs"], {name: ratio_in(asdict(one), stored) for name, one in analysis.ratios.items()}


@pytest.mark.parametrize("retriever", ["exact", "hnsw", "bm25"])
def test_latencies_of_a_batch_and_of_its_queries(artifacts, retriever):
    on = setting(make_passages(1, 60))
    analysis = opened(RetrieverLatency(retriever=retriever, batch=4, batches=3, dimension=8, k=3), on, artifacts)
    given, pairs, found = process(analysis)
    assert artifacts.values["passages"] == 60
    assert sum(pair["count"] for pair in pairs) == 9  # three batches of each pair
    assert found["latency_per_query_ms"] == pytest.approx(found["latency_ms"] / 4)
    assert found["batching_gain"] == pytest.approx(found["sequential_ms"] / found["latency_ms"])
    calls = given["method"].answers, given["baseline"].answers
    ours, theirs = ([ids for call in side for ids in analysis.answers(call)] for side in calls)
    assert len(ours) == 9 * 4 and ours == theirs


def test_a_text_depends_on_its_item_and_another_process_searches_others(artifacts):
    on = setting(make_passages(1, 60))
    one, other = (opened(RetrieverLatency(batch=4, dimension=8), on, artifacts) for _ in range(2))
    items = np.arange(60)
    assert all(map(np.array_equal, one.inputs(items), other.inputs(items)))
    texts = {np.stack(queries).tobytes() for queries in one.inputs(items)}
    assert len(texts) > 55  # all but those of equal passages
    drawn = [{i for pair in process(one, number, pairs=2)[1] for i in pair["items"]} for number in range(3)]
    assert len(set.union(*drawn)) == 3 * 2 * 4


def test_streams_of_tokens_have_no_latency(artifacts):
    with pytest.raises(RequestError, match="searches passages of text"):
        RetrieverLatency().fit(setting([np.arange(9)]), artifacts, Progress(quiet=True))


def test_the_share_of_the_ideal_is_what_was_saved_of_it(artifacts):
    on = setting(make_passages(1, 30))
    analysis = AsynchronousSaving(stride=2, prefetch=30, dimension=8, passage_tokens=10, query_tokens=6)
    given, pairs, found = process(opened(analysis, on, artifacts))
    assert torch.get_num_threads() == 1
    items = [item for pair in pairs for item in pair["items"]]
    assert len(items) == len(set(items)) == 12  # prompts, none of them twice
    saved = found["synchronous_s"] - found["asynchronous_s"]
    assert found["ideal_s"] > 0 and found["asynchronous_share"] == pytest.approx(saved / found["ideal_s"])
    assert found["pipelined_s"] >= found["ideal_s"]
    assert found["pipelined_share"] == pytest.approx(saved / found["pipelined_s"])
    assert found["synchronous_s"] == pytest.approx(sum(map(sum, given["baseline"].times)) / 1e9 / 12)
    ours, theirs = ([call[0] for call in given[side].answers] for side in ("method", "baseline"))
    assert ours == theirs
