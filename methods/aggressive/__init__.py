"""Aggressive decoding (Ge et al., 2022): the drafters of the paper, which `methods.decoding.drafting` verifies.

Reading order: `suffix` (finds the output's last tokens in the source) -> `iad` (input-guided drafts, section 3.1,
Algorithm 1) -> `forced` (iterations of IAD over gold outputs) -> `nar`, `glancing`, `markov`, `nar_training`, `trial`,
`gad` (the non-autoregressive drafter, section 3.2).
"""
