"""Convolution arithmetic: the operator, its matrices, and the sizes it leaves."""

from __future__ import annotations

from math import ceil

import numpy as np
import torch
import torch.nn.functional as F
from scipy import integrate, signal

from corollary.formulas._convolution_tools import library_function
from corollary.formulas.record import Erratum, all_of, equal, formula
from corollary.formulas.tools import quadrature


def _circular(f, h):
    """Circular convolution straight from the sum."""
    n = len(f)
    return np.array([sum(f[t] * h[(u - t) % n] for t in range(n)) for u in range(n)])


@formula(
    "conv-integral-transform",
    latex=r"(Tf)(u) = \int_{t_1}^{t_2} H(u, t)\,f(t)\,dt,"
    r"\qquad T(\alpha f + \beta g) = \alpha\,Tf + \beta\,Tg",
    where="001 §12.1; 002, 003 Convolution",
    right=lambda H, f, u, low, high: quadrature(lambda t: H(u, t) * f(t), low, high),
    wrong=lambda H, f, u, low, high: quadrature(lambda t: H(t, u) * f(t), low, high),
    systems=("convolution",),
)
def integral_transform(rng, claim):
    """An integral transform weighs a function with a kernel of two arguments; every such map is linear."""
    a, b, alpha, beta, u = rng.uniform(0.5, 1.5, size=5)
    low, high = -rng.uniform(0.2, 1), rng.uniform(1, 2)

    def H(u, t):
        return np.exp(-a * u * t) + u * np.sin(b * t)

    def f(t):
        return np.cos(a * t) + t**2

    def g(t):
        return np.exp(b * t) - t

    truth = integrate.quad(lambda t: H(u, t) * f(t), low, high, epsabs=1e-12)[0]
    mixed = claim(H, lambda t: alpha * f(t) + beta * g(t), u, low, high)
    parts = alpha * claim(H, f, u, low, high) + beta * claim(H, g, u, low, high)
    return all_of(equal(claim(H, f, u, low, high), truth, tol=1e-10), equal(mixed, parts, tol=1e-10))


# The trapezoid rule is exact to rounding for Gaussians once the step is below the smallest width.
_GRID = np.linspace(-16, 16, 97)


_STEP = _GRID[1] - _GRID[0]


