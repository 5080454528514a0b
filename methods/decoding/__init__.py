"""Greedy and beam search over encoder-decoder and causal Transformers: the exact baselines of sequence decoding.

| folder | what is there |
| --- | --- |
| `engine` | what computes a step: sessions over a lean Transformer or over any module of `transformers` |
| `search` | what chooses tokens: the base class of methods, greedy and beam search |
| `drafting` | draft and verify, for every drafter |
| `peers` | `generate` of transformers, CTranslate2, economize and arctic-inference, with the same models |

Each folder imports those above it only.
"""
