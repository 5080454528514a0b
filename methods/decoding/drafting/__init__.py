"""Draft and verify: propose a block, verify it in one pass of the model, keep the prefix that the model agrees with.

Reading order: `drafter` (the interface of drafters) -> `verification` (verify, accept, crop, stop, record) -> `decoder`
(the base class of methods, with the gap of near ties) -> `draft_model` (a smaller model drafts).
"""
