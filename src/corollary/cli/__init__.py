"""The command line. It reads the catalog and knows no model by name; nothing heavy is imported for help."""

from __future__ import annotations

import sys
import warnings
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Run the command line; a mistake of the user's ends with a plain message and exit code 2."""
    from corollary.cli.app import app
    from corollary.errors import NoSuchKey

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app()
    except (ValueError, TypeError, FileNotFoundError, ImportError, NoSuchKey) as error:
        from corollary.cli.console import complain

        complain(error)
        sys.exit(2)


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
    """Print a warning of ours as it is; any other with where it comes from."""
    from corollary.errors import CorollaryWarning

    ours = issubclass(category, CorollaryWarning)
    sys.stderr.write(f"{message}\n" if ours else warnings.formatwarning(message, category, filename, lineno))
