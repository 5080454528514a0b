"""Iterative RaLM over passages of text.

Reading order: `retriever` (the interface of retrievers, their options, the cache of guesses) -> `dense`, `bm25` (the
three of the paper, and `ivf`) -> `encoders` (text to vectors) -> `opening` (builds and opens the retriever of the
options) -> `tokens` (passages as token ids) -> `generation` (the process) -> `methods`.
"""
