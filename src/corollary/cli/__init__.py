"""The command line. It reads the catalog and knows no model by name; nothing heavy is imported for help."""

from __future__ import annotations

import sys
import warnings
from typing import Any

__all__ = ["main"]

INTERRUPTED = "Interrupted. If a fit had begun, the same command with --run and --resume goes on.\n"


def main() -> None:
    """Run the command line; whatever goes wrong ends with a plain message.

    A mistake of the user's gives exit code 2, a fault of the machine or of the numbers 1, Ctrl-C 130.
    """
    try:
        from corollary.cli.app import app

        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = app(standalone_mode=False)
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        code = _explain(error)
    if code == 130:  # typer makes that of Ctrl-C; a fit that ended politely has said so itself
        sys.stderr.write(INTERRUPTED if "fit" in sys.argv[1:2] else "Interrupted.\n")
    sys.exit(code)


def _explain(error: Exception) -> int:
    """Print what went wrong and return the exit code; what is nobody's fault but ours keeps its traceback."""
    import typer

    from corollary.cli.console import complain
    from corollary.errors import NoSuchKey, RunError

    if isinstance(error, typer.Abort):
        return 130
    if hasattr(error, "show") and hasattr(error, "exit_code"):  # a command that is not written right
        error.show()
        return int(error.exit_code)
    if isinstance(error, ValueError | TypeError | FileNotFoundError | ImportError | NoSuchKey):
        complain(error)
        return 2
    if isinstance(error, OSError | FloatingPointError | RunError | MemoryError):
        complain(error)
        return 1
    raise error


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
    """Print a warning of ours as it is; any other with where it comes from."""
    from corollary.errors import CorollaryWarning

    ours = issubclass(category, CorollaryWarning)
    sys.stderr.write(f"{message}\n" if ours else warnings.formatwarning(message, category, filename, lineno))