def _density(mean, variance):
    return lambda t: np.exp(-((t - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


@formula(
    "conv-definition",
    latex=r"(f * h)(u) = \int f(t)\,h(u - t)\,dt = \int f(u - t)\,h(t)\,dt",
    where="001 §12.1; 002, 003 Convolution; 004 Def. 23",
    right=lambda f, h, u: (f(_GRID) * h(u[..., None] - _GRID)).sum(-1) * _STEP,
    wrong=lambda f, h, u: (f(_GRID) * h(u[..., None] + _GRID)).sum(-1) * _STEP,
    systems=("convolution",),
)
def definition(rng, claim):
    """Convolution folds one function over the other; it is commutative and associative."""
    means, variances = rng.uniform(0.5, 1.5, size=3), rng.uniform(0.5, 1.5, size=3)
    f, g, h = (_density(m, v) for m, v in zip(means, variances))
    u = np.linspace(-1, 6, 15)
    left = claim(lambda t: claim(f, g, t), h, u)
    right = claim(f, lambda t: claim(g, h, t), u)
    return all_of(
        equal(claim(f, g, u), _density(means[:2].sum(), variances[:2].sum())(u), tol=1e-10),
        equal(claim(g, f, u), claim(f, g, u), tol=1e-10),
        equal(left, right, tol=1e-10),
    )


@formula(
    "conv-shift-equivariance",
    latex=r"f_\Delta(t) = f(t + \Delta): \qquad f_\Delta * h = (f * h)_\Delta;"
    r"\qquad TS = ST,\ T\text{ linear} \Rightarrow Tf = f * (T\delta)",
    where="001 §12.1; 002, 003 Convolution; 004 §4.3",
    right=lambda y, delta: np.roll(y, -delta),
    wrong=lambda y, delta: np.roll(y, delta),
    errata=(
        Erratum(
            "E55",
            printed=r"$(f * h)(u + \Delta) = (f * h)(u) + \Delta$",
            correction=r"$(f_\Delta * h)(u) = (f * h)(u + \Delta)$",
            form=lambda y, delta: y + delta,
            where="004 §4.3",
            kind="formula",
        ),
    ),
    systems=("convolution", "equivariance"),
)
def shift_equivariance(rng, claim):
    """Shifting the input shifts the convolution by as much; a linear map with that property is one."""
    n, delta = 9, int(rng.integers(1, 4))
    f, h, M = rng.normal(size=n), rng.normal(size=n), rng.normal(size=(n, n))
    shifted = np.array([f[(t + delta) % n] for t in range(n)])
    # averaging over all shifts makes any matrix commute with the shift
    T = sum(np.roll(M, (k, k), axis=(0, 1)) for k in range(n)) / n
    return all_of(
        equal(claim(_circular(f, h), delta), _circular(shifted, h), tol=1e-10),
        equal(claim(T @ f, delta), T @ shifted, tol=1e-10),
        equal(T @ f, _circular(f, T[:, 0]), tol=1e-10),
    )


@formula(
    "conv-fourier",
    latex=r"(\mathcal F f)(u) = \int f(t)\,e^{-2\pi i u t}\,dt, \qquad "
    r"\mathcal F(f * h) = \mathcal F f \cdot \mathcal F h",
    where="001 §12.1; 002, 003 Convolution",
    right=lambda f_hat, h_hat: f_hat * h_hat,
    wrong=lambda f_hat, h_hat: f_hat * np.conj(h_hat),
    systems=("convolution",),
    functions=("corollary.theory.convolution.convolve", "corollary.theory.convolution.fft_convolve"),
)
def fourier(rng, claim):
    """The Fourier transform turns a convolution into a product."""
    f, h = rng.normal(size=(2, 12))
    (m1, m2), (v1, v2) = rng.uniform(0.5, 1.5, size=(2, 2))
    u = np.linspace(0.05, 0.3, 6)

    def transform(density):
        return (density(_GRID) * np.exp(-2j * np.pi * u[:, None] * _GRID)).sum(-1) * _STEP

    summed = transform(_density(m1 + m2, v1 + v2))
    return all_of(
        equal(claim(np.fft.fft(f), np.fft.fft(h)), np.fft.fft(_circular(f, h)), tol=1e-10),
        *(
            equal(
                claim(np.fft.fft(f, 23), np.fft.fft(h, 23)),
                np.fft.fft(library_function(name, f, h)),
                tol=1e-10,
            )
            for name in ("convolve", "fft_convolve")
        ),
        equal(claim(transform(_density(m1, v1)), transform(_density(m2, v2))), summed, tol=1e-10),
    )


def _convolve_full(A, G):
    (m, n), (p, q) = A.shape, G.shape
    out = np.zeros((m + p - 1, n + q - 1))
    for k, l in np.ndindex(p, q):
        out[k : k + m, l : l + n] += A * G[k, l]  # out[i, j] takes A[i - k, j - l] G[k, l]
    return out


@formula(
    "conv-discrete",
    latex=r"(f * h)[u] = \sum_t f[t]\,h[u - t], \qquad (F * G)[i, j] = \sum_{k,l} F[i - k, j - l]\,G[k, l]",
    where="001 §12.2; 002, 003 Convolution; 004 §4.3",
    right=lambda A, G: library_function("convolve", A, G),
    wrong=lambda A, G: _convolve_full(A, G[::-1, ::-1]),
    systems=("convolution",),
    functions=("corollary.theory.convolution.convolve",),
)
def discrete(rng, claim):
    """Discrete convolution sums products whose indices add up to the output's; likewise in two dimensions."""
    A, G = rng.normal(size=(6, 7)), rng.normal(size=(3, 2))
    f, h = rng.normal(size=(8, 1)), rng.normal(size=(3, 1))
    polynomial = np.polynomial.polynomial.polymul(f[:, 0], h[:, 0])
    return all_of(
        equal(claim(A, G), signal.convolve2d(A, G), tol=1e-12),
        equal(claim(f, h)[:, 0], polynomial, tol=1e-12),
    )


@formula(
    "conv-cross-correlation",
    latex=r"(h \star f)[u] = \sum_t h[t]\,f[u + t] = (\tilde h * f)[u], \qquad \tilde h[t] = h[-t]",
    where="001 §12.2; 002, 003 Convolution; 004 §4.3",
    right=lambda h, f: library_function("correlate", f, h, "valid"),
    wrong=lambda h, f: np.convolve(f, h, mode="valid"),
    systems=("convolution",),
    functions=("corollary.theory.convolution.correlate",),
)
def cross_correlation(rng, claim):
    """Sliding a filter as an inner product is convolving with the flipped filter; symmetric ones agree."""
    f, h = rng.normal(size=12), rng.normal(size=4)
    even = h + h[::-1]
    sliding = np.lib.stride_tricks.sliding_window_view(f, 4) @ h
    return all_of(
        equal(claim(h, f), sliding, tol=1e-12),
        equal(claim(even, f), np.convolve(f, even, mode="valid"), tol=1e-12),
    )


def _toeplitz(h, n):
    gap = np.arange(n + len(h) - 1)[:, None] - np.arange(n)
    inside = (gap >= 0) & (gap < len(h))
    return np.where(inside, h[np.clip(gap, 0, len(h) - 1)], 0.0)


@formula(
    "conv-toeplitz",
    latex=r"f * h = T_h f, \qquad [T_h]_{ij} = h[i - j]",
    where="001 §12.3; 002, 003 Convolution",
    right=lambda h, n: library_function("toeplitz", h, n),
    wrong=lambda h, n: _toeplitz(h[::-1], n),
    systems=("convolution",),
    functions=("corollary.theory.convolution.toeplitz",),
)
def toeplitz(rng, claim):
    """A one-dimensional convolution is the product with a banded matrix, constant along its diagonals."""
    f, h = rng.normal(size=7), rng.normal(size=3)
    return equal(claim(h, 7) @ f, np.convolve(f, h), tol=1e-12)


@formula(
    "conv-size-valid-same",
    latex=r"\text{kernel } (2p + 1) \times (2q + 1):\quad \text{valid } (m - 2p) \times (n - 2q),"
    r"\quad \text{same: pad to } (m + 2p) \times (n + 2q)",
    where="000 before §13; 001 §12.4; 002 Convolution",
    right=lambda m, n, p, q: (
        library_function("output_size", (m, n), (2 * p + 1, 2 * q + 1)),
        (m + 2 * p, n + 2 * q),
    ),
    errata=(
        Erratum(
            "E49",
            printed=r"valid size $(m - p) \times (n - q)$",
            correction=r"$(m - 2p) \times (n - 2q)$",
            form=lambda m, n, p, q: ((m - p, n - q), (m + 2 * p, n + 2 * q)),
            where="000, convolution",
            kind="formula",
        ),
    ),
    systems=("convolution", "unet"),
    functions=("corollary.theory.output_size",),
)
def size_valid_same(rng, claim):
    """A kernel of half-widths p, q trims 2p and 2q from an image; padding by as much keeps its size."""
    outcomes = []
    for _ in range(5):
        p, q = (int(v) for v in rng.integers(1, 4, size=2))
        m, n = (int(v) for v in rng.integers(8, 14, size=2))
        kernel = np.ones((2 * p + 1, 2 * q + 1))
        valid, padded = claim(m, n, p, q)
        after = signal.convolve2d(np.ones(padded), kernel, mode="valid").shape
        outcomes += [
            equal(valid, signal.convolve2d(np.ones((m, n)), kernel, mode="valid").shape, tol=0.1),
            equal(after, (m, n), tol=0.1),
        ]
    return all_of(*outcomes)


@formula(
    "conv-output-size",
    latex=r"o = \left\lfloor\frac{i + 2p - d(k - 1) - 1}{s}\right\rfloor + 1"
    r"\qquad (d = 1:\ \lfloor(i + 2p - k)/s\rfloor + 1)",
    where="001 §12.8; 002, 003 Convolution",
    right=lambda i, k, s, p, d: library_function("output_size", i, k, stride=s, padding=p, dilation=d),
    errata=(
        Erratum(
            "E50",
            printed=r"$\lceil(i + 2p - k)/s\rceil + 1$",
            correction=r"$\lfloor(i + 2p - k)/s\rfloor + 1$",
            form=lambda i, k, s, p, d: ceil((i + 2 * p - d * (k - 1) - 1) / s) + 1,
            where="003 Conv",
            kind="formula",
        ),
    ),
    systems=("convolution", "alexnet"),
    functions=("corollary.theory.output_size",),
)
def output_size(rng, claim):
    """The number of places a padded, strided, dilated kernel fits on an input of size i."""
    cases = [(5, 2, 2, 0, 1)]
    cases += [tuple(int(v) for v in rng.integers((7, 1, 1, 0, 1), (12, 4, 4, 3, 4))) for _ in range(60)]
    measured = [
        F.conv1d(torch.ones(1, 1, i), torch.ones(1, 1, k), stride=s, padding=p, dilation=d).shape[-1]
        for i, k, s, p, d in cases
    ]
    return equal([claim(*case) for case in cases], measured, tol=0.1)


@formula(
    "conv-half-full-padding",
    latex=r"s = 1:\quad p = \lfloor k/2\rfloor,\ k \text{ odd}: o = i + 2\lfloor k/2\rfloor - (k - 1) = i;"
    r"\qquad p = k - 1: o = i + k - 1",
    where="002 Convolution",
    right=lambda i, k: tuple(library_function("output_size", i, k, padding=how) for how in ("half", "full")),
    errata=(
        Erratum(
            "E51",
            printed=r"$o = i + 2\lfloor k/s\rfloor - (k - 1)$",
            correction=r"$o = i + 2\lfloor k/2\rfloor - (k - 1)$",
            form=lambda i, k: (i + 2 * k - (k - 1), i + k - 1),  # at stride 1
            where="002 Conv",
            kind="formula",
        ),
    ),
    systems=("convolution",),
    functions=("corollary.theory.output_size",),
)
def half_full_padding(rng, claim):
    """At stride one, half padding with an odd kernel keeps the size, and full padding adds k - 1."""
    cases = [(9, 5)] + [(int(rng.integers(6, 20)), int(rng.choice([3, 5, 7]))) for _ in range(5)]
    measured = [
        [F.conv1d(torch.ones(1, 1, i), torch.ones(1, 1, k), padding=p).shape[-1] for p in (k // 2, k - 1)]
        for i, k in cases
    ]
    return equal([claim(i, k) for i, k in cases], measured, tol=0.1)
