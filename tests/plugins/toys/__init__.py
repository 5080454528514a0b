"""A plug-in package: one trivial method and task per contract. Found through $HARNESS_PLUGINS in the tests."""
