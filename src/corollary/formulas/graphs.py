"""Geometric deep learning: group actions, sets, graph matrices and spectra, and graph networks."""

from __future__ import annotations

import numpy as np
import torch
from numpy.polynomial import chebyshev
from scipy.linalg import circulant, expm, null_space
from scipy.special import softmax

from corollary.formulas._graph_tools import (
    S3,
    complete_bipartite,
    composed,
    connected_graph,
    cycle,
    edges_of,
    fractionally_isomorphic,
    indistinguishable,
    multiset,
    permutation_matrix,
    propagation,
    scaled,
    spider,
    star,
)
from corollary.formulas._library_tools import built, edges_and_weights, graph_of, tensor
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import hessian

# Groups


@formula(
    "geo-group-action",
    latex=r"e(x) = x, \quad g(h(x)) = (gh)(x), \quad \rho(gh) = \rho(g)\rho(h), \quad "
    r"(\rho(h)x)(s) = x(h^{-1}s)",
    where="003 Geometric",
    right=lambda h, x: x[np.argsort(h)],
    wrong=lambda h, x: x[h],
    systems=("equivariance",),
    functions=("corollary.theory.symmetry.Group", "corollary.theory.symmetry.cyclic"),
)
def group_action(rng, claim):
    """A group acts on signals by pulling the argument back through the inverse element.

    Only so do two actions compose in the order of the group, which a non-commutative group shows.
    """
    from corollary.theory.symmetry import cyclic

    x = rng.normal(size=3)
    composition = [claim(g, claim(h, x)) - claim(composed(g, h), x) for g in S3 for h in S3]
    carried = [claim(h, np.eye(3)[s]) - np.eye(3)[h[s]] for h in S3 for s in range(3)]
    n, k = 7, int(rng.integers(1, 7))
    z = rng.normal(size=n)
    turned = claim((np.arange(n) + k) % n, z)
    shift = turned - np.roll(z, k)
    return all_of(
        equal(composition, 0.0, tol=1e-12),
        equal(carried, 0.0, tol=1e-12),
        equal(shift, 0.0, tol=1e-12),
        equal(turned, cyclic(n).act(k, tensor(z)), tol=1e-12),
        equal(claim(np.arange(3), x), x, tol=1e-12),
    )


@formula(
    "geo-invariance-equivariance",
    latex=r"f(\rho(g)x) = f(x), \qquad f(\rho(g)x) = \rho(g)f(x); \qquad f(PX) = f(X), \quad f(PX) = Pf(X)",
    where="001 §16.1; 003 Geometric",
    right=lambda P, invariant, equivariant: (invariant, P @ equivariant),
    wrong=lambda P, invariant, equivariant: (invariant, P.T @ equivariant),
    systems=("equivariance",),
    functions=("corollary.theory.invariance", "corollary.theory.equivariance"),
)
def invariance_equivariance(rng, claim):
    """A symmetry of the input leaves an invariant map alone and carries over to an equivariant one."""
    from corollary.theory import symmetry

    X, W = rng.normal(size=(6, 3)), rng.normal(size=(3, 3))

    def attend(Z):
        return softmax(Z @ W @ Z.T, axis=1) @ Z

    def pool(Z):
        return np.tanh(Z @ W).max(0)

    P = permutation_matrix(rng, 6)
    invariant, equivariant = claim(P, pool(X), attend(X))
    act = [lambda Z: tensor(P) @ Z]
    still = symmetry.invariance(lambda Z: tensor(pool(Z.numpy())), tensor(X), act)
    carried = symmetry.equivariance(
        lambda Z: tensor(attend(Z.numpy())), tensor(X), act, [lambda Y: tensor(claim(P, None, Y.numpy())[1])]
    )
    return all_of(
        equal(invariant, pool(P @ X), tol=1e-10),
        equal(equivariant, attend(P @ X), tol=1e-10),
        equal([still.error, carried.error], 0.0, tol=1e-10),
    )


