"""Algorithms: one folder per family, declared with the decorators of `harness.plan.registry`."""
