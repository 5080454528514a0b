"""Vector search for every family: which of many vectors are nearest to a query, exactly or nearly.

Reading order: `vectors` (what is searched) -> `index` (what an index is and what a search returns) -> `opening` (the
index that a parameter names) -> `flat` (exact, CPU), `tiled` (exact, GPU), `faiss_index` (faiss, exact or approximate).
`scores`, `kernels` and `threads` are the parts of exact search; `distances` measures given entries again.
"""
