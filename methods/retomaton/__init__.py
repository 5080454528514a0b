"""RetoMaton: kNN-LM whose searches are saved by an automaton over the datastore (Alon et al., 2022).

Reading order: `states` (entries clustered into states, on disk) -> `walk` (from one token to the next: which entries
count, how likely the token is, which states follow) -> `scorer` (many streams walked side by side, so that their
searches are batched).
"""
