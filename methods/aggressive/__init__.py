"""Aggressive decoding (Ge et al., 2022): draft tokens cheaply, verify them in one pass, keep what greedy would say.

Reading order: `suffix` (where the output's end occurs in the source) -> `verification` (advance, accept, crop, stop:
for every drafter) -> `iad` (input-guided drafts, section 3.1, Algorithm 1) -> `near_ties` (a check of float32 runs).
"""
