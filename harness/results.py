"""All stored rows as a pandas DataFrame: `from harness.results import frame`."""

from harness.show.frame import frame

__all__ = ["frame"]
