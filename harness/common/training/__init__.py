"""Training of models: one loop with checkpoints, batches of pairs by length, and the precision that is fast."""
