"""What a measurement prints: its numbers, one per line, and of arrays how long they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

__all__ = ["told"]

T = TypeVar("T", bound=type)
FEW = 6  # numbers of an array that are printed


def told(kind: T) -> T:
    """Return a class of named tuples that prints in a few lines.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> @told
    ... class Found(NamedTuple):
    ...     error: float
    ...     losses: np.ndarray
    >>> Found(0.25, np.zeros((21, 21)))
    Found
      error: 0.25
      losses: 21 x 21 numbers
    """
    show: Callable[[Any], str] = lambda self: "\n".join(
        [kind.__name__, *(f"  {name}: {_short(value)}" for name, value in self._asdict().items())]
    )
    kind.__repr__ = show  # type: ignore[assignment]
    return kind


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > FEW:
        return " x ".join(map(str, value.shape)) + " numbers"
    if isinstance(value, np.ndarray):
        return ", ".join(f"{v:.4g}" for v in value.ravel().tolist())
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(v)}" for key, v in [*value.items()][:FEW]) + (
            " …" if len(value) > FEW else ""
        )
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"of {_short(value[0])}"
    return str(value)
