"""Convolution arithmetic and convolutional networks: the operator, its sizes, fields, gradients and costs."""

from __future__ import annotations

from math import ceil, prod

import numpy as np
import torch
import torch.nn.functional as F
from scipy import integrate, signal

from corollary.formulas._library_tools import seeded, tensor
from corollary.formulas.record import Erratum, all_of, at_most, equal, formula
from corollary.formulas.tools import quadrature


def _library(name, *args, **options):
    """Call a function of the library's chapter on convolution."""
    from corollary.theory import convolution

    return getattr(convolution, name)(*args, **options)


def _circular(f, h):
    """Circular convolution straight from the sum."""
    n = len(f)
    return np.array([sum(f[t] * h[(u - t) % n] for t in range(n)) for u in range(n)])


def _footprint(layers, n, causal=False):
    """Which of ``n`` inputs reach the middle output of a stack of (kernel, stride, dilation) layers."""
    x = torch.ones(1, 1, n, dtype=torch.float64, requires_grad=True)
    y = x
    for k, s, d in layers:
        if causal:
            y = F.pad(y, (d * (k - 1), 0))
        y = F.conv1d(y, torch.ones(1, 1, k, dtype=torch.float64), stride=s, dilation=d)
    (gradient,) = torch.autograd.grad(y[0, 0, y.shape[-1] // 2], x)
    return np.flatnonzero(gradient.numpy().ravel()), y.shape[-1] // 2


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
            equal(claim(np.fft.fft(f, 23), np.fft.fft(h, 23)), np.fft.fft(_library(name, f, h)), tol=1e-10)
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
    right=lambda A, G: _library("convolve", A, G),
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
    right=lambda h, f: _library("correlate", f, h, "valid"),
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
    right=lambda h, n: _library("toeplitz", h, n),
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
        _library("output_size", (m, n), (2 * p + 1, 2 * q + 1)),
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
    right=lambda i, k, s, p, d: _library("output_size", i, k, stride=s, padding=p, dilation=d),
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
    right=lambda i, k: tuple(_library("output_size", i, k, padding=how) for how in ("half", "full")),
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


@formula(
    "conv-receptive-set",
    latex=r"\mathcal I_i = \{j : w_{ij} \ne 0\} \text{ for } x^l = W^l x^{l-1}: \qquad "
    r"\frac{\partial x_i^l}{\partial x_j^{l-1}} = 0 \text{ for } j \notin \mathcal I_i",
    where="001 §12.5; 002, 003 Convolution",
    right=lambda W: W != 0,
    errata=(
        Erratum(
            "E54",
            printed=r"$\{j : W_{ji} \ne 0\}$",
            correction=r"$\{j : w_{ij} \ne 0\}$",
            form=lambda W: W.T != 0,
            where="001 §12.5",
            kind="definition",
        ),
    ),
    systems=("convolution",),
    functions=("corollary.theory.convolution_matrix",),
)
def receptive_set(rng, claim):
    """A unit depends only on the inputs its row of the Toeplitz matrix gives a weight."""
    kernel = tensor(rng.uniform(0.5, 1, size=(1, 1, 3)))
    W = _library("convolution_matrix", kernel, 6, padding=2)[:6].numpy()
    x = torch.tensor(rng.normal(size=6))
    pattern = torch.autograd.functional.jacobian(
        lambda v: torch.tanh(F.conv1d(v[None, None], kernel, padding=2))[0, 0, :6], x
    )
    return equal(claim(W), pattern.numpy() != 0, tol=0.1)


def _receptive_field(kernels, strides):
    forward, backward = 1, 1
    for l, k in enumerate(kernels):
        forward += (k - 1) * prod(strides[:l])
    for k, s in zip(reversed(kernels), reversed(strides)):
        backward = s * backward + (k - s)
    return forward, backward


def _receptive_field_own_stride(kernels, strides):
    forward = 1 + sum((k - 1) * prod(strides[: l + 1]) for l, k in enumerate(kernels))
    return forward, forward


@formula(
    "conv-receptive-field",
    latex=r"r_l = r_{l-1} + (k_l - 1)\prod_{i<l} s_i,\ r_0 = 1;"
    r"\qquad r_{l-1} = s_l r_l + (k_l - s_l),\ r_L = 1",
    where="001 §12.5; 002 Convolution",
    right=lambda kernels, strides: (
        _library("receptive_field", zip(kernels, strides)).size,
        _receptive_field(kernels, strides)[1],
    ),
    wrong=_receptive_field_own_stride,
    systems=("convolution",),
    functions=("corollary.theory.receptive_field",),
)
def receptive_field(rng, claim):
    """The field of view of a stack, counted from the input upwards or from the output downwards."""
    kernels = [int(k) for k in rng.integers(2, 6, size=3)]
    strides = [int(s) for s in rng.integers(2, 4, size=3)]
    reached, _ = _footprint(zip(kernels, strides, [1, 1, 1]), 160)
    size = reached[-1] - reached[0] + 1
    return equal(claim(kernels, strides), (size, size), tol=0.1)


@formula(
    "conv-weight-sharing",
    latex=r"\frac{\partial\mathcal R}{\partial h_j}"
    r" = \sum_i \frac{\partial\mathcal R}{\partial x_i}\,\frac{\partial x_i}{\partial h_j}",
    where="001 §12.5; 002, 003 Convolution",
    right=lambda errors, partials: errors @ partials,
    wrong=lambda errors, partials: errors @ partials / len(errors),
    systems=("convolution",),
)
def weight_sharing(rng, claim):
    """The gradient of a shared weight adds up over all the places where it is used."""
    x, h, target = rng.normal(size=10), rng.normal(size=3), rng.normal(size=8)
    kernel = torch.tensor(h[None, None], requires_grad=True)
    y = F.conv1d(torch.tensor(x[None, None]), kernel)[0, 0]
    loss = ((torch.tanh(y) - torch.tensor(target)) ** 2).sum()
    errors, gradient = torch.autograd.grad(loss, (y, kernel))
    partials = np.lib.stride_tricks.sliding_window_view(x, 3)
    return equal(claim(errors.numpy(), partials), gradient[0, 0], tol=1e-10)


def _shift_indices(n):
    return np.arange(n)[:, None] - np.arange(n)  # k - i


@formula(
    "conv-backprop-kernel",
    latex=r"y = x * w:\quad \frac{\partial\mathcal R}{\partial w_i} = \sum_k \delta_k\,x_{k-i}"
    r" = (\delta * \mathrm{rot180}(x))_i, \qquad "
    r"\frac{\partial\mathcal R}{\partial x_j} = \sum_k \delta_k\,w_{k-j}",
    where="001 §12.5",
    right=lambda delta, x: delta @ x[_shift_indices(len(x)) % len(x)],
    errata=(
        Erratum(
            "E53",
            printed=r"$x_{k-i} = x_{-(k-i)} = \mathrm{rot180}(x)_{k-i}$",
            correction=r"$x_{k-i} = \mathrm{rot180}(x)_{i-k}$",
            form=lambda delta, x: delta @ x[-_shift_indices(len(x)) % len(x)],
            where="001 §12.5",
            kind="dimensions",
        ),
    ),
    systems=("convolution",),
)
def backprop_kernel(rng, claim):
    """The kernel's gradient correlates output errors with the input, and the input's with the kernel."""
    x, w, v = rng.normal(size=(3, 7))  # circular signals: every index has a meaning
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, w)]
    y = torch.stack([sum(tensors[0][t] * tensors[1][(u - t) % 7] for t in range(7)) for u in range(7)])
    delta, to_x, to_w = torch.autograd.grad((torch.tensor(v) * y.sin()).sum(), (y, *tensors))
    return all_of(
        equal(claim(delta.numpy(), x), to_w, tol=1e-10),
        equal(claim(delta.numpy(), w), to_x, tol=1e-10),
    )


