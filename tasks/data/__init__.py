"""Sources of data for tasks only, and texts as tokens for models."""
