"""Output in Jupyter notebooks that is updated in place: progress bars and live plots."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["display", "in_notebook", "text_bar"]

WIDTH = 30  # characters of a bar


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def display(content: dict[str, Any], handle: Any = None) -> Any:
    """Show content by media type, in the place of what was shown before; return where it is."""
    from IPython.display import display as show

    if handle is not None:
        handle.update(content, raw=True)
        return handle
    return show(content, raw=True, display_id=True)


def text_bar(owner: str, step: int, total: int | None, metrics: str) -> str:
    """Return one line of progress.

    >>> text_bar("PCA", 5, 10, "loss 0.1")
    'PCA [###############               ] 5/10 loss 0.1'
    """
    if total is None:
        return f"{owner} {step} {metrics}"
    full = WIDTH * min(step, total) // max(1, total)
    return f"{owner} [{'#' * full}{' ' * (WIDTH - full)}] {step}/{total} {metrics}"