def group_convolution_right(product, inverse, x, theta):
    """(x * theta)(g) = sum over u of x(u) theta(g^-1 u); product is the multiplication table."""
    from corollary.theory.symmetry import Group, group_convolution

    group = Group(torch.tensor(product), torch.tensor(inverse))
    return group_convolution(group, tensor(x), tensor(theta)).numpy()


@formula(
    "geo-group-convolution",
    latex=r"(x * \theta)(g) = \int_G x(u)\,\theta(g^{-1}u)\,du",
    where="003 Geometric",
    right=group_convolution_right,
    wrong=lambda product, inverse, x, theta: np.array(
        [x @ theta[product[:, inverse[g]]] for g in range(len(x))]
    ),
    systems=("equivariance",),
    functions=("corollary.theory.group_convolution",),
)
def group_convolution(rng, claim):
    """Correlating a signal with all translates of a filter commutes with translating the signal.

    On the cyclic group it is circular cross-correlation.
    """
    where = {tuple(g): i for i, g in enumerate(S3)}
    product = np.array([[where[tuple(composed(g, h))] for h in S3] for g in S3])
    inverse = np.array([where[tuple(np.argsort(g))] for g in S3])
    x, theta = rng.normal(size=(2, 6))
    y = claim(product, inverse, x, theta)
    moved = [
        claim(product, inverse, x[product[inverse[h]]], theta) - y[product[inverse[h]]] for h in range(6)
    ]
    n = 8
    a, b = rng.normal(size=(2, n))
    table = np.add.outer(np.arange(n), np.arange(n)) % n
    fourier = np.fft.ifft(np.fft.fft(a) * np.conj(np.fft.fft(b))).real
    return all_of(
        equal(moved, 0.0, tol=1e-10), equal(claim(table, -np.arange(n) % n, a, b), fourier, tol=1e-10)
    )


def smoothing_right(f, orbit):
    """The mean of f over an orbit, by the library's average over the actions that lead there."""
    from corollary.theory import group_average

    average = group_average(lambda z: tensor(f(z)), [lambda _, z=z: z for z in orbit])
    return float(average(None))


@formula(
    "geo-smoothing",
    latex=r"(S_G f)(x) = \frac{1}{|G|} \sum_{g \in G} f(\rho(g)x)",
    where="003 Geometric",
    right=smoothing_right,
    wrong=lambda f, orbit: sum(f(z) for z in orbit),
    systems=("equivariance",),
    functions=("corollary.theory.group_average",),
)
def smoothing(rng, claim):
    """Averaging a function over the group makes it invariant, and leaves invariant functions as they are."""
    W, x = rng.normal(size=(4, 3)), rng.normal(size=3)

    def f(z):
        return np.sin(W @ z).sum()

    def symmetric(z):
        return np.sin(z).prod() + z.max()

    def orbit(z):
        return [z[g] for g in S3]

    moved = [claim(f, orbit(x[g])) - claim(f, orbit(x)) for g in S3]
    return all_of(equal(moved, 0.0, tol=1e-12), equal(claim(symmetric, orbit(x)), symmetric(x), tol=1e-12))


# Sets


def pooled(elements, how):
    """One vector for a set, joined as the library's layers join their elements."""
    from corollary.nn.deep_sets import set_pool

    return set_pool(tensor(elements)[None], None, how)[0].numpy()


