"""Base classes of the tasks of one kind."""
