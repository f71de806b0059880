"""``python -m corollary`` is the command line."""

from corollary.cli import main

main()
