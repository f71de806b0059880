"""Matrices of a graph, their spectra, and filters made from them."""

from __future__ import annotations

import numpy as np
from scipy.linalg import circulant, expm, null_space

from corollary.formulas._graph_layers_tools import gcn, gcn_matrix
from corollary.formulas._graph_tools import (
    connected_graph,
    cycle,
    edges_of,
    scaled,
    star,
)
from corollary.formulas._library_tools import built, edges_and_weights, graph_of, tensor
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import hessian


@formula(
    "graph-matrices",
    latex=r"D = \mathrm{diag}(A\mathbf{1}), \qquad B^\top B = D - A",
    where="001 §16.2, §16.3",
    right=lambda B: B.T @ B,
    wrong=lambda B: np.abs(B).T @ np.abs(B),
    systems=("laplacian",),
    functions=("corollary.theory.incidence",),
)
def graph_matrices(rng, claim):
    """The signed incidence matrix, one row of -1 and +1 per edge, squares to degree minus adjacency."""
    from corollary.theory import incidence

    A = connected_graph(rng, 9)
    edges = edges_of(A)
    B = incidence(graph_of(A))[0].toarray()
    degree = np.bincount(edges.ravel(), minlength=9)
    return equal(claim(B), np.diag(degree) - A, tol=0.1)


def library_laplacian(A, kind):
    """The library's Laplacian of an adjacency matrix, dense."""
    from corollary.theory import laplacian

    return laplacian(graph_of(A), kind).toarray()


@formula(
    "graph-laplacian",
    latex=r"L = D - A = \sum_{i<j} a_{ij}(e_i - e_j)(e_i - e_j)^\top \succeq 0",
    where="001 §16.3; 003 Spectral graph theory",
    right=lambda A: library_laplacian(A, "combinatorial"),
    wrong=lambda A: np.diag(A.sum(1)) + A,
    systems=("laplacian",),
    functions=("corollary.theory.laplacian",),
)
def graph_laplacian(rng, claim):
    """Degree minus adjacency is a sum of one rank-one term per edge, hence positive semidefinite."""
    A = connected_graph(rng, 8) * np.abs(rng.normal(size=(8, 8)))
    A = A + A.T
    I = np.eye(8)
    edgewise = sum(A[i, j] * np.outer(I[i] - I[j], I[i] - I[j]) for i, j in edges_of(A))
    return all_of(
        equal(claim(A), edgewise, tol=1e-10), at_least(np.linalg.eigvalsh(claim(A)), 0.0, tol=1e-10)
    )


def half_sum(A, x):
    """Half the sum over ordered pairs of weighted squared differences."""
    return 0.5 * np.sum(A * (x[:, None] - x) ** 2)


def library_energy(A, x):
    """The library's Dirichlet energy."""
    from corollary.theory import dirichlet_energy

    return dirichlet_energy(graph_of(A), x)


@formula(
    "graph-dirichlet-energy",
    latex=r"x^\top L x = \sum_{i<j} a_{ij}(x_i - x_j)^2 = \tfrac12 \sum_{u,v} A_{uv}(x_u - x_v)^2, "
    r"\qquad \nabla^2(x^\top L x) = 2L",
    where="003 Spectral graph theory",
    right=lambda A, L, x: (library_energy(A, x), 2 * L),
    wrong=lambda A, L, x: (2 * half_sum(A, x), 2 * L),
    errata=(
        Erratum(
            "E81",
            r"$L = \nabla^2 (x^\top L x)$",
            r"$\nabla^2 (x^\top L x) = 2L$",
            lambda A, L, x: (half_sum(A, x), L),
            where="003 Spectral",
            kind="formula",
        ),
    ),
    systems=("laplacian",),
    functions=("corollary.theory.dirichlet_energy",),
)
def dirichlet_energy(rng, claim):
    """The quadratic form of the Laplacian adds up squared differences along edges; its Hessian is twice L."""
    A = connected_graph(rng, 6) * rng.uniform(0.5, 2.0, size=(6, 6))
    A = A + A.T
    L, x = np.diag(A.sum(1)) - A, rng.normal(size=6)
    energy, curvature = claim(A, L, x)
    return all_of(
        equal(energy, x @ L @ x, tol=1e-10),
        equal(energy, half_sum(A, x), tol=1e-10),
        equal(curvature, hessian(lambda z: z @ L @ z, x), tol=1e-5),  # second differences: about 1e-7
    )


