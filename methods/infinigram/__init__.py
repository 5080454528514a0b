"""infini-gram: counts and probabilities of n-grams of any length from a suffix array (Liu et al., 2024).

Reading order: `suffixes` (sorting) -> `layout` (files) -> `build`, `reading` (text files) -> `kernels` (searches)
-> `ids`, `answers` and `documents` -> `engine` (the queries).
"""
