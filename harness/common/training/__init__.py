"""Training of models: one loop with checkpoints, batches of pairs by length, and the fast precision of a device."""
