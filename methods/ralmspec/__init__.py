"""RaLMSpec: lossless speculative retrieval for iterative RaLM and for kNN-LM serving (Zhang et al., 2024).

| folder | what is there |
| --- | --- |
| `core` | the algorithm, whatever is retrieved: strides, speculation and its verification, what is remembered |
| `passages` | iterative RaLM (`ralmseq`, `ralmspec`): passages, their retrievers, a request's cache |
| `neighbors` | kNN-LM serving (`knnlm-sequential`, `knnlm-speculative`): a search before every token |
| `analyses` | latencies of batched searches; what asynchronous verification saves |

In `passages` and `neighbors`, `generation` is the process that is speculated about and `methods` its two methods: the
sequential baseline, which is the same process without speculation, and the speculative one.
"""
