"""The scan of the linear recurrent unit, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

__all__ = ["scan"]


@njit(cache=True, parallel=True, fastmath=True)
def scan(
    vr: np.ndarray,
    vi: np.ndarray,
    lr: np.ndarray,
    li: np.ndarray,
    xr: np.ndarray,
    xi: np.ndarray,
    reverse: bool,
) -> None:  # pragma: no cover
    """Write the states of ``x = lam * x + v`` over time, (b, t, n), forwards or from the end."""
    B, T, n = vr.shape
    for b in prange(B):
        stater, statei = np.zeros(n, vr.dtype), np.zeros(n, vr.dtype)
        for s in range(T):
            t = T - 1 - s if reverse else s
            for j in range(n):
                real = lr[j] * stater[j] - li[j] * statei[j] + vr[b, t, j]
                imaginary = lr[j] * statei[j] + li[j] * stater[j] + vi[b, t, j]
                stater[j], statei[j] = real, imaginary
                xr[b, t, j], xi[b, t, j] = real, imaginary
