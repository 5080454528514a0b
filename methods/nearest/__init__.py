"""Nearest-neighbour search for all method families, exact or approximate.

Reading order: `vectors` (the vectors searched) -> `index` (the interface of indexes, their options) -> `opening` (opens
the index that the options name) -> `flat` (exact, CPU), `tiled` (exact, GPU), `faiss_index` (faiss, exact or
approximate). `scores`, `kernels` and `threads` are parts of exact search; `distances` recomputes distances of given
entries.
"""
