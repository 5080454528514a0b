"""Output layers in use: greedy decoding whose words come from a screen of `methods.softmax`, with or without loss.

Reading order: `chosen` (logits of some words) -> `stepped` (words drafted one by one, verified at once) -> `training`
(the contexts that a screen learns from) -> `head` (the method).
"""
