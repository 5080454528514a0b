"""Causal Transformer language models trained here."""
