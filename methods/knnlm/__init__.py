"""kNN-LM (Khandelwal et al., 2020): a language model mixed with the nearest neighbours of its context in a datastore.

Reading order: `lm` (the baseline) -> `datastore` (entries on disk) -> `index` (search) -> `mixture` (Eq. 2, 3) ->
`tuning` (lambda and temperature) -> `scorer` (the method). The datastore and the index also serve AdaptRet, RetoMaton
and kNN-LM serving.
"""
