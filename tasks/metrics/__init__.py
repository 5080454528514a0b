"""Metrics, computed from stored answers alone, each with its 95% interval."""
