"""Sources of data that only tasks need, and texts cut into the tokens that models read."""
