"""What is measured: data sources, models, metrics, and one small module per task (see `harness.plan.registry.task`)."""
