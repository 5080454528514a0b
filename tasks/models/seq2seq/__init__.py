"""Encoder-decoder Transformers trained here."""
