"""Models of `transformers`, opened by hub id or folder."""
