"""Graph neural networks: layers, their spectra, the laws of permutation, and what they can tell apart."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from scipy.linalg import expm
from scipy.special import softmax

from corollary.formulas._graph_layers_tools import gcn, gcn_matrix
from corollary.formulas._graph_tools import (
    complete_bipartite,
    connected_graph,
    cycle,
    fractionally_isomorphic,
    indistinguishable,
    permutation_matrix,
    propagation,
    scaled,
    spider,
    star,
)
from corollary.formulas._library_tools import built, edges_and_weights, graph_of, tensor
from corollary.formulas.record import Erratum, all_of, at_least, equal, formula


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
