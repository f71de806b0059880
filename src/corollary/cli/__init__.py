"""The command line. It reads the catalog and knows no model by name; nothing heavy is imported for help."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; a mistake of the user's ends with a plain message and exit code 2."""
    from corollary.cli.app import app
    from corollary.errors import NoSuchKey

    try:
        app()
    except (ValueError, TypeError, FileNotFoundError, ImportError, NoSuchKey) as error:
        from corollary.cli.console import complain

        complain(error)
        sys.exit(2)
