"""A plug-in package as docs/adding-a-method.md describes it, and its tests."""
