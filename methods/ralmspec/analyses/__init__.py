"""Timed analyses of retrievers and verification."""
