"""Groups that act on signals, invariance and equivariance, and networks on sets."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import softmax

from corollary.formulas._graph_tools import (
    S3,
    composed,
    multiset,
    permutation_matrix,
)
from corollary.formulas._library_tools import tensor
from corollary.formulas.record import all_of, equal, formula


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
