"""Greedy and beam search over encoder-decoder and causal Transformers: the exact baselines of sequence decoding.

Reading order: `session` (what every decoder drives: feed tokens, read logits, crop, reorder) -> `kernels`, `dense`,
`ragged`, `layers`, `relative`, `compiled`, `transformer` (a lean engine for Marian, BART, T5 and their kin) ->
`generic` (any other `transformers` model) -> `checks` (whether an engine computes what its module does) -> `engines`
(which of the two, and what is refused) -> `decoder` (the base class of methods) -> `greedy`, `beam` -> `drafting`
(draft and verify, for every drafter) -> `suffix_decoding` (drafts from suffix trees) -> `peers`, `lookup` (the same
models through `generate`) -> `ctranslate`, `ctranslate_server`, `economize_lookup` (through other libraries).
"""
