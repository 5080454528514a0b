"""Greedy and beam search over encoder-decoder and causal Transformers: the exact baselines of sequence decoding.

Reading order: `session` (what every decoder drives: feed tokens, read logits, crop, reorder) -> `dense`, `ragged`,
`transformer` (a lean engine for the Marian and BART classes) -> `generic` (any other `transformers` model) -> `engines`
(which of the two, and what is refused) -> `decoder` (the base class of methods) -> `greedy`, `beam` -> `drafting`
(draft and verify, for every drafter) -> `peers` (the same models through `generate`).
"""