@formula(
    "deep-sets",
    latex=r"f(X) = \rho\Big(\sum_m \phi(x_m)\Big), \qquad f(X, x_i) = \phi\Big(\sum_j \psi(x_j),\, x_i\Big)",
    where="001 §16.1; 003 Geometric",
    right=lambda rho, phi, X: rho(pooled([phi(x) for x in X], "sum")),
    wrong=lambda rho, phi, X: rho(sum(phi(x) for x in X) / len(X)),
    systems=("deep-sets", "deep-sets-regressor"),
    functions=("corollary.nn.deep_sets.set_pool",),
)
def deep_sets(rng, claim):
    """A sum of encoded elements can hold a whole set of bounded size, so any set function factors through it.

    Shown with power sums, from which a decoder recovers sets of up to four numbers exactly.
    """

    def powers(x):
        return x ** np.arange(5.0)

    gaps = []
    for size in (2, 3, 4):
        X = rng.permutation(np.arange(size) - 1.5 + rng.uniform(-0.3, 0.3, size=size))
        for f in (np.prod, np.ptp, np.median):
            gaps.append(claim(lambda sums, f=f: f(multiset(sums)), powers, X) - f(X))

    # Equivariant form: the rank of each element is read off the sum and the element itself.
    ranks = [claim(lambda sums, x=x: np.sum(multiset(sums) < x - 1e-6), powers, X) for x in X]
    return all_of(equal(gaps, 0.0, tol=1e-8), equal(ranks, np.argsort(np.argsort(X)), tol=0.1))


@formula(
    "pointnet",
    latex=r"f(X) = \gamma\Big(\max_{i} h(x_i)\Big)",
    where="001 §16.1",
    right=lambda gamma, h, X: gamma(pooled(h(X), "max")),
    wrong=lambda gamma, h, X: gamma(h(X).mean(0)),
    systems=("pointnet", "pointnet-parts"),
    functions=("corollary.nn.deep_sets.set_pool",),
)
def pointnet(rng, claim):
    """Pool shared point features by their maximum: the order of the points does not matter.

    Nor do points beyond the critical ones, where some feature is largest.
    """
    W, V, X = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=(30, 3))

    def h(Z):
        return np.tanh(Z @ W)

    def gamma(z):
        return np.tanh(z @ V)

    full = claim(gamma, h, X)
    largest = [max(np.tanh(x @ W[:, j]) for x in X) for j in range(4)]
    critical = X[np.unique(np.argmax(h(X), axis=0))]
    return all_of(
        equal(full, np.tanh(np.array(largest) @ V), tol=1e-12),
        equal(claim(gamma, h, rng.permutation(X)), full, tol=1e-14),
        equal(claim(gamma, h, critical), full, tol=1e-14),
    )


# Graph matrices


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


def chebnet_right(theta, A, x):
    """The library's layer on the normalised Laplacian, with one coefficient per polynomial."""
    from corollary.nn import ChebConv

    largest = np.linalg.eigvalsh(np.eye(len(A)) - scaled(A, A.sum(1)))[-1]
    parts = {f"lins__{k}__weight": coefficient for k, coefficient in enumerate(theta)}
    layer = built(lambda: ChebConv(1, 1, len(theta), bias=False), **parts)
    return layer(tensor(x[:, None]), edges_and_weights(A)[0], lambda_max=largest)[:, 0].numpy()


def chebyshev_filter(theta, M, x):
    """Sum of theta_k T_k(M) x by the three-term recursion."""
    before, now = x, M @ x
    out = theta[0] * before + theta[1] * now
    for coefficient in theta[2:]:
        before, now = now, 2 * M @ now - before
        out = out + coefficient * now
    return out


