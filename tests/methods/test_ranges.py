"""Values that methods and analyses refuse by the range of a parameter, before anything is built."""

import re

import pytest

from harness.common.errors import RequestError
from harness.plan.registry import Registry, construct

INF, NAN = float("inf"), float("nan")
REFUSED = {
    "iad": {"block": [-1]},
    "gad": {
        "block": [0], "beta": [0], "tau": [-1.0, NAN], "steps": [0], "batch_ids": [0], "learning_rate": [0.0],
        "dropout": [1.0], "layers": [0], "trained_block": [0], "seed": [-1],
    },
    "beam": {"beam": [0], "length_penalty": [NAN]},
    "transformers-beam": {"beam": [0]},
    "transformers-prompt-lookup": {"tokens": [0], "ngram": [-1]},
    "knnlm": {
        "k": [0], "foss": [1.5, NAN], "lambda": [-0.1, NAN], "temperature": [NAN, INF, 0.0], "memory_gb": [NAN, -1.0],
        "batch": [0], "nlist": [-1], "nprobe": [0], "code_size": [-1], "ef": [0], "seed": [-1, 2**31 - 1],
        "links": [1],  # faiss would end the process
    },
    "adaptret": {"foss": [1.5], "penalty": [-1.0, NAN]},
    "retomaton": {"tau": [0, NAN], "max_knns": [0], "clusters": [-1], "merged": [0], "streams": [0]},
    "knnlm-speculative": {
        "lambda": [NAN], "links": [1], "stride": [-1], "gamma_max": [NAN], "following": [-1],
        "searches": [0], "nearest": [0],
    },
    "ralmspec": {
        "prefetch": [0], "stride": [-1], "gamma_max": [1.0, NAN], "interval": [0], "links": [1],
        "ef": [0], "k1": [NAN, -1.0], "b": [1.1, NAN], "memory_gb": [INF], "dimension": [0], "sample": [0],
        "seed": [-1],
    },
    "asynchronous-saving": {"stride": [0], "prefetch": [0], "interval": [0]},
    "retriever-latency": {"batch": [0], "batches": [0], "query_words": [0], "ef": [0]},
    "fgd": {"links": [1], "completion_rank": [-1]},
    "l2s": {"budget": [0.0, NAN], "gamma": [-1.0], "learning_rate": [0.0], "completion_rank": [-1], "lambda": [-1.0]},
    "lsh-mips": {"bits": [0, 21]},
}  # fmt: skip
CASES = [(name, p, value) for name, values in REFUSED.items() for p, some in values.items() for value in some]


@pytest.mark.parametrize(("name", "parameter", "value"), CASES)
def test_a_value_out_of_range_is_refused_by_name(name, parameter, value):
    registry = Registry()
    kind = "method" if name in registry.names("method") else "analysis"
    message = rf"parameter '{parameter}' of {kind} {name} should be .* \(given: {re.escape(str(value))}\)"
    with pytest.raises(RequestError, match=message):
        construct(registry.resolve(kind, name), {parameter: value})