def _example_gradient(x, w, V):
    a = signal.convolve2d(x, w, mode="valid")
    s = 1 / (1 + np.exp(-a))
    return signal.convolve2d(x[::-1, ::-1], V * s * (1 - s), mode="valid")


@formula(
    "conv-backprop-2d-example",
    latex=r"f = v^\top\mathrm{vec}\,\sigma(x * w):\qquad \frac{\partial f}{\partial w}"
    r" = \mathrm{rot}_\pi(x) * (\mathrm{mat}(v) \odot \sigma'(x * w))",
    where="002 Convolution",
    right=_example_gradient,
    wrong=lambda x, w, V: _example_gradient(x, w, V)[::-1, ::-1],
    systems=("convolution",),
)
def backprop_2d_example(rng, claim):
    """The kernel's gradient in two dimensions convolves the rotated image with the masked output weights."""
    x, w, V = rng.normal(size=(6, 6)), rng.normal(size=(3, 3)), rng.normal(size=(4, 4))
    kernel = torch.tensor(w, requires_grad=True)
    y = F.conv2d(torch.tensor(x[None, None]), kernel.flip(0, 1)[None, None])[0, 0]
    (gradient,) = torch.autograd.grad((torch.tensor(V) * torch.sigmoid(y)).sum(), kernel)
    return equal(claim(x, w, V), gradient, tol=1e-10)


