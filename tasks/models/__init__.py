"""Models that tasks run: pretrained ones opened, our own trained, and the searches that translate with them."""
