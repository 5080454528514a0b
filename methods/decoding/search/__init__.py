"""What chooses the tokens.

Reading order: `decoder` (the base class of methods) -> `greedy` -> `best` (the best of rows of scores) -> `beam`.
"""