def _max_pool(x, r, stride, reach):
    rows = range(0, x.shape[0] - r + 1, stride)
    columns = range(0, x.shape[1] - r + 1, stride)
    return np.array([[x[i : i + reach, j : j + reach].max() for j in columns] for i in rows])


@formula(
    "conv-max-pooling",
    latex=r"x^{\max}_{ij} = \max\{x_{i+k,\,j+l} : 0 \le k, l < r\}",
    where="001 §12.6; 002, 003 Convolution; 004 §4.3",
    right=lambda x, r, stride: _max_pool(x, r, stride, r),
    wrong=lambda x, r, stride: _max_pool(x, r, stride, r - 1),
    systems=("convolution",),
    functions=("corollary.nn.MinPool2d", "corollary.nn.SoftmaxPool2d"),
)
def max_pooling(rng, claim):
    """Max pooling keeps the largest value of every window."""
    from corollary.nn import MinPool2d, SoftmaxPool2d

    x, r = rng.normal(size=(9, 9)), 3
    image, outcomes = tensor(x)[None, None], []
    for s in (1, r):
        outcomes += [
            equal(claim(x, r, s), F.max_pool2d(image, r, stride=s)[0, 0], tol=1e-12),
            equal(-claim(-x, r, s), MinPool2d(r, s)(image)[0, 0], tol=1e-12),
            equal(claim(x, r, s), SoftmaxPool2d(r, s, beta=1e6)(image)[0, 0], tol=1e-5),  # ties within 1e-5
        ]
    return all_of(*outcomes)


def _conv_layer(x, w):
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(1, 2))
    return np.einsum("ruab,ustab->rst", w, windows)


@formula(
    "conv-layer-channels",
    latex=r"y[r][s, t] = \sum_u \sum_{\Delta s, \Delta t} w[r, u][\Delta s, \Delta t]"
    r"\,x[u][s + \Delta s, t + \Delta t]",
    where="001 §12.9; 002, 003 Convolution",
    right=_conv_layer,
    wrong=lambda x, w: _conv_layer(x, w[:, :, ::-1, ::-1]),
    systems=("convolution", "text-cnn"),
    functions=("corollary.theory.convolution_matrix",),
)
def layer_channels(rng, claim):
    """An output channel sums the correlations of all input channels with its own kernels."""
    x, w = rng.normal(size=(3, 6, 5)), rng.normal(size=(4, 3, 3, 2))
    matrix = _library("convolution_matrix", tensor(w), (6, 5)).numpy()
    return all_of(
        equal(claim(x, w), F.conv2d(torch.tensor(x[None]), torch.tensor(w))[0], tol=1e-12),
        equal(claim(x, w).ravel(), matrix @ x.ravel(), tol=1e-12),
    )


