"""Iterative RaLM over passages of text.

Reading order: `retriever` (what a retriever is, and its options) -> `dense`, `bm25` (the three of the paper) ->
`encoders` (text to vectors) -> `opening` (the retriever that a parameter names) -> `tokens` (passages as the model
reads them) -> `cache` (what a request guesses from) -> `generation` (the process) -> `methods`.
"""
