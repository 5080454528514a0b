"""kNN-LM serving: a search of the datastore before every token.

Reading order: `cache` (entries that a request guesses from) -> `generation` (the process) -> `methods`.
"""
