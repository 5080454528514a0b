"""kNN-LM serving: a search of the datastore before every token.

Reading order: `sources` (candidate entries of guesses) -> `generation` (the process) -> `methods`.
"""