@formula(
    "graph-chebnet",
    latex=r"g_\theta(L)x \approx \sum_{k=0}^{K} \theta_k T_k(\hat L)x, \qquad "
    r"\hat L = \frac{2}{\lambda_{\max}} L - I",
    where="001 §16.3",
    right=chebnet_right,
    errata=(
        Erratum(
            "E80",
            r"$T_k$ of the normalised Laplacian itself, whose eigenvalues reach 2",
            r"$T_k(\frac{2}{\lambda_{\max}} L - I)$",
            lambda theta, A, x: chebyshev_filter(theta, np.eye(len(A)) - scaled(A, A.sum(1)), x),
            where="001 §16.3",
            kind="formula",
        ),
    ),
    systems=("chebnet",),
    functions=("corollary.nn.ChebConv",),
)
def chebnet(rng, claim):
    """Chebyshev polynomials of the Laplacian, rescaled to [-1, 1], approximate any smooth filter."""
    A = connected_graph(rng, 10)
    L = np.eye(10) - scaled(A, A.sum(1))
    top = np.linalg.norm(L, 2)
    theta = chebyshev.chebinterpolate(lambda s: np.exp(-2 * top * (s + 1) / 2), 20)
    x = rng.normal(size=10)
    return equal(claim(theta, A, x), expm(-2 * L) @ x, tol=1e-9)


# Graph networks


def gcn(A, X, W):
    """The library's layer without a bias."""
    from corollary.nn import GCNConv

    layer = built(lambda: GCNConv(*W.shape, bias=False), lin__weight=W.T)
    return layer(tensor(X), edges_and_weights(A)[0]).numpy()


def gcn_matrix(A):
    """The matrix by which the library's layer mixes nodes."""
    return gcn(A, np.eye(len(A)), np.eye(len(A)))


@formula(
    "gcn-layer",
    latex=r"X' = \sigma(\hat A X W), \qquad \hat A = \tilde D^{-1/2}(A + I)\tilde D^{-1/2}, \qquad "
    r"q_{ij} = \frac{a_{ij} + \delta_{ij}}{\sqrt{\tilde d_i \tilde d_j}}",
    where="001 §16.2; 002 Graphs; 003 Graph neural nets",
    right=lambda A, X, W: np.tanh(gcn(A, X, W)),
    wrong=lambda A, X, W: np.tanh(scaled(A + np.eye(len(A)), A.sum(1)) @ X @ W),
    systems=("gcn",),
    functions=("corollary.nn.GCNConv",),
)
def gcn_layer(rng, claim):
    """Each node adds itself and its neighbours, weighted by the roots of both degrees, self-loops counted."""
    A, X, W = connected_graph(rng, 7), rng.normal(size=(7, 4)), rng.normal(size=(4, 3))
    neighbours = [[i, *np.flatnonzero(A[i])] for i in range(7)]
    looped = []
    for around in neighbours:
        mixed = sum(X[j] / (len(around) * len(neighbours[j])) ** 0.5 for j in around)
        looped.append([np.tanh(mixed @ W[:, c]) for c in range(3)])
    P = permutation_matrix(rng, 7)
    return all_of(
        equal(claim(A, X, W), looped, tol=1e-12),
        equal(claim(P @ A @ P.T, P @ X, W), P @ claim(A, X, W), tol=1e-12),
    )


def spectrum_claim(low=-1.0, loops=False):
    """Bounds on the spectrum of the GCN matrix, and the matrix said to have largest eigenvalue two."""

    def claim(A):
        inner = scaled(A + loops * np.eye(len(A)), A.sum(1))
        return low, 1.0, inner if loops else np.eye(len(A)) + inner

    return claim


