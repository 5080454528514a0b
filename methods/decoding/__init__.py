"""Greedy and beam search over encoder-decoder and causal Transformers: the exact baselines of sequence decoding.

Reading order: `session` (the interface of decoders: feed tokens, read logits, crop, reorder) -> `kernels`, `dense`,
`ragged`, `layers`, `relative`, `compiled`, `transformer` (a lean engine for Marian, BART, T5 and similar models) ->
`generic` (any other `transformers` model) -> `checks` (compares an engine's logits with its module's) -> `engines`
(chooses the engine, checks requests) -> `decoder` (the base class of methods) -> `greedy`, `beam` -> `drafting`
(draft and verify, for every drafter) -> `suffix_decoding` (drafts from suffix trees) -> `peers`, `lookup` (the same
models through `generate`) -> `ctranslate`, `ctranslate_server`, `economize_lookup` (through other libraries).
"""
