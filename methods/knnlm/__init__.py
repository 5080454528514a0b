"""kNN-LM (Khandelwal et al., 2020): a language model mixed with the nearest neighbours of its context in a datastore.

Reading order: `lm` (the baseline) -> `datastore` (entries on disk, written by `builder`) -> `search` (options that
methods on a datastore inherit, and the search) -> `positions` (a text as such methods see it) -> `mixture` (Eq. 2, 3)
-> `tuning` (lambda and temperature) -> `scorer` (the method). `methods.nearest` finds the neighbours. Datastore,
options and search also serve AdaptRet, RetoMaton and kNN-LM serving.
"""
