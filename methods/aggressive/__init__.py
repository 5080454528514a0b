"""Aggressive decoding (Ge et al., 2022): the drafters of the paper, which `methods.decoding.drafting` verifies.

Reading order: `suffix` (where the output's end occurs in the source) -> `iad` (input-guided drafts, section 3.1,
Algorithm 1) -> `forced` (its iterations over gold outputs).
"""
