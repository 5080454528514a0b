"""kNN-LM serving: a search of the datastore before every token.

Reading order: `sources` (entries that guesses are taken from) -> `generation` (the process) -> `methods`.
"""
