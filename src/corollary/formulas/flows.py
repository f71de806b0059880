"""Normalizing flows: densities carried through invertible maps and their cheap determinants."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import solve_triangular
from scipy.special import expit
from scipy.stats import multivariate_normal, norm

from corollary.formulas._library_tools import built, tensor
from corollary.formulas.record import Erratum, all_of, equal, formula
from corollary.formulas.tools import gauss_hermite, gaussian_kl, jacobian, quadrature, spd


@formula(
    "flow-change-of-variables",
    latex=r"x = f(z): \quad p_X(x) = p_Z(f^{-1}(x))\,|\det J_{f^{-1}}(x)| = p_Z(z)\,|\det J_f(z)|^{-1}",
    where="001 §19.3; 002, 003 Normalizing flows",
    right=lambda density, det: density / np.abs(det),
    wrong=lambda density, det: density / det,
    systems=("flows",),
)
def change_of_variables(rng, claim):
    """An invertible map divides the density by the absolute value of its Jacobian determinant.

    Checked on a decreasing map of the line, interval by interval, and on a linear map that reflects.
    """

    def inverse(x):  # of f(z) = -(z + z^3 / 3)
        return 2 * np.sinh(np.arcsinh(-1.5 * x) / 3)

    def density(x):
        z = inverse(x)
        return claim(norm.pdf(z), -(1 + z**2))

    ends = np.sort(rng.uniform(-1.5, 1.5, size=5))
    masses = [quadrature(density, low, high) for low, high in zip(ends[:-1], ends[1:])]
    exact = -np.diff(norm.cdf(inverse(ends)))
    A = rng.normal(size=(3, 3))
    A[0] *= -np.sign(np.linalg.det(A))  # a reflection
    z = rng.normal(size=(5, 3))
    carried = claim(multivariate_normal.pdf(z, cov=np.eye(3)), np.linalg.det(A))
    gaussian = multivariate_normal.pdf(z @ A.T, cov=A @ A.T)
    return all_of(equal(masses, exact, tol=1e-9), equal(carried, gaussian, tol=1e-9, relative=True))


@formula(
    "flow-composition",
    latex=r"f = F_L \circ \dots \circ F_1: \quad "
    r"\log p_X(x) = \log p_Z(z) - \sum_{l=1}^{L} \log|\det \partial F_l|, \qquad "
    r"\det \partial F^{-1} = (\det \partial F)^{-1}",
    where="001 §19.3; 002, 003 Normalizing flows",
    right=lambda log_base, log_dets: log_base - np.sum(log_dets),
    wrong=lambda log_base, log_dets: log_base + np.sum(log_dets),
    errata=(
        Erratum(
            "E95",
            r"$\log p(x \mid z) = -\sum_l \log|\det \partial F_l|$",
            r"$\log p_X(x) = \log p_Z(z) - \sum_l \log|\det \partial F_l|$",
            lambda log_base, log_dets: -np.sum(log_dets),
            where="002 Flows",
            kind="formula",
        ),
    ),
    systems=("flows",),
)
def composition(rng, claim):
    """Each layer takes its log-determinant off the log-density of the base, which must not be forgotten.

    Checked against the numerical Jacobian of the whole inverse.
    """
    A, B = np.eye(3) + 0.2 * rng.normal(size=(2, 3, 3))
    b, z = rng.normal(size=3), rng.normal(size=3)
    inner = A @ z + b
    x = B @ np.sinh(inner)
    log_dets = [np.linalg.slogdet(A)[1], np.log(np.cosh(inner)).sum(), np.linalg.slogdet(B)[1]]
    invert = lambda v: np.linalg.solve(A, np.arcsinh(np.linalg.solve(B, v)) - b)
    shrink = np.linalg.slogdet(jacobian(invert, x))[1]
    log_base = norm.logpdf(invert(x)).sum()
    return equal(claim(norm.logpdf(z).sum(), log_dets), log_base + shrink, tol=1e-6)


@formula(
    "flow-kl-objective",
    latex=r"KL(p^* \Vert p_\theta) + H(p^*) = "
    r"\mathbb{E}_{p^*}\Big[-\log p_Z(f^{-1}(x)) - \log\Big|\det\frac{df^{-1}}{dx}\Big|\Big]",
    where="003 Normalizing flows",
    right=lambda log_base, log_det: -log_base - log_det,
    wrong=lambda log_base, log_det: -log_base + log_det,
    systems=("flows",),
)
def kl_objective(rng, claim):
    """Maximum likelihood of a flow minimises the divergence from the data, up to their entropy."""
    A, cov = 1.5 * np.eye(2) + 0.2 * rng.normal(size=(2, 2)), spd(rng, 2)
    b, mean = rng.normal(size=(2, 2))
    x, weights = gauss_hermite(mean, cov, 4)
    z = np.linalg.solve(A, (x - b).T).T
    log_det = -np.linalg.slogdet(A)[1]
    objective = weights @ claim(norm.logpdf(z).sum(1), log_det)
    entropy = multivariate_normal.entropy(mean, cov)
    return equal(objective, gaussian_kl(mean, cov, b, A @ A.T) + entropy, tol=1e-8)


@formula(
    "flow-linear",
    latex=r"F(z) = Az + b, \quad A = QR: \qquad |\det A| = \prod_i |R_{ii}|, \qquad A^{-1} = R^{-1}Q^\top",
    where="002, 003 Normalizing flows",
    right=lambda Q, R, y: (np.log(np.abs(np.diag(R))).sum(), solve_triangular(R, Q.T @ y)),
    wrong=lambda Q, R, y: (np.log(np.abs(np.diag(Q @ R))).sum(), solve_triangular(R, Q @ y)),
    systems=("flows",),
)
def linear_flow(rng, claim):
    """A linear flow kept as rotation times triangle is inverted by substitution, its volume read off."""
    A, y = rng.normal(size=(5, 5)), rng.normal(size=5)
    log_det, solution = claim(*np.linalg.qr(A), y)
    return all_of(
        equal(log_det, np.linalg.slogdet(A)[1], tol=1e-10),
        equal(A @ solution, y, tol=1e-8),
    )


@formula(
    "flow-planar",
    latex=r"F(z) = z + u\,\sigma(w^\top z + b): "
    r"\quad |\det \partial F| = |1 + \sigma'(w^\top z + b)\,u^\top w|",
    where="002, 003 Normalizing flows",
    right=lambda slope, value, u, w: abs(1 + slope * (u @ w)),
    wrong=lambda slope, value, u, w: abs(1 + value * (u @ w)),
    systems=("flows",),
    functions=("corollary.nn.flows.Planar",),
)
def planar(rng, claim):
    """Bending space along one direction costs a determinant of one inner product.

    The map is one-to-one while one plus slope times that product stays positive.
    """
    from corollary.nn.flows import Planar

    outcomes = []
    for _ in range(5):
        z, u, w = rng.normal(size=(3, 4))
        b = rng.normal()
        value = expit(w @ z + b)
        J = jacobian(lambda v, u=u, w=w, b=b: v + u * expit(w @ v + b), z)
        outcomes.append(equal(claim(value * (1 - value), value, u, w), abs(np.linalg.det(J)), tol=1e-6))
        layer = built(lambda: Planar(4), w=w, u=u, b=b)  # it bends by tanh, along a direction it may turn
        bent, log_det = np.tanh(w @ z + b), layer(tensor(z)[None])[1]
        outcomes.append(
            equal(claim(1 - bent**2, bent, layer.direction().numpy(), w), log_det.exp(), tol=1e-10)
        )
    return all_of(*outcomes)


def coupling_shifted_last(scale, shift, d):
    """The affine coupling of the second half of x given the first, with an inverse that scales before it shifts."""

    def forward(x):
        return np.concatenate([x[:d], x[d:] * np.exp(scale(x[:d])) + shift(x[:d])])

    def backward(y):
        return np.concatenate([y[:d], y[d:] * np.exp(-scale(y[:d])) - shift(y[:d])])

    return forward, lambda x: np.sum(scale(x[:d])), backward


def library_coupling(scale, shift, d):
    """The library's affine coupling, its log-scales not bounded: forward, log-determinant, inverse."""
    from corollary.nn.flows import AffineCoupling

    def layer(x):
        def net(kept):
            h, zeros = kept[0, :d].numpy(), np.zeros(d)
            return tensor(np.concatenate([zeros, shift(h), zeros, scale(h)])[None])

        return AffineCoupling(tensor(np.arange(len(x)) < d), net, slope=np.inf), tensor(x)[None]

    def forward(x):
        coupled, rows = layer(x)
        return coupled(rows)

    def backward(y):
        coupled, rows = layer(y)
        return coupled.inverse(rows)[0].numpy()

    return lambda x: forward(x)[0][0].numpy(), lambda x: float(forward(x)[1]), backward


