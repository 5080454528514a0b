"""What computes a step of decoding.

Reading order: `session` (what every decoder drives: feed tokens, read logits, crop, reorder) -> `kernels`, `dense`,
`ragged`, `layers`, `relative`, `causal`, `compiled`, `transformer`, `transformer_session` (a lean engine for the types
of docs/decoding.md) -> `generic` (any other `transformers` model) -> `checks` (whether an engine computes what its
module does) -> `engines` (which of the two, and what is refused).
"""
