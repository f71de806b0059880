"""Checks of row and column numbers: users, items, nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary import errors
from corollary.data.arrays import as_array

__all__ = ["check_index"]


def check_index(values: Any, size: int, what: str, owner: str) -> np.ndarray:
    """Return numbers in ``[0, size)`` as a 1-D int64 array; a single number becomes one of length 1.

    >>> check_index([0, 2], 3, "user", "ALS")
    array([0, 2])
    """
    array = np.atleast_1d(as_array(values))
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        must = f"{what} numbers must be a list of integers"
        raise errors.kind(owner, must, f"shape {array.shape} of {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= size):
        bad = array[(array < 0) | (array >= size)][0]
        raise errors.value(owner, f"{what} numbers must lie in 0 to {size - 1}", bad)
    return array.astype(np.int64)
