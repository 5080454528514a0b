"""RaLMSpec: lossless speculative retrieval for iterative RaLM and for kNN-LM serving (Zhang et al., 2024).

`speculation` is the algorithm, for any process that alternates queries and generation; `iterative` and `neighbors` are
the two processes (`process`: what they share), each with a sequential baseline that is the same process without
speculation.
"""
