"""Deep linear networks: the risk as a distance, gradient flow, modes that cooperate and compete."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from corollary.formulas.record import Erratum, all_of, equal, formula
from corollary.formulas.tools import gradient, jacobian, orthogonal


def _white(rng, n, s):
    """A centred sample whose second moment is the identity to rounding."""
    X = rng.normal(size=(n, s))
    X -= X.mean(axis=1, keepdims=True)
    values, U = np.linalg.eigh(X @ X.T / s)
    return U.T @ X / np.sqrt(values)[:, None]


@formula(
    "lin-risk-trace-form",
    latex=r"\mathcal R(A) = \mathrm{const} + \mathrm{Tr}(A A^\top) - 2\, \mathrm{Tr}(A \Gamma^\top), \qquad "
    r"\nabla \mathcal R = 2 (A - \Gamma), \qquad \Gamma = \mathbb E[y x^\top]",
    where="000 §13",
    right=lambda A, G: (np.trace(A @ A.T) - 2 * np.trace(A @ G.T), 2 * (A - G)),
    wrong=lambda A, G: (np.trace(A @ A.T) - np.trace(A @ G.T), 2 * A - G),
    errata=(
        Erratum(
            "T18",
            printed=r"$\mathrm{Tr}(AA^\top) - 2\,\mathrm{Tr}(A)$, with $\Gamma$ read as $I$",
            correction=r"$\Gamma$ is the cross-moment $\mathbb E[yx^\top]$",
            form=lambda A, G: (np.trace(A @ A.T) - 2 * np.trace(A), 2 * (A - np.eye(len(A)))),
            where="000 §13",
            kind="typing",
        ),
    ),
    systems=("deep-linear",),
)
def lin_risk_trace_form(rng, claim):
    """On whitened inputs the squared risk of a linear map is a paraboloid around the cross-moment."""
    X, Y, A = _white(rng, 4, 50), rng.normal(size=(4, 50)), rng.normal(size=(4, 4))

    def risk(B):
        return ((Y - B @ X) ** 2).sum(axis=0).mean()

    value, slope = claim(A, Y @ X.T / 50)
    return all_of(
        equal(value, risk(A) - risk(np.zeros((4, 4))), tol=1e-10),
        equal(slope, gradient(risk, A), tol=1e-7),
    )


@formula(
    "lin-gradient-flow",
    latex=r"\dot A = 2\eta(\Gamma - A): \qquad A(t) = \Gamma + (A_0 - \Gamma) e^{-2\eta t}, \qquad "
    r"A = \Gamma - \frac{\dot A}{2\eta}",
    where="000 §13",
    right=lambda G, start, speed, eta, t: (
        G + (start - G) * np.exp(-2 * eta * t),
        G - speed / (2 * eta),
    ),
    wrong=lambda G, start, speed, eta, t: (G + (start - G) * np.exp(-eta * t), G - speed / (2 * eta)),
    errata=(
        Erratum(
            "E31",
            printed=r"$A = \Gamma - \frac{1}{2}\eta\dot A$",
            correction=r"$\eta$ belongs in the denominator",
            form=lambda G, start, speed, eta, t: (
                G + (start - G) * np.exp(-2 * eta * t),
                G - eta * speed / 2,
            ),
            where="000 §13",
            kind="formula",
        ),
    ),
    systems=("deep-linear",),
    functions=("corollary.linear.mode_trajectory",),
)
def lin_gradient_flow(rng, claim):
    """Gradient flow of the whitened risk forgets its start exponentially and ends at the cross-moment.

    The claim gives the position at a time, once from the start and once from the speed there.
    """
    from corollary.linear import mode_trajectory

    G, start = rng.normal(size=(2, 3, 3))
    eta, t = rng.uniform([0.2, 0.4], [0.6, 0.8])
    A, steps = start, 100
    h = t / steps
    for _ in range(steps):  # Runge and Kutta, error of order h^4
        k1 = 2 * eta * (G - A)
        k2 = 2 * eta * (G - A - h / 2 * k1)
        k3 = 2 * eta * (G - A - h / 2 * k2)
        k4 = 2 * eta * (G - A - h * k3)
        A = A + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    position, from_speed = claim(G, start, 2 * eta * (G - A), eta, t)
    theirs = mode_trajectory(G, start, 2 * eta * t, n_layers=1)  # the library's flow has rate one
    return all_of(
        equal(position, A, tol=1e-8), equal(from_speed, A, tol=1e-8), equal(position, theirs, tol=1e-10)
    )


def _whiten_and_fit(X, Y):
    s = X.shape[1]
    values, U = np.linalg.eigh(X @ X.T / s)
    white = U.T @ X / np.sqrt(values)[:, None]
    return white, Y @ white.T / s


def _printed_002(X, Y):
    white, target = _whiten_and_fit(X, Y)
    return white, target.T / 2


def _printed_003(X, Y):
    white, _ = _whiten_and_fit(X, Y)
    white = white / np.sqrt(X.shape[1])  # now X X^T = I without the mean
    return white, Y @ white.T / X.shape[1]


@formula(
    "lin-whitened-target",
    latex=r"\tfrac{1}{s} X X^\top = I: "
    r"\qquad \arg\min_W \lVert Y - WX \rVert_F^2 = \Gamma = \tfrac{1}{s} Y X^\top,"
    r"\qquad \tfrac{1}{s} \lVert Y - WX \rVert_F^2 = \lVert W - \Gamma \rVert_F^2 + \mathrm{const}",
    where="002, 003 Deep linear networks",
    right=_whiten_and_fit,
    errata=(
        Erratum(
            "E27",
            printed=r"$\Gamma = \frac{1}{2s} X Y^\top$",
            correction=r"$\Gamma = \frac{1}{s} Y X^\top$: not transposed, no half",
            form=_printed_002,
            where="002 Deep linear",
            kind="formula",
        ),
        Erratum(
            "E28",
            printed=r"$X X^\top = I$ together with $\Gamma = \frac{1}{s} Y X^\top$",
            correction=r"either $\frac{1}{s} X X^\top = I$, or $\Gamma = Y X^\top$",
            form=_printed_003,
            where="003 Deep linear",
            kind="formula",
        ),
    ),
    systems=("deep-linear",),
)
def lin_whitened_target(rng, claim):
    """After whitening, the best linear map is the cross-moment of targets and inputs.

    Any other map pays its squared distance to it. The claim gives the whitened inputs and the map.
    """
    X = rng.normal(size=(3, 3)) @ rng.normal(size=(3, 40)) + rng.normal(size=(3, 1))
    Y = rng.normal(size=(3, 3)) @ X + rng.normal(size=(3, 40))
    white, target = claim(X, Y)
    best = np.linalg.lstsq(white.T, Y.T)[0].T
    W = rng.normal(size=(2, 3, 3))
    risk = ((Y - W @ white) ** 2).sum(axis=(1, 2)) / 40
    distance = ((W - target) ** 2).sum(axis=(1, 2))
    return all_of(
        equal(white, np.linalg.lstsq(X.T, white.T)[0].T @ X, tol=1e-9),  # a linear map of the inputs
        equal(target, best, tol=1e-9),
        equal(np.diff(risk), np.diff(distance), tol=1e-8),
    )


def _library_slopes(layers, target):
    """The library's gradients of half the squared distance of the product, the first layer first."""
    from corollary.linear.deep_linear import layer_gradients

    return layer_gradients(layers, target)