@formula(
    "flow-affine-coupling",
    latex=r"y_{1:d} = x_{1:d}, \quad y_{d+1:D} = x_{d+1:D} \odot e^{s(x_{1:d})} + t(x_{1:d}), \quad "
    r"\det J = \exp\sum_j s_j, \quad x_{d+1:D} = (y_{d+1:D} - t) \odot e^{-s}",
    where="001 §19.3",
    right=library_coupling,
    wrong=coupling_shifted_last,
    systems=("flows",),
    functions=("corollary.nn.flows.AffineCoupling",),
)
def affine_coupling(rng, claim):
    """Scaling and shifting one half by functions of the other is inverted without inverting them."""
    S, T, x = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), rng.normal(size=5)
    forward, log_det, backward = claim(lambda h: np.tanh(S @ h), lambda h: 1 + np.sin(T @ h), 2)
    numerical = np.linalg.slogdet(jacobian(forward, x))[1]
    stretched = [x[2 + j] * np.exp(np.tanh(S[j] @ x[:2])) + 1 + np.sin(T[j] @ x[:2]) for j in range(3)]
    return all_of(
        equal(backward(forward(x)), x, tol=1e-12),
        equal(forward(x), [*x[:2], *stretched], tol=1e-12),
        equal(log_det(x), numerical, tol=1e-6),
    )


