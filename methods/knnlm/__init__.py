"""kNN-LM (Khandelwal et al., 2020): a language model mixed with the nearest neighbours of its context in a datastore.

Reading order: `lm` (the baseline) -> `datastore` (entries on disk, written by `builder`) -> `search` (options, and the
search) -> `positions` (a text's queries and LM probabilities) -> `mixture` (Eq. 2, 3) -> `tuning` (lambda and
temperature) -> `base` (the base class of methods on a datastore) -> `gate` (a lambda for each token) -> `scorer`
(the method) -> `adaptret` (AdaptRet), `commands` (`harness datastore`). `methods.nearest` finds the neighbours.
"""