@formula(
    "lin-two-layer-gradients",
    latex=r"\ell = \tfrac{1}{2} \lVert DC - \Gamma \rVert_F^2: \qquad \partial_C \ell = D^\top (DC - \Gamma),"
    r"\qquad \partial_D \ell = (DC - \Gamma) C^\top",
    where="000 §13.7; 002 Deep linear networks",
    right=lambda D, C, G: _library_slopes([C, D], G),
    wrong=lambda D, C, G: (D @ (D @ C - G), (D @ C - G) @ C),
    systems=("deep-linear",),
    functions=("corollary.linear.deep_linear.layer_gradients",),
)
def lin_two_layer_gradients(rng, claim):
    """Each layer's slope is the error of the product, carried through the other layer transposed."""
    D, C, G = rng.normal(size=(3, 3, 3))
    by_C, by_D = claim(D, C, G)
    return all_of(
        equal(by_C, gradient(lambda B: ((D @ B - G) ** 2).sum() / 2, C), tol=1e-7),
        equal(by_D, gradient(lambda B: ((B @ C - G) ** 2).sum() / 2, D), tol=1e-7),
    )


@formula(
    "lin-two-layer-rotated",
    latex=r"\Gamma = U \Sigma V^\top,\ \tilde D = U^\top D,\ \tilde C = C V: \qquad "
    r"\partial_{\tilde C} = \tilde D^\top (\tilde D \tilde C - \Sigma), \qquad "
    r"\partial_{\tilde D} = (\tilde D \tilde C - \Sigma) \tilde C^\top",
    where="002 Deep linear networks",
    right=lambda D, C, S: _library_slopes([C, D], S),
    errata=(
        Erratum(
            "E29",
            printed=r"$(\tilde D\tilde C - \Sigma)^\top\tilde D$, $\tilde C(\tilde D\tilde C-\Sigma)C^\top$",
            correction=r"$\tilde D^\top(\tilde D\tilde C-\Sigma)$, $(\tilde D\tilde C-\Sigma)\tilde C^\top$",
            form=lambda D, C, S: ((D @ C - S).T @ D, C @ (D @ C - S) @ C.T),
            where="002 Deep linear",
            kind="dimensions",
        ),
    ),
    systems=("deep-linear",),
    functions=("corollary.linear.deep_linear.layer_gradients",),
)
def lin_two_layer_rotated(rng, claim):
    """In the singular bases of the target the two-layer slopes keep their form with a diagonal target.

    All layers are square here, so that the misprint, undefined in general, can be evaluated.
    """
    G, D, C = rng.normal(size=(3, 3, 3))
    U, sigma, Vt = np.linalg.svd(G)

    def loss(D_rotated, C_rotated):  # through the layers as they were before the rotation
        return (((U @ D_rotated) @ (C_rotated @ Vt) - G) ** 2).sum() / 2

    by_C, by_D = claim(D, C, np.diag(sigma))
    return all_of(
        equal(by_C, gradient(lambda B: loss(D, B), C), tol=1e-7),
        equal(by_D, gradient(lambda B: loss(B, C), D), tol=1e-7),
    )


