"""Tasks: one small module each (see `harness.plan.registry.task`), with their data sources, models and metrics."""
