"""Colour refinement of many graphs at once, compiled."""

from __future__ import annotations

import numpy as np
from numba import prange

from corollary.compiled import njit

__all__ = ["refine"]


@njit(inline="always")
def _mix(x):
    """Scatter the bits of a 64-bit number (the finaliser of SplitMix64)."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(parallel=True, cache=True)
def refine(start, index, offsets, edges, colours, hashes):
    """Fill ``colours[1:]`` (rounds + 1, nodes) from ``colours[0]``, and the hash of every graph.

    A colour is hashed with the sum of its neighbours' hashed colours: the sum of hashes is that of a multiset.
    ``edges`` are labels, one for each entry of ``index``, or empty; a neighbour's colour is hashed together with it.
    """
    rounds = colours.shape[0] - 1
    for g in prange(offsets.size - 1):
        total = _mix(np.uint64(offsets[g + 1] - offsets[g]))
        for t in range(rounds + 1):
            seen = np.uint64(0)
            for v in range(offsets[g], offsets[g + 1]):
                if t > 0:
                    around = np.uint64(0)
                    for e in range(start[v], start[v + 1]):
                        colour = colours[t - 1, index[e]] + np.uint64(0x9E3779B97F4A7C15)
                        if edges.size:
                            colour = _mix(colour) + np.uint64(3) * _mix(
                                edges[e] + np.uint64(0xD1B54A32D192ED03)
                            )
                        around += _mix(colour)
                    colours[t, v] = _mix(colours[t - 1, v] * np.uint64(3) + _mix(around + np.uint64(1)))
                seen += _mix(colours[t, v] ^ np.uint64(0xA5A5A5A5DEADBEEF))
            total = _mix(total * np.uint64(31) + seen)
        hashes[g] = total
