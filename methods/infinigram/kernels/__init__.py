"""Compiled searches in the suffix arrays of an engine's shards.

Reading order, in which they call one another: `columns` (the shards as one table), `compiling` (the cache of compiled
functions) -> `searching`, `followers` (one shard) -> `summed` (all shards) -> `scanning` (a text from front to back),
`grouped` (many n-grams at once) -> `holding` (documents of suffixes, matches in documents).
"""
