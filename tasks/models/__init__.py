"""Models the tasks run: causal language models from the hub, from a folder, or trained here."""
