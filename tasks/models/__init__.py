"""Models of tasks: opening pretrained models, training small ones, and the searches for translation."""
