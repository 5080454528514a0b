"""`python -m harness` is the command line, for machines where the package is not installed."""

from harness.cli import main

main()
