"""Speculation with batched verification, whatever is retrieved.

Reading order: `speculation` (Algorithm 1 over any process) -> `scheduler` (how many steps to speculate) -> `estimates`
(what requests have told about the machine) -> `worker` (the thread of asynchronous verification) -> `record` (what
happened in one request) -> `generation` (a process that generates tokens and can go back) -> `serving` (the two ways
through a request, as methods inherit them).
"""
