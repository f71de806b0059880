"""The scan of the linear recurrent unit and its gradient, compiled.

One thread runs one sequence; a few short ones are run by the calling thread alone, since waking others would take longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from corollary.compiled import njit

__all__ = ["scan", "scan_back"]

SMALL = 2**17  # numbers below which one thread is faster than several
FAST = {"contract", "reassoc"}  # fused and reordered sums; NaN and infinity keep their meaning


@njit(cache=True, fastmath=FAST)
def _run(vr, vi, lr, li, xr, xi):  # (t, n), the same, (n,), (n,) -> (t, n), the same
    T, n = vr.shape
    stater, statei = np.zeros(n, vr.dtype), np.zeros(n, vr.dtype)
    for t in range(T):
        for j in range(n):
            real = lr[j] * stater[j] - li[j] * statei[j] + vr[t, j]
            imaginary = lr[j] * statei[j] + li[j] * stater[j] + vi[t, j]
            stater[j], statei[j] = real, imaginary
            xr[t, j], xi[t, j] = real, imaginary


@njit(cache=True, fastmath=FAST)
def _run_back(gr, gi, lr, li, xr, xi, dr, di, sr, si):  # (t, n) but lr, li, sr, si (n,)
    T, n = gr.shape
    stater, statei = np.zeros(n, gr.dtype), np.zeros(n, gr.dtype)
    sumr, sumi = np.zeros(n, np.float64), np.zeros(n, np.float64)  # arrays made here overlap with no other
    for t in range(T - 1, -1, -1):
        for j in range(n):
            real = lr[j] * stater[j] + li[j] * statei[j] + gr[t, j]
            imaginary = lr[j] * statei[j] - li[j] * stater[j] + gi[t, j]
            stater[j], statei[j] = real, imaginary
            dr[t, j], di[t, j] = real, imaginary
        if t > 0:  # the state before the first step is zero
            for j in range(n):
                sumr[j] += xr[t - 1, j] * stater[j] + xi[t - 1, j] * statei[j]
                sumi[j] += xr[t - 1, j] * statei[j] - xi[t - 1, j] * stater[j]
    sr[:], si[:] = sumr, sumi


@njit(cache=True)
def _alone(vr, vi, lr, li, xr, xi):
    for b in range(len(vr)):
        _run(vr[b], vi[b], lr, li, xr[b], xi[b])


@njit(cache=True, parallel=True)
def _shared(vr, vi, lr, li, xr, xi):
    for b in prange(len(vr)):
        _run(vr[b], vi[b], lr, li, xr[b], xi[b])


@njit(cache=True)
def _alone_back(gr, gi, lr, li, xr, xi, dr, di, sr, si):
    for b in range(len(gr)):
        _run_back(gr[b], gi[b], lr, li, xr[b], xi[b], dr[b], di[b], sr[b], si[b])


@njit(cache=True, parallel=True)
def _shared_back(gr, gi, lr, li, xr, xi, dr, di, sr, si):
    for b in prange(len(gr)):
        _run_back(gr[b], gi[b], lr, li, xr[b], xi[b], dr[b], di[b], sr[b], si[b])


def scan(vr: Any, vi: Any, lr: Any, li: Any, xr: Any, xi: Any) -> None:
    """Write the states of ``x = lam * x + v`` over time, (b, t, n), into ``xr`` and ``xi``."""
    (_alone if vr.size < SMALL else _shared)(vr, vi, lr, li, xr, xi)


def scan_back(gr: Any, gi: Any, lr: Any, li: Any, xr: Any, xi: Any, *out: Any) -> None:
    """Write eq. 3: the gradients of the inputs, (b, t, n) twice, and each sequence's part of lambda's, (b, n) twice."""
    (_alone_back if gr.size < SMALL else _shared_back)(gr, gi, lr, li, xr, xi, *out)
