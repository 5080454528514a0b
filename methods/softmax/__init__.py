"""Fast top-k of the softmax layer: L2S (Chen et al., 2019) and the methods it is compared with.

Reading order: `inputs` (what is refused) -> `kernels` (compiled selection and products) -> `exact` (the baseline) ->
`labels`, `clusters`, `knapsack`, `learning` (how L2S learns) -> `screening` (the fast path) -> `l2s`. The rivals are
one module each; those that score a set of candidates share `candidates`, those that reduce inner products to nearest
neighbours share `reduction`.
"""
