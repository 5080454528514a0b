"""Greedy and beam search over encoder-decoder and causal Transformers: the exact baselines of sequence decoding.

| folder | content |
| --- | --- |
| `engine` | computes a step: sessions over a lean Transformer or over any module of `transformers` |
| `search` | chooses tokens: the base class of methods, greedy and beam search |
| `drafting` | draft and verify, for every drafter |
| `peers` | the same models through transformers' `generate`, CTranslate2, llama.cpp, economize and arctic-inference |

Each folder imports only the folders above it.
"""
