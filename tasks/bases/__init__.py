"""Bases of the tasks: what all tasks of one kind have in common."""