@formula(
    "graph-normalised-laplacian",
    latex=r"\mathcal{L} = I - D^{-1/2} A D^{-1/2} = D^{-1/2} L D^{-1/2}, \qquad "
    r"\sigma(\mathcal{L}) \subset [0, 2], \qquad \mathcal{L} D^{1/2}\mathbf{1} = 0",
    where="001 §16.3; 003 Spectral graph theory",
    right=lambda A: library_laplacian(A, "normalised"),
    errata=(
        Erratum(
            "E80",
            r"$I - \tilde D^{-1/2} A \tilde D^{-1/2}$ with $\tilde D = D + I$",
            r"$I - D^{-1/2} A D^{-1/2}$",
            lambda A: np.eye(len(A)) - scaled(A, A.sum(1) + 1),
            where="001 §16.3",
            kind="formula",
        ),
    ),
    systems=("laplacian", "spectral"),
    functions=("corollary.theory.laplacian",),
)
def normalised_laplacian(rng, claim):
    """Scaled by the degrees the Laplacian has its spectrum in [0, 2]; bipartite graphs reach 2."""
    outcomes = []
    for A in (connected_graph(rng, 10), star(6)):
        d = A.sum(1)
        spectrum = np.linalg.eigvalsh(claim(A))
        outcomes += [
            equal(claim(A), scaled(np.diag(d) - A, d), tol=1e-10),
            equal(claim(A) @ np.sqrt(d), 0.0, tol=1e-10),
            at_least(spectrum, 0.0, tol=1e-10),
            at_most(spectrum, 2.0, tol=1e-10),
        ]
    return all_of(*outcomes, equal(spectrum.max(), 2.0, tol=1e-10))


@formula(
    "graph-fourier",
    latex=r"L = U\Lambda U^\top, \quad \hat x = U^\top x, \quad "
    r"x * y = U\big((U^\top x) \odot (U^\top y)\big), \quad h(L)x = U h(\Lambda) U^\top x",
    where="001 §16.3; 003 Spectral graph theory",
    right=lambda U, x, y: U @ ((U.T @ x) * (U.T @ y)),
    wrong=lambda U, x, y: U.T @ ((U @ x) * (U @ y)),
    systems=("spectral", "laplacian"),
    functions=(
        "corollary.nn.SpectralConv",
        "corollary.theory.graph_filter",
        "corollary.theory.graph_fourier",
    ),
)
def graph_fourier(rng, claim):
    """Convolution on a graph multiplies coefficients in the eigenbasis of the Laplacian.

    A filter's own spectrum is the function of the Laplacian it applies.
    """
    from corollary import theory
    from corollary.nn import SpectralConv

    A = connected_graph(rng, 8) * rng.uniform(0.5, 2.0, size=(8, 8))
    A = A + A.T
    graph, L = graph_of(A), np.diag(A.sum(1)) - A
    U = theory.graph_fourier(graph, "combinatorial")[1]
    x, flat = rng.normal(size=8), U.sum(1)  # flat: every coefficient is one
    heat = expm(-0.3 * L)
    filtered = theory.graph_filter(graph, x, lambda s: np.exp(-0.3 * s), "combinatorial")
    # a layer with two knots applies a + b s, here to the frequencies of the normalised Laplacian
    a, b = rng.normal(size=2)
    layer = built(lambda: SpectralConv(1, 1, knots=2, bias=False), weight=[a, a + 2 * b])
    learned = layer(tensor(x[:, None]), *edges_and_weights(A))[:, 0]
    normal, V = np.eye(8) - scaled(A, A.sum(1)), theory.graph_fourier(graph)[1]
    return all_of(
        equal(claim(U, x, flat), x, tol=1e-10),
        equal(claim(U, x, heat @ flat), heat @ x, tol=1e-10),
        equal(claim(U, x, heat @ flat), filtered, tol=1e-10),
        equal(claim(V, x, (a * np.eye(8) + b * normal) @ V.sum(1)), learned, tol=1e-10),
    )


def polynomial_filter_right(alpha, L, X, b, first=0):
    """Sum of alpha[i, in, out] L^i X_in + b_out, one product with L per degree."""
    power, out = np.linalg.matrix_power(L, first) @ X, np.zeros((len(L), alpha.shape[2])) + b
    for coefficients in alpha:
        out = out + power @ coefficients
        power = L @ power
    return out


