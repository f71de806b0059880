"""What the checks of probability are made of: finite laws, generating functions, mixtures."""

from math import factorial

import numpy as np
from scipy import optimize, special, stats

EXACT = 1e-12  # sums of a few dozen terms of order one


def table_covariance(joint, x, y):
    """The covariance of x and y under a joint table."""
    return x @ joint @ y - (joint.sum(1) @ x) * (joint.sum(0) @ y)


def is_product(joint):
    """Whether a joint table is the product of its marginals."""
    return bool(np.allclose(joint, np.outer(joint.sum(1), joint.sum(0)), rtol=0, atol=1e-12))


def mixed_derivative(M, orders):
    """Derivative at zero by Cauchy's formula on a torus: exact but for rounding."""
    circle = np.exp(2j * np.pi * np.arange(32) / 32)
    grid = np.stack(np.meshgrid(circle, circle, indexing="ij"), axis=-1)
    coefficient = (np.fft.fft2(M(grid)) / 32**2)[orders]
    return coefficient.real * factorial(orders[0]) * factorial(orders[1])


def finite_mgf(p, x, t):
    """The generating function at each t of the law with mass p on the points x."""
    return np.exp(np.outer(t, x)) @ p


def gaussian_bump(x, mu, Sigma):
    """A Gaussian density without its normaliser."""
    return np.exp(-0.5 * np.einsum("ni,ni->n", x - mu, np.linalg.solve(Sigma, (x - mu).T).T))


def exact_tails(p, deviation):
    """P(D >= d) for every value d of D, and the values: rows are laws."""
    return (p[:, None, :] * (deviation[:, None, :] >= deviation[:, :, None])).sum(-1), deviation


def best_mixture(law):
    """The mixture of binomials closest to the law of the number of ones among n."""
    n, z = len(law) - 1, np.linspace(0, 1, 201)
    k = np.arange(n + 1)[:, None]
    components = special.comb(n, k) * z**k * (1 - z) ** (n - k)
    return components @ optimize.nnls(components, law)[0]


def iid_law(law):
    """The law of the number of ones among n independent draws with the same mean."""
    n = len(law) - 1
    return stats.binom(n, law @ np.arange(n + 1) / n).pmf(np.arange(n + 1))