def _parameter_counts(m, n, c, p, q, K):
    layer = {"size": (m, n), "kernel": (p, q), "channels": c, "kernels": K}
    return [_library("parameter_count", **layer, sharing=how) for how in ("shared", "dense", "local")]


def _parameter_counts_printed(m, n, c, p, q, K):
    places = (m - p + 1) * (n - q + 1 + 1)
    return K * (p * q * c + 1), m * n * c * places * K, p * q * c * places * K


@formula(
    "conv-parameter-counts",
    latex=r"\text{conv } K(pqc + 1), \quad \text{full } (mnc + 1)\,oK, \quad \text{local } (pqc + 1)\,oK,"
    r"\qquad o = (m - p + 1)(n - q + 1)",
    where="001 §12.11",
    right=_parameter_counts,
    errata=(
        Erratum(
            "E52",
            printed=r"$mnc(m - p + 1)(n - q + 1 + 1)K$ and $pqc(m - p + 1)(n - q + 1 + 1)K$",
            correction=r"$(mnc + 1)(m - p + 1)(n - q + 1)K$ and $(pqc + 1)(m - p + 1)(n - q + 1)K$",
            form=_parameter_counts_printed,
            where="001 §12.11",
            kind="formula",
        ),
    ),
    systems=("convolution", "lenet", "alexnet"),
    functions=("corollary.theory.parameter_count",),
)
def parameter_counts(rng, claim):
    """Parameters, biases included, of a valid convolution and of unshared layers with the same output."""
    m, n, c, p, q, K = (int(v) for v in rng.integers((7, 7, 1, 2, 2, 2), (12, 12, 4, 5, 5, 6)))
    conv = torch.nn.Conv2d(c, K, (p, q), device="meta")
    outputs = F.conv2d(torch.ones(1, c, m, n), torch.ones(conv.weight.shape))
    full = torch.nn.Linear(c * m * n, outputs.numel(), device="meta")
    patches = F.unfold(torch.ones(1, c, m, n), (p, q))  # a linear layer of its own at every place
    local = [torch.nn.Linear(patches.shape[1], K, device="meta")] * patches.shape[2]
    kinds = ([conv], [full], local)
    counts = [sum(w.numel() for layer in kind for w in layer.parameters()) for kind in kinds]
    return equal(claim(m, n, c, p, q, K), counts, tol=0.1)


@formula(
    "conv-vgg-stack",
    latex=r"n \text{ layers of } 3 \times 3 \text{ see } (2n + 1) \times (2n + 1)"
    r" \text{ with } 9nC^2 < (2n + 1)^2 C^2 \text{ weights } (n \ge 2)",
    where="001 §12.10",
    right=lambda n, C: (
        _library("receptive_field", [(3, 1)] * n).size,
        9 * n * C**2,
        (2 * n + 1) ** 2 * C**2,
    ),
    wrong=lambda n, C: (3 * n, 9 * n * C**2, (3 * n) ** 2 * C**2),
    systems=("vgg",),
    functions=("corollary.theory.receptive_field",),
)
def vgg_stack(rng, claim):
    """Stacked small kernels see as far as one large kernel and need fewer weights."""
    C = int(rng.integers(2, 20))
    outcomes = []
    for n in (2, 3):
        reached, _ = _footprint([(3, 1, 1)] * n, 21)
        side = len(reached)
        stack = [torch.nn.Conv2d(C, C, 3, bias=False, device="meta") for _ in range(n)]
        single = torch.nn.Conv2d(C, C, side, bias=False, device="meta")
        counted = (side, sum(layer.weight.numel() for layer in stack), single.weight.numel())
        outcomes += [equal(claim(n, C), counted, tol=0.1), at_most(claim(n, C)[1] + 1, claim(n, C)[2])]
    return all_of(*outcomes)