@formula(
    "flow-autoregressive",
    latex=r"x_i = \tau(z_i; c_i(z_{<i})): \quad \frac{\partial x_i}{\partial z_j} = 0 \;(j > i), \qquad "
    r"\det \partial f = \prod_i \frac{\partial\tau}{\partial z_i}",
    where="003 Normalizing flows",
    right=lambda J: (np.triu(J, 1), np.prod(np.diag(J))),
    errata=(
        Erratum(
            "E96",
            "the Jacobian is upper triangular",
            "lower triangular: outputs do not depend on later inputs",
            lambda J: (np.tril(J, -1), np.prod(np.diag(J))),
            where="003 Flows",
            kind="dimensions",
        ),
    ),
    systems=("flows",),
)
def autoregressive_flow(rng, claim):
    """Outputs monotone in their own input and shaped by earlier ones have a lower triangular Jacobian.

    Its determinant is then the product of the diagonal.
    """
    n = 5
    W = torch.tensor(np.tril(rng.normal(size=(n, n)), -1))

    def f(z):
        context = W @ torch.tanh(z)
        return torch.sinh(z) * torch.exp(0.3 * context) + context

    J = torch.autograd.functional.jacobian(f, torch.tensor(rng.normal(size=n))).numpy()
    vanishing, det = claim(J)
    return all_of(equal(vanishing, 0.0, tol=1e-14), equal(det, np.linalg.det(J), tol=1e-10, relative=True))
