"""Iterative RaLM over passages of text.

Reading order: `retriever` (the interface of retrievers, their options) -> `dense`, `bm25` (the three of the paper, and
`ivf`) -> `encoders` (text to vectors) -> `opening` (builds and opens the retriever of the options) -> `tokens`
(passages as token ids) -> `cache` (the source of guesses) -> `generation` (the process) -> `methods`.
"""
