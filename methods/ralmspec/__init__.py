"""RaLMSpec: lossless speculative retrieval for iterative RaLM and for kNN-LM serving (Zhang et al., 2024).

| folder | what is there |
| --- | --- |
| `core` | the algorithm for any retrieval: strides, speculation and its verification, measured times |
| `passages` | iterative RaLM (`ralmseq`, `ralmspec`): passages, their retrievers, a request's cache |
| `neighbors` | kNN-LM serving (`knnlm-sequential`, `knnlm-speculative`): a search before every token |
| `analyses` | latencies of batched searches; what asynchronous verification saves |

In `passages` and `neighbors`, `generation` defines the process and `methods` its two methods: the sequential baseline,
which runs the process without speculation, and the speculative one.
"""
