"""What is measured: data sources, models, metrics and one small module per task, declared with the decorators of `harness.registry`."""