@formula(
    "gcn-spectrum",
    latex=r"-1 < \lambda_{\min}(\hat A), \qquad \lambda_{\max}(\hat A) = 1, \qquad "
    r"\lambda_{\max}(I + D^{-1/2} A D^{-1/2}) = 2",
    where="002 Graphs; 003 Graph neural nets",
    right=spectrum_claim(),
    errata=(
        Erratum(
            "E79",
            r"$\lambda_{\min}(\tilde D^{-1/2}\tilde A\tilde D^{-1/2}) \ge 0$",
            r"only $> -1$",
            spectrum_claim(low=0.0),
            where="003 GCN",
            kind="claim",
            counterexample=r"$K_{3,3}$ has the eigenvalue $-\frac12$",
        ),
        Erratum(
            "T17",
            r"$\lambda_{\max} = 2$ for $D^{-1/2}\tilde A D^{-1/2}$",
            r"$\lambda_{\max} = 2$ for $I + D^{-1/2} A D^{-1/2}$",
            spectrum_claim(loops=True),
            where="002 Graphs",
            kind="typing",
        ),
    ),
    systems=("gcn", "laplacian"),
    functions=("corollary.nn.GCNConv",),
)
def gcn_spectrum(rng, claim):
    """The renormalised matrix of a GCN has top eigenvalue one and all others above minus one.

    Without the renormalisation the top eigenvalue is two. Large bipartite graphs come close to minus one.
    """
    outcomes = []
    for A in (
        connected_graph(rng, 9),
        connected_graph(rng, 12, 0.6),
        complete_bipartite(3),
        complete_bipartite(60),
    ):
        low, high, doubled = claim(A)
        spectrum = np.linalg.eigvalsh(gcn_matrix(A))
        edges = np.nonzero(A)
        inner = [(A[i].sum() * A[j].sum()) ** -0.5 for i, j in zip(*edges)]
        outcomes += [
            at_least(spectrum, low, tol=1e-10),
            equal(spectrum.max(), high, tol=1e-10),
            equal(np.linalg.eigvalsh(doubled).max(), 2.0, tol=1e-10),
            equal(doubled[edges], inner, tol=1e-12),
        ]
    # K_{60,60} has the eigenvalue -59/61, so no bound better than that can hold.
    return all_of(*outcomes, equal(spectrum.min(), low, tol=0.05))


def oversmoothing_limit(A, x):
    """The projection on the top eigenvector sqrt(d + 1)."""
    u = np.sqrt(A.sum(1) + 1)
    return u * (u @ x) / (u @ u)


@formula(
    "gcn-oversmoothing",
    latex=r"\lim_{k\to\infty} \hat A^k x = \frac{\langle u, x\rangle}{\langle u, u\rangle}\, u, \qquad "
    r"u = \tilde D^{1/2}\mathbf{1}",
    where="001 §16.2",
    right=oversmoothing_limit,
    errata=(
        Erratum(
            "E83",
            "all nodes converge to the same value",
            r"to a multiple of $\sqrt{d_i + 1}$",
            lambda A, x: np.full(len(x), x.mean()),
            where="001 §16.2",
            kind="claim",
            counterexample=r"a star of four leaves: centre and leaf end in the ratio $\sqrt{5/2}$",
        ),
    ),
    systems=("gcn", "laplacian"),
    functions=("corollary.theory.oversmoothing",),
)
def gcn_oversmoothing(rng, claim):
    """Long mixing over a connected graph leaves each node the root of its degree times a common factor."""
    from corollary.theory import oversmoothing

    outcomes = []
    for A in (star(5), connected_graph(rng, 10)):
        x = rng.uniform(0.5, 1.5, size=len(A))
        deep = np.linalg.matrix_power(propagation(A), 4096) @ x
        outcomes.append(equal(claim(A, x), deep, tol=1e-6))
        # by the library's measure the limit has nothing outside the multiples, and no energy
        left = oversmoothing(graph_of(A), claim(A, x), layers=1)
        outcomes.append(equal([*left.distance, *left.energy], 0.0, tol=1e-6))
    return all_of(*outcomes)


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
    "gnn-permutation-laws",
    latex=r"f(PX, PAP^\top) = f(X, A), \qquad f(PX, PAP^\top) = P f(X, A)",
    where="003 Graph neural nets",
    right=lambda P, X, A: (P @ X, P @ A @ P.T),
    wrong=lambda P, X, A: (P @ X, P.T @ A @ P),
    systems=("mpnn", "equivariance"),
    functions=("corollary.nn.MPNNConv",),
)
def permutation_laws(rng, claim):
    """Renaming nodes permutes rows of the features and both rows and columns of the adjacency.

    Any layer built from neighbourhoods follows, and a pooled output does not change.
    """
    from corollary.nn import MPNNConv

    A, X = connected_graph(rng, 8), rng.normal(size=(8, 3))
    weights = {f"{name}__weight": rng.normal(size=(4, 3)) for name in ("at_target", "at_source", "own")}
    weights |= {"mix__weight": rng.normal(size=(4, 4))}
    weights |= {f"{name}__bias": rng.normal(size=4) for name in ("at_target", "own")}
    net = built(lambda: MPNNConv(3, 4), **weights)

    def layer(Z, M):
        return net(tensor(Z), edges_and_weights(M)[0]).numpy()

    P = permutation_matrix(rng, 8)
    moved = layer(*claim(P, X, A))
    return all_of(
        equal(moved, P @ layer(X, A), tol=1e-10), equal(moved.max(0), layer(X, A).max(0), tol=1e-10)
    )


