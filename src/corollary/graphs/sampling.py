"""Neighbours of some nodes, sampled: training on graphs of which only a part fits at a time.

Around a batch of nodes, up to k edges that enter each are drawn without replacement, then the same around
their sources, and so on, once per layer. Only that part of the graph is computed; its size is bounded by the batch
and the k's, whatever the size of the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary.compiled import njit

__all__ = ["neighbourhood"]


@njit(cache=True)
def _next(state):
    state += np.uint64(0x9E3779B97F4A7C15)
    x = state
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, x ^ (x >> np.uint64(31))


@njit(cache=True)
def _sample(start, index, seeds, counts, n, state):
    place = np.full(n, -1, np.int64)
    nodes = [np.int64(0) for _ in range(0)]
    sources, targets, entries = (
        [np.int64(0) for _ in range(0)],
        [np.int64(0) for _ in range(0)],
        [np.int64(0) for _ in range(0)],
    )
    for v in seeds:
        if place[v] < 0:
            place[v] = len(nodes)
            nodes.append(v)
    begin = 0
    for k in counts:
        end = len(nodes)
        for at in range(begin, end):
            v = nodes[at]
            degree = start[v + 1] - start[v]
            chosen = np.empty(min(degree, k), np.int64)
            for j in range(len(chosen)):  # Floyd's draw of a subset: one number each, no repetition
                pick = j
                if degree > k:
                    top = degree - k + j
                    state, number = _next(state)
                    pick = np.int64(number % np.uint64(top + 1))
                    for i in range(j):
                        if chosen[i] == pick:
                            pick = top
                            break
                chosen[j] = pick
            for pick in chosen:
                e = start[v] + pick
                u = index[e]
                if place[u] < 0:
                    place[u] = len(nodes)
                    nodes.append(np.int64(u))
                sources.append(place[u])
                targets.append(np.int64(at))
                entries.append(np.int64(e))
        begin = end
    return np.array(nodes), np.array(sources), np.array(targets), np.array(entries)


def neighbourhood(
    matrix: Any, seeds: Tensor, counts: tuple[int, ...], seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the part of a graph that ``seeds`` see through sampled edges.

    Parameters
    ----------
    matrix : Sparse
        The whole graph, as :func:`corollary.nn.sparse.sparse` makes it.
    seeds : tensor of int64 of shape (b,)
        The nodes in the middle, each once; they come first in the result.
    counts : tuple of int
        The most edges drawn per node, hop by hop.
    seed : int
        Decides the draw.

    Returns
    -------
    nodes : tensor of shape (m,)
        The nodes of the part.
    edge_index : tensor of shape (2, e)
        Its edges, in the part's own numbers.
    edges : tensor of shape (e,)
        Which edges of the whole they are.
    """
    rows = matrix.compressed(False)
    found = _sample(
        rows.start, rows.index, seeds.cpu().numpy(), np.array(counts), matrix.shape[0], np.uint64(seed)
    )
    nodes, source, target, entry = (torch.from_numpy(part).to(seeds.device) for part in found)
    return nodes, torch.stack([source, target]), rows.edge.to(seeds.device)[entry]
