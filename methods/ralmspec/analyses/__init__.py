"""Timed questions about retrievers and verification that are no method."""