def _modes(D, C, sigma, competition):
    products = D @ C
    own = np.diag(products)
    return ((own - sigma) ** 2).sum() / 2 + competition * ((products**2).sum() - (own**2).sum())


@formula(
    "lin-cooperation-competition",
    latex=r"\tilde\ell = \tfrac{1}{2} \sum_r (d_r \cdot c_r - \sigma_r)^2 +"
    r"\tfrac{1}{2} \sum_{r \ne q} (d_r \cdot c_q)^2",
    where="002 Deep linear networks",
    right=lambda D, C, sigma: _modes(D, C, sigma, 1 / 2),
    wrong=lambda D, C, sigma: _modes(D, C, sigma, 1 / 4),
    systems=("deep-linear",),
)
def lin_cooperation_competition(rng, claim):
    """The loss of two linear layers splits into modes that cooperate inside and compete between them.

    Rows of the upper and columns of the lower layer are taken in the singular bases of the target.
    """
    G, D, C = rng.normal(size=(4, 4)), rng.normal(size=(4, 2)), rng.normal(size=(2, 4))
    U, sigma, Vt = np.linalg.svd(G)
    return equal(claim(U.T @ D, C @ Vt.T, sigma), ((D @ C - G) ** 2).sum() / 2, tol=1e-10)


@formula(
    "lin-critical-points",
    latex=r"DC = \sum_{r \in S} \sigma_r u_r v_r^\top,\quad |S| = k, \qquad "
    r"\binom{\mathrm{rank}\,\Gamma}{k} \text{ choices}; \qquad \text{minimum} \iff S = \{1, \dots, k\}",
    where="003 Deep linear networks",
    right=lambda rank, k: [(S, S == tuple(range(k))) for S in combinations(range(rank), k)],
    wrong=lambda rank, k: [(S, True) for S in combinations(range(rank), k)],
    systems=("deep-linear",),
    functions=("corollary.linear.critical_points",),
)
def lin_critical_points(rng, claim):
    """A two-layer linear net of full rank rests at any choice of singular pairs of the target.

    Only the leading choice is a minimum, and that a global one; at all others the Hessian has a
    direction of descent. The claim lists the choices, each with its verdict.
    """
    from corollary.linear import critical_points

    n, k, sigma = 3, 2, np.array([3.0, 2.0, 1.0]) + rng.uniform(-0.2, 0.2, size=3)
    U, V = orthogonal(rng, n), orthogonal(rng, n)
    G = (U * sigma) @ V.T

    def slope(parameters):
        D, C = parameters[: n * k].reshape(n, k), parameters[n * k :].reshape(k, n)
        error = D @ C - G
        return np.concatenate([(error @ C.T).ravel(), (D.T @ error).ravel()])

    points = claim(n, k)
    theirs = sorted((point.pairs, point.minimum) for point in critical_points(G, k))
    outcomes = [equal(len(points), comb(n, k), tol=0), equal(sorted(points) == theirs, True, tol=0)]
    for chosen, minimum in points:
        scale, index = np.sqrt(sigma[list(chosen)]), list(chosen)
        rest = np.concatenate([(U[:, index] * scale).ravel(), (scale[:, None] * V[:, index].T).ravel()])
        least = np.linalg.eigvalsh(jacobian(slope, rest)).min()  # the gap of the singular values, or zero
        outcomes += [equal(slope(rest), 0, tol=1e-10), equal(least > -1e-3, minimum, tol=0)]
    return all_of(*outcomes)


