"""Speculation with batched verification, for any kind of retrieval.

Reading order: `speculation` (Algorithm 1 over any process) -> `strides` (fixed strides; formulas) -> `scheduler` (how
many steps to speculate, by measured times) -> `worker` (the thread of asynchronous verification) -> `record` (counts
and times of one request) -> `generation` (a process that generates tokens and can go back) -> `serving` (base classes
of sequential and speculative methods).
"""
