"""Fast top-k of the softmax layer: L2S (Chen et al., 2019) and the methods it is compared with.

Reading order: `inputs` (input checks) -> `kernels` (compiled selection and products) -> `exact` (the baseline) ->
`labels`, `clusters`, `knapsack`, `learning` (training of L2S) -> `screening` (the fast path) -> `l2s`. Each rival has
its own module. Methods that score a set of candidates share `candidates`; methods that reduce inner products to nearest
neighbours share `reduction`.
"""
