"""Layers of convolutional networks: receptive fields, their gradients, pooling, counts and dilation."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from scipy import signal

from corollary.formulas._convolution_tools import library_function
from corollary.formulas._library_tools import seeded, tensor
from corollary.formulas.record import Erratum, all_of, at_most, equal, formula


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
    W = library_function("convolution_matrix", kernel, 6, padding=2)[:6].numpy()
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
        library_function("receptive_field", zip(kernels, strides)).size,
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
    matrix = library_function("convolution_matrix", tensor(w), (6, 5)).numpy()
    return all_of(
        equal(claim(x, w), F.conv2d(torch.tensor(x[None]), torch.tensor(w))[0], tol=1e-12),
        equal(claim(x, w).ravel(), matrix @ x.ravel(), tol=1e-12),
    )


def _parameter_counts(m, n, c, p, q, K):
    layer = {"size": (m, n), "kernel": (p, q), "channels": c, "kernels": K}
    return [library_function("parameter_count", **layer, sharing=how) for how in ("shared", "dense", "local")]


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
        library_function("receptive_field", [(3, 1)] * n).size,
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
        (field,) = library_function("footprint", stack, (1, 100))
        outcomes += [equal(claim(k, dilations), len(field), tol=0.1), equal(field[-1], place, tol=0.1)]
    with torch.device("meta"):
        blocks = [TemporalConvNet(1, (1,) * depth, k) for depth in (1, 2, 3)]
    for depth, net in enumerate(blocks, start=1):  # two layers of each dilation
        outcomes.append(equal(claim(k, [2**l for l in range(depth)] * 2), net.receptive_field, tol=0.1))
    return all_of(*outcomes)