def _product(matrices, n):
    """The network of these layers, the first applied first."""
    P = np.eye(n)
    for W in matrices:
        P = W @ P
    return P


def _layer_slope(layers, x, y, l):
    n = len(x)
    error = _product(layers, n) @ x - y
    above, below = _product(layers[l + 1 :], n), _product(layers[:l], n)
    return above.T @ np.outer(error, x) @ below.T


@formula(
    "lin-deep-gradient",
    latex=r"\partial_{W^l} \tfrac{1}{2} \lVert W^L \cdots W^1 x - y \rVert^2 ="
    r"(W^L \cdots W^{l+1})^\top (W^L \cdots W^1 x - y)\, x^\top (W^{l-1} \cdots W^1)^\top",
    where="003 Deep linear networks",
    right=_layer_slope,
    wrong=lambda layers, x, y, l: _layer_slope(layers[: l + 1] + layers[:l:-1], x, y, l),
    systems=("deep-linear",),
    functions=("corollary.linear.deep_linear.layer_gradients",),
)
def lin_deep_gradient(rng, claim):
    """A layer's slope in a deep linear net: the error pulled back from above times the input from below."""
    layers, (x, y) = list(rng.normal(size=(4, 3, 3))), rng.normal(size=(2, 3))
    outcomes = []
    for l in range(4):

        def loss(W, l=l):
            h = x
            for k, layer in enumerate(layers):
                h = (W if k == l else layer) @ h
            return ((h - y) ** 2).sum() / 2

        outcomes.append(equal(claim(layers, x, y, l), gradient(loss, layers[l]), tol=1e-6))
    target, I = rng.normal(size=(3, 3)), np.eye(3)  # on whitened inputs the slopes of all samples add up
    for l, theirs in enumerate(_library_slopes(layers, target)):
        summed = sum(claim(layers, I[i], target[:, i], l) for i in range(3))
        outcomes.append(equal(summed, theirs, tol=1e-9))
    return all_of(*outcomes)