@formula(
    "gnn-flavours",
    latex=r"\phi\Big(x_i, \sum_j c_{ij}\psi(x_j)\Big) \subset \phi\Big(x_i, \sum_j a(x_i, x_j)\psi(x_j)\Big) "
    r"\subset \phi\Big(x_i, \sum_j \psi(x_i, x_j)\Big)",
    where="003 Graph neural nets",
    right=lambda a, psi: lambda xi, xj: a(xi, xj) * psi(xj),
    wrong=lambda a, psi: lambda xi, xj: a(xj, xi) * psi(xj),
    systems=("gcn", "gat", "mpnn"),
    functions=("corollary.nn.MessagePassing",),
)
def flavours(rng, claim):
    """Fixed weights are a special case of attention, and attention of general messages.

    The message of the pair is the weight the receiver gives times the sender's content.
    """
    from corollary.nn import MessagePassing

    class Layer(MessagePassing):
        """Pass the messages of a function of receiver and sender."""

        def __init__(self, function):
            super().__init__()
            self.function = function

        def message(self, x_i, x_j):
            return tensor([self.function(*pair) for pair in zip(x_i.numpy(), x_j.numpy())])

    n = 6
    A, V, Q = connected_graph(rng, n), rng.normal(size=(4, 3)), rng.normal(size=(4, 4))
    X = np.column_stack([rng.normal(size=(n, 3)), A.sum(1)])  # the degree is one of the features

    def pass_messages(message):
        return Layer(message).propagate(edges_and_weights(A)[0], x=tensor(X)).numpy()

    def psi(x):
        return np.tanh(x @ V)

    attention = pass_messages(claim(lambda xi, xj: np.exp(np.tanh(xi @ Q @ xj)), psi))
    convolution = pass_messages(claim(lambda xi, xj: 1 / xi[3], psi))
    return all_of(
        equal(attention, (A * np.exp(np.tanh(X @ Q @ X.T))) @ np.tanh(X @ V), tol=1e-11),
        equal(convolution, np.diag(1 / A.sum(1)) @ A @ np.tanh(X @ V), tol=1e-11),
    )


def gat_by_columns(A, X, W, a):
    """One attention head whose weights sum to one over receivers instead of senders."""
    H = X @ W
    half = len(a) // 2
    score = (H @ a[:half])[:, None] + (H @ a[half:])[None, :]
    score = np.where(score > 0, score, 0.2 * score)
    return np.tanh(softmax(np.where(A > 0, score, -np.inf), axis=0) @ H)


def gat_library(A, X, W, a):
    """The library's layer with one head, without bias and self-loops; the receiver's half of a comes first."""
    from corollary.nn import GATConv

    half = len(a) // 2
    layer = built(
        lambda: GATConv(*W.shape, add_self_loops=False, bias=False),
        lin__weight=W.T,
        att_dst=a[:half],
        att_src=a[half:],
    )
    return np.tanh(layer(tensor(X), edges_and_weights(A)[0]).numpy())


