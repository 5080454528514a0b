"""Finding passages: encoders, three retrievers behind one interface, passages as tokens, and a request's cache of them.

A package of its own because indexes are known by the sources of the package that builds them: a change of how
speculation goes does not build them again.
"""