def _multiplications(*kernels):
    """Multiplications per pixel of a chain of same-size convolutions, as products with patch matrices."""
    total = 0
    for c_in, c_out, k in kernels:
        patches = F.unfold(torch.ones(1, c_in, 4, 4), k, padding=k // 2)  # one column of inputs per pixel
        total += patches[0].numel() * c_out
    return total / 16


@formula(
    "conv-bottleneck",
    latex=r"1 \times 1 \text{ to } b \text{ channels first}: \quad c\,b + k^2\,b\,c'"
    r" \quad \text{instead of} \quad k^2\,c\,c' \text{ multiplications per pixel}",
    where="001 §12.10 (Inception)",
    right=lambda c, b, c_out, k: (c * b + k**2 * b * c_out, k**2 * c * c_out),
    wrong=lambda c, b, c_out, k: (c * b * c_out + k**2 * b, k**2 * c * c_out),
    systems=("inception",),
    functions=("corollary.vision.googlenet.Inception",),
)
def bottleneck(rng, claim):
    """Cutting the channels with a 1 x 1 convolution before a large kernel saves multiplications."""
    from corollary.vision.googlenet import Inception

    c, b, c_out, k = int(rng.integers(32, 64)), int(rng.integers(4, 8)), int(rng.integers(32, 64)), 5
    counted = _multiplications((c, b, 1), (b, c_out, k)), _multiplications((c, c_out, k))
    saved = at_most(claim(c, b, c_out, k)[0], claim(c, b, c_out, k)[1])
    with torch.device("meta"):
        module = Inception(c, (1, 1, 1, b, c_out, 1), norm=True)
    weights = sum(w.numel() for w in module.five.parameters() if w.ndim == 4)  # each once per pixel
    return all_of(
        equal(claim(c, b, c_out, k), counted, tol=0.1),
        equal(claim(c, b, c_out, k)[0], weights, tol=0.1),
        saved,
    )


@formula(
    "conv-dilated-causal",
    latex=r"r = 1 + (k - 1)\sum_l d_l: \quad \text{linear in each } d_l,"
    r"\ \text{exponential in depth for } d_l = 2^l",
    where="001 §12.10.2",
    right=lambda k, dilations: 1 + (k - 1) * sum(dilations),
    wrong=lambda k, dilations: 1 + k * sum(dilations),
    errata=(
        Erratum(
            "E56",
            printed=r"the receptive field grows exponentially with the dilation factor $d$",
            correction=r"linearly in $d$; exponentially in depth when the dilations double",
            form=lambda k, dilations: 1 + (k - 1) * sum(2 ** (d - 1) for d in dilations),
            where="001 §12.10.2",
            kind="claim",
            counterexample=r"one layer of three taps with dilations 1, 2, 4, 8 sees 3, 5, 9, 17",
        ),
    ),
    systems=("temporal-conv", "wavenet"),
    functions=(
        "corollary.nn.CausalConv1d",
        "corollary.nn.TemporalConvNet",
        "corollary.theory.convolution.footprint",
    ),
)
def dilated_causal(rng, claim):
    """A causal stack looks back over the sum of its dilations, and never ahead."""
    from corollary.nn import CausalConv1d, TemporalConvNet

    k = int(rng.integers(2, 4))
    stacks = [[d] for d in (1, 2, 4, 8)] + [[2**l for l in range(depth)] for depth in (2, 3, 4)]
    outcomes = []
    for dilations in stacks:
        reached, place = _footprint([(k, 1, d) for d in dilations], 100, causal=True)
        seen = place - reached[0] + 1
        outcomes += [equal(claim(k, dilations), seen, tol=0.1), at_most(reached, place)]
        with seeded(0):
            stack = torch.nn.Sequential(*(CausalConv1d(1, 1, k, d) for d in dilations))
        (field,) = _library("footprint", stack, (1, 100))
        outcomes += [equal(claim(k, dilations), len(field), tol=0.1), equal(field[-1], place, tol=0.1)]
    with torch.device("meta"):
        blocks = [TemporalConvNet(1, (1,) * depth, k) for depth in (1, 2, 3)]
    for depth, net in enumerate(blocks, start=1):  # two layers of each dilation
        outcomes.append(equal(claim(k, [2**l for l in range(depth)] * 2), net.receptive_field, tol=0.1))
    return all_of(*outcomes)
