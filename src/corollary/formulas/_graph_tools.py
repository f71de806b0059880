"""Graphs as dense symmetric adjacency matrices, groups as lists of permutations, for the checks on graphs."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
from scipy.linalg import circulant
from scipy.optimize import linprog


def connected_graph(rng, n, p=0.3):
    """A random tree plus random extra edges."""
    A = np.triu(rng.random((n, n)) < p, 1).astype(float)
    for i in range(1, n):
        A[rng.integers(i), i] = 1.0
    return A + A.T


def star(n):
    """One centre, joined to n - 1 leaves."""
    A = np.zeros((n, n))
    A[0, 1:] = A[1:, 0] = 1.0
    return A


def cycle(n):
    """The ring of n nodes."""
    return circulant(np.eye(n)[1] + np.eye(n)[-1])


def complete_bipartite(n):
    """Two sides of n nodes, every cross edge."""
    return np.kron([[0.0, 1.0], [1.0, 0.0]], np.ones((n, n)))


def edges_of(A):
    """The pairs i < j with an edge."""
    return np.argwhere(np.triu(A, 1))


def permutation_matrix(rng, n):
    """A random permutation that is not its own inverse, so that P and its transpose differ."""
    while True:
        P = np.eye(n)[rng.permutation(n)]
        if not np.array_equal(P, P.T):
            return P


def scaled(A, degrees):
    """D^(-1/2) A D^(-1/2)."""
    return A / np.sqrt(np.outer(degrees, degrees))


def propagation(A):
    """The matrix of a GCN layer, self-loops in adjacency and degree."""
    return scaled(A + np.eye(len(A)), A.sum(1) + 1)


S3 = [np.array(g) for g in permutations(range(3))]


def composed(g, h):
    """(gh)(s) = g(h(s))."""
    return g[h]


def multiset(sums):
    """The numbers with these power sums p_0..p_4, by Newton's identities and a root finder."""
    size = round(sums[0])
    e = [1.0]
    for k in range(1, size + 1):
        e.append(sum((-1) ** (i - 1) * e[k - i] * sums[i] for i in range(1, k + 1)) / k)
    return np.sort(np.roots([(-1) ** k * c for k, c in enumerate(e)]).real)


def spider(*legs):
    """A centre with paths of these lengths hanging from it."""
    A, start = np.zeros((1 + sum(legs), 1 + sum(legs))), 1
    for leg in legs:
        path = [0, *range(start, start + leg)]
        A[path[:-1], path[1:]] = A[path[1:], path[:-1]] = 1.0
        start += leg
    return A


def indistinguishable(signature, A, B, labels=None):
    """Whether colour refinement with this signature, from these labels or none, ends with equal histograms."""
    colours = labels or [[0] * len(A), [0] * len(B)]
    for _ in range(len(A)):
        signed = [
            [signature(c[i], [c[j] for j in np.flatnonzero(M[i])]) for i in range(len(M))]
            for c, M in zip(colours, (A, B))
        ]
        names = {s: k for k, s in enumerate(sorted(set(signed[0]) | set(signed[1])))}
        colours = [[names[s] for s in graph] for graph in signed]
    return Counter(colours[0]) == Counter(colours[1])


def fractionally_isomorphic(A, B):
    """Whether AX = XB has a doubly stochastic solution (Tinhofer: equivalent to equal refinements)."""
    n, I = len(A), np.eye(len(A))
    rows, columns = np.kron(I, np.ones(n)), np.kron(np.ones(n), I)
    system = np.vstack([np.kron(A, I) - np.kron(I, B.T), rows, columns])
    target = np.concatenate([np.zeros(n * n), np.ones(2 * n)])
    return linprog(np.zeros(n * n), A_eq=system, b_eq=target).status == 0
