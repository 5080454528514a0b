"""Draft and verify, for every drafter: propose a block, verify it in one pass of the model, keep what it agrees with.

Reading order: `drafter` (what proposes tokens) -> `verification` (verify, accept, crop, stop, record) -> `decoder` (the
base class of methods, with the gap of near ties).
"""