@formula(
    "gat",
    latex=r"e_{ij} = \mathrm{LeakyReLU}(a^\top[Wx_i \Vert Wx_j]), \quad "
    r"\alpha_{ij} = \mathrm{softmax}_{j \in \mathcal{N}_i}(e_{ij}), \quad "
    r"x_i' = \sigma\Big(\sum_j \alpha_{ij} W x_j\Big)",
    where="001 §16.4",
    right=gat_library,
    wrong=gat_by_columns,
    systems=("gat",),
    functions=("corollary.nn.GATConv",),
)
def gat(rng, claim):
    """Each node weighs its neighbours by a softmax over learned scores of the pair."""
    n = 7
    A, X = connected_graph(rng, n), rng.normal(size=(n, 4))
    W, a = rng.normal(size=(4, 3)), rng.normal(size=6)
    out = []
    for i in range(n):
        around = np.flatnonzero(A[i])
        pairs = [np.concatenate([X[i] @ W, X[j] @ W]) @ a for j in around]
        weights = np.exp([e if e > 0 else 0.2 * e for e in pairs])
        out.append(np.tanh(sum(w * (X[j] @ W) for w, j in zip(weights, around)) / weights.sum()))
    P = permutation_matrix(rng, n)
    return all_of(
        equal(claim(A, X, W, a), out, tol=1e-10),
        equal(claim(P @ A @ P.T, P @ X, W, a), P @ claim(A, X, W, a), tol=1e-10),
    )


@formula(
    "wl-test",
    latex=r"c_i \leftarrow \mathrm{hash}\big(c_i, \{\!\{c_j : j \in \mathcal{N}_i\}\!\}\big)",
    where="001 §16.5; 003 Graph neural nets",
    right=lambda own, around: (own, tuple(sorted(around))),
    wrong=lambda own, around: (own, tuple(sorted(set(around)))),
    systems=("wl-test", "gin"),
    functions=("corollary.graphs.weisfeiler_lehman",),
)
def weisfeiler_lehman(rng, claim):
    """Refine colours by the multiset of neighbouring colours: unequal histograms prove two graphs different.

    Equal ones prove nothing: a ring of six and two triangles look alike. The verdict is that of
    fractional isomorphism, and of sums of messages through random layers (GIN).
    """
    from corollary.graphs import weisfeiler_lehman

    triangles = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))
    A, P = connected_graph(rng, 6), permutation_matrix(rng, 6)
    pairs = [(cycle(6), triangles), (A, P @ A @ P.T), (star(6), cycle(6)), (A, connected_graph(rng, 6))]
    pairs.append((spider(1, 1, 3), spider(1, 2, 2)))  # equal degrees, told apart one step later
    verdicts = [indistinguishable(claim, *pair) for pair in pairs]
    hashes = [weisfeiler_lehman([graph_of(A) for A in pair], 6) for pair in pairs]
    truth = [True, True, *(fractionally_isomorphic(*pair) for pair in pairs[2:])]
    layers = rng.normal(size=(6, 8, 8))

    def isomorphism_network(A):  # the sum over all nodes after every layer
        h, sums = np.ones((len(A), 8)), []
        for W in layers:
            h = np.tanh((h + A @ h) @ W / 4)
            sums.append(h.sum(0))
        return np.array(sums)

    summed = [np.abs(isomorphism_network(A) - isomorphism_network(B)).max() < 1e-9 for A, B in pairs]
    # Nodes without neighbours keep their labels apart.
    labelled = indistinguishable(claim, np.zeros((2, 2)), np.zeros((2, 2)), [[0, 1], [0, 0]])
    return all_of(
        equal(verdicts, truth, tol=0.1),
        equal(verdicts, [one == other for one, other in hashes], tol=0.1),
        equal(verdicts, summed, tol=0.1),
        equal(labelled, False, tol=0.1),
        equal(fractionally_isomorphic(*pairs[0]), verdicts[0], tol=0.1),
    )


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
