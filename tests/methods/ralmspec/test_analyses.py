"""The two analyses on a small knowledge base: what they report hangs together."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import RequestError
from harness.progress import Progress
from harness.settings import RetrievalSetting
from methods.ralmspec.latency import RetrieverLatency
from methods.ralmspec.saving import AsynchronousSaving

from .conftest import make_model, make_passages

MODEL = make_model()


def setting(knowledge):
    prompts = [[5 + i, 9, 14 + i] for i in range(12)]
    return RetrievalSetting(
        hashes={}, model=MODEL, knowledge=knowledge, validation=[], evaluation=prompts, timed=[], sample=1, limit=24
    )


@pytest.mark.parametrize("retriever", ["exact", "hnsw", "bm25"])
def test_latencies_of_a_batch_and_of_its_queries(artifacts, retriever):
    analysis = RetrieverLatency(retriever=retriever, batch=4, repeats=12, dimension=8, k=3)
    found = analysis(setting(make_passages(1, 60)), artifacts, Progress(quiet=True))
    assert found["latency_per_query_ms"].value == pytest.approx(found["latency_ms"].value / 4)
    gain = found["batching_gain"]
    assert gain.value == pytest.approx(found["sequential_ms"].value / found["latency_ms"].value)
    assert gain.low is not None and gain.high is not None and gain.low <= gain.value <= gain.high


def test_streams_of_tokens_have_no_latency(artifacts):
    with pytest.raises(RequestError, match="searches passages of text"):
        RetrieverLatency()(setting([np.arange(9)]), artifacts, Progress(quiet=True))


def test_the_share_of_the_ideal_is_what_was_saved_of_it(artifacts):
    import torch

    threads = torch.get_num_threads()
    analysis = AsynchronousSaving(prompts=20, stride=2, prefetch=30, dimension=8, passage_tokens=10, query_tokens=6)
    found = analysis(setting(make_passages(1, 30)), artifacts, Progress(quiet=True))
    assert torch.get_num_threads() == threads
    assert artifacts.values["requests"] == 12
    share = found["asynchronous_share"]
    saved = found["synchronous_s"].value - found["asynchronous_s"].value
    assert found["ideal_s"].value > 0 and share.value == pytest.approx(saved / found["ideal_s"].value)
    assert found["pipelined_s"].value >= found["ideal_s"].value
    assert found["pipelined_share"].value == pytest.approx(saved / found["pipelined_s"].value)
    assert share.low is not None and share.high is not None and share.low <= share.value <= share.high


@pytest.mark.parametrize(
    ("cls", "parameters", "message"),
    [
        (AsynchronousSaving, {"prompts": 0}, "prompts=0"),
        (AsynchronousSaving, {"prefetch": 0}, "prefetch=0"),
        (AsynchronousSaving, {"interval": 0}, "interval=0"),
        (RetrieverLatency, {"batch": 0}, "batch=0"),
        (RetrieverLatency, {"repeats": 1}, "repeats=1"),
        (RetrieverLatency, {"query_words": 0}, "query_words=0"),
        (RetrieverLatency, {"ef": 0}, "ef=0"),
    ],
)
def test_parameters_out_of_range_are_refused_before_anything_runs(cls, parameters, message):
    with pytest.raises(RequestError, match=message):
        cls(**parameters)