@formula(
    "graph-polynomial-filter",
    latex=r"p(L)x = \sum_{i=0}^{K} \alpha_i L^i x, \qquad X^{j}_{out} = \sum_i p_{ij}(L) X^{i}_{in} + b_j",
    where="003 Spectral graph theory",
    right=polynomial_filter_right,
    wrong=lambda alpha, L, X, b: polynomial_filter_right(alpha, L, X, b, first=1),
    systems=("spectral", "chebnet"),
    functions=("corollary.theory.graph_filter",),
)
def polynomial_filter(rng, claim):
    """A polynomial of degree K in the Laplacian is a spectral filter that reaches exactly K hops."""
    from corollary.theory import graph_filter

    n, K = 12, 3
    A = np.diag(np.ones(n - 1), 1)
    A = A + A.T  # a path: node j is j hops from node 0
    L = np.diag(A.sum(1)) - A
    alpha, X, b = rng.normal(size=(K + 1, 2, 3)), rng.normal(size=(n, 2)), rng.normal(size=3)
    spectral, graph = np.zeros((n, 3)) + b, graph_of(A)
    for i in range(2):
        for j in range(3):
            response = np.polynomial.Polynomial(alpha[:, i, j])
            spectral[:, j] += graph_filter(graph, X[:, i], response, "combinatorial")
    bump = np.zeros((n, 2))
    bump[0] = 1.0
    reach = np.abs(claim(alpha, L, bump, 0.0)).max(1) > 0
    return all_of(equal(claim(alpha, L, X, b), spectral, tol=1e-8), equal(reach, np.arange(n) <= K, tol=0.1))


@formula(
    "graph-shift-filter",
    latex=r"HA = AH \iff H = p(A) \quad\text{if } A \text{ has distinct eigenvalues}",
    where="002 Graphs",
    right=lambda A: np.diff(np.linalg.eigvalsh(A)).min() > 1e-9,
    errata=(
        Erratum(
            "E82",
            "every filter that commutes with $A$ is a polynomial in $A$",
            "if the eigenvalues of $A$ are distinct",
            lambda A: True,
            where="002 Graphs",
            kind="claim",
            counterexample=r"exchanging two nodes of a triangle commutes with $A$; every $aI + bA$ treats all "
            r"pairs alike",
        ),
    ),
    systems=("spectral",),
)
def shift_filter(rng, claim):
    """Every filter that commutes with the shift is a polynomial in it exactly if its eigenvalues differ."""
    M = rng.normal(size=(5, 5))
    path = np.diag(np.ones(4), 1)
    verdicts, truth = [], []
    signed = np.array([[0.0, -1.0], [-1.0, 0.0]])
    for A in (M + M.T, path + path.T, np.ones((3, 3)) - np.eye(3), cycle(6), star(5), signed):
        n = len(A)
        commutant = null_space(np.kron(A, np.eye(n)) - np.kron(np.eye(n), A)).shape[1]
        powers = np.stack([np.linalg.matrix_power(A / np.linalg.norm(A, 2), k).ravel() for k in range(n)])
        verdicts.append(claim(A))
        truth.append(commutant == np.linalg.matrix_rank(powers, tol=1e-9))
    return equal(verdicts, truth, tol=0.1)


@formula(
    "graph-cyclic-toeplitz",
    latex=r"A = \text{cycle}: \quad (\hat A x)_i = \tfrac13(x_{i-1} + x_i + x_{i+1})",
    where="002 Graphs",
    right=lambda n: np.bincount([0, 1, n - 1], minlength=n) / 3,
    wrong=lambda n: np.bincount([1, n - 1], minlength=n) / 2,
    systems=("gcn", "convolution"),
    functions=("corollary.nn.GCNConv",),
)
def cyclic_toeplitz(rng, claim):
    """On a ring the GCN matrix is circulant: the layer is a circular convolution with a window of three."""
    n = int(rng.integers(5, 12))
    x = rng.normal(size=n)
    by_fourier = np.fft.ifft(np.fft.fft(claim(n)) * np.fft.fft(x)).real
    return all_of(
        equal(by_fourier, gcn(cycle(n), x[:, None], np.eye(1))[:, 0], tol=1e-12),
        equal(circulant(claim(n)), gcn_matrix(cycle(n)), tol=1e-12),
    )
