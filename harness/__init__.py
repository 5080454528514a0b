"""The harness: runs methods on tasks and measures them; it knows contracts, never a concrete method or task."""

__version__ = "0.2.0"
