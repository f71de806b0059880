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
        for s in range(T):
            t = T - 1 - s if reverse else s
            outr, outi, inr, ini = xr[b, t], xi[b, t], vr[b, t], vi[b, t]
            if s == 0:
                for j in range(n):
                    outr[j] = inr[j]
                    outi[j] = ini[j]
            else:
                p = t + 1 if reverse else t - 1
                ar, ai = xr[b, p], xi[b, p]
                for j in range(n):
                    outr[j] = lr[j] * ar[j] - li[j] * ai[j] + inr[j]
                for j in range(n):
                    outi[j] = lr[j] * ai[j] + li[j] * ar[j] + ini[j]
