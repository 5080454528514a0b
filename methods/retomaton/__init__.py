"""RetoMaton: kNN-LM whose searches are saved by an automaton over the datastore (Alon et al., 2022).

Reading order: `states` (entries clustered into states, on disk) -> `walk` (one stream through the automaton: the
candidates of a token and the states that follow) -> `scorer` (many streams walked together, to batch their searches).
"""
