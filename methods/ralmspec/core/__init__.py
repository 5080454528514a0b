"""Speculation with batched verification, for any kind of retrieval.

Reading order: `speculation` (Algorithm 1 over any process) -> `scheduler` (how many steps
to speculate: fixed, or by measured times) -> `worker` (the thread of asynchronous verification) -> `record` (counts
and times of one request) -> `generation` (a process that generates tokens and can go back) -> `serving` (base classes
of sequential and speculative methods).
"""
