"""Normalisation and residual connections: what is standardised, what stays invariant, what skips ahead."""

from __future__ import annotations

import numpy as np
import torch
from torch.autograd.functional import jacobian
from torch.func import functional_call

from corollary.formulas._library_tools import built, tensor
from corollary.formulas.record import Erratum, all_of, equal, formula


def _standardise(z, axis, delta, ddof=0):
    return (z - z.mean(axis, keepdims=True)) / np.sqrt(z.var(axis, keepdims=True, ddof=ddof) + delta)


@formula(
    "norm-batch",
    latex=r"\mu_j = \frac{1}{|B|}\sum_i z_{ij},\quad \sigma_j^2 = \frac{1}{|B|}\sum_i(z_{ij} - \mu_j)^2,"
    r"\quad \hat z_{ij} = \gamma_j\,\frac{z_{ij} - \mu_j}{\sqrt{\sigma_j^2 + \delta}} + \beta_j",
    where="000 §13.8; 002, 003 Normalisation",
    right=lambda z, gamma, beta, delta: gamma * _standardise(z, 0, delta) + beta,
    wrong=lambda z, gamma, beta, delta: gamma * _standardise(z, 0, delta, ddof=1) + beta,
    errata=(
        Erratum(
            "T14",
            printed=r"$\gamma + \beta z$, with $z$ not normalised",
            correction=r"$\gamma\tilde z + \beta$",
            form=lambda z, gamma, beta, delta: gamma + beta * z,
            where="003 Normalization",
            kind="typing",
        ),
    ),
    systems=("normalisation",),
    functions=("corollary.nn.norm",),
)
def batch(rng, claim):
    """Batch normalisation standardises each unit over the batch, then scales and shifts it."""
    from corollary.nn import norm

    z, gamma, beta = 2 + 3 * rng.normal(size=(8, 4)), rng.normal(size=4), rng.normal(size=4)
    layer = built(lambda: norm("batch", 4), weight=gamma, bias=beta).train()
    layer.eps = 1e-3
    plain = claim(z, np.ones(4), np.zeros(4), 0.0)
    return all_of(
        equal(claim(z, gamma, beta, 1e-3), layer(tensor(z)), tol=1e-10),
        equal([plain.mean(0), plain.var(0)], [np.zeros(4), np.ones(4)], tol=1e-10),
    )


@formula(
    "norm-layer",
    latex=r"x' = \gamma\,\frac{x - \mu}{\sigma} + \beta, \qquad "
    r"\mu = \frac1m\sum_j x_j,\quad \sigma^2 = \frac1m\sum_j(x_j - \mu)^2",
    where="002, 003 Normalisation; 004 §5.1",
    right=lambda x, gamma, beta, delta: gamma * _standardise(x, 1, delta) + beta,
    wrong=lambda x, gamma, beta, delta: gamma * _standardise(x, 0, delta) + beta,
    systems=("normalisation", "transformer"),
    functions=("corollary.nn.norm",),
)
def layer(rng, claim):
    """Layer normalisation takes mean and variance over the units of one sample."""
    from corollary.nn import norm

    x, gamma, beta = 1 + 2 * rng.normal(size=(5, 6)), rng.normal(size=6), rng.normal(size=6)
    reference = built(lambda: norm("layer", 6), weight=gamma, bias=beta)
    return equal(claim(x, gamma, beta, reference.eps), reference(tensor(x)), tol=1e-10)


@formula(
    "norm-weight",
    latex=r"w = g\,\frac{v}{\lVert v\rVert}, \qquad \langle\nabla_v\ell, v\rangle = 0",
    where="002 Normalisation",
    right=lambda v, g: g * v / v.norm(),
    wrong=lambda v, g: g * v / (v @ v),
    systems=("normalisation",),
    functions=("corollary.nn.norm",),
)
def weight(rng, claim):
    """Weight normalisation splits length from direction, so the direction's gradient is orthogonal to it."""
    from corollary.nn import norm

    v = torch.tensor(2 * rng.normal(size=5), requires_grad=True)
    g, x = torch.tensor(rng.uniform(1, 2)), torch.tensor(rng.normal(size=5))
    w = claim(v, g)
    (slope,) = torch.autograd.grad(torch.tanh(w @ x), v, retain_graph=True)
    parts = {
        "parametrizations__weight__original0": g,
        "parametrizations__weight__original1": v.detach(),
    }
    layer = built(lambda: norm("weight", torch.nn.Linear(5, 1, bias=False)), **parts)
    return all_of(
        equal(w, layer.weight[0], tol=1e-12),
        equal(slope @ v, 0.0, tol=1e-10),
        equal(w.norm(), g, tol=1e-12),
    )


@formula(
    "norm-scale-invariance",
    latex=r"f(cW) = f(W), \qquad \nabla f(cW) = \frac1c\,\nabla f(W) \qquad (c > 0,\ \delta \to 0)",
    where="002 Normalisation",
    right=lambda output, slope, c: (output, slope / c),
    wrong=lambda output, slope, c: (output, slope * c),
    systems=("normalisation",),
    functions=("corollary.nn.norm",),
)
def scale_invariance(rng, claim):
    """Batch, layer and weight normalisation ignore the weights' scale; the gradient shrinks as it grows."""
    from corollary.nn import norm

    X, target = torch.tensor(rng.normal(size=(8, 4))), torch.tensor(rng.normal(size=(8, 3)))
    W, c = rng.normal(size=(3, 4)), rng.uniform(2, 5)
    outcomes = []
    for name in ("batch", "layer", "weight"):

        def net(A, name=name):
            module = norm(name, built(lambda: torch.nn.Linear(4, 3, bias=False), weight=A.detach()))
            if name == "weight":
                place = "parametrizations.weight.original"
                return functional_call(module, {f"{place}0": X.new_ones(3, 1), f"{place}1": A}, X)
            module[1].double().eps = 1e-15
            return functional_call(module, {"0.weight": A}, X)

        outputs, slopes = [], []
        for scale in (1.0, c):
            A = torch.tensor(scale * W, requires_grad=True)
            outputs.append(net(A))
            slopes.append(torch.autograd.grad((target * torch.sin(outputs[-1])).sum(), A)[0])
        output, slope = claim(outputs[0], slopes[0], c)
        outcomes += [equal(output, outputs[1], tol=1e-8), equal(slope, slopes[1], tol=1e-8)]
    return all_of(*outcomes)


@formula(
    "res-block",
    latex=r"g(x) = x + f(x):\ J_g = I + J_f; \qquad Wx + f(x):\ W + J_f; \qquad "
    r"(x, f(x)):\ \begin{pmatrix} I \\ J_f\end{pmatrix}",
    where="002, 003 Residual networks",
    right=lambda J, W: (np.eye(len(J)) + J, W + J, np.vstack([np.eye(len(J)), J])),
    wrong=lambda J, W: (J, W @ J, np.vstack([J, np.eye(len(J))])),
    systems=("shortcuts", "resnet", "densenet"),
    functions=("corollary.nn.Residual", "corollary.nn.Dense"),
)
def residual_block(rng, claim):
    """A shortcut adds the identity (or a projection) to the Jacobian; dense ones stack it on top."""
    from corollary.nn import Dense, Residual

    A, B, W, x = (torch.tensor(rng.normal(size=shape)) for shape in ((5, 4), (4, 5), (4, 4), (4,)))

    f = built(
        lambda: torch.nn.Sequential(
            torch.nn.Linear(4, 5, bias=False), torch.nn.Tanh(), torch.nn.Linear(5, 4, bias=False)
        ),
        **{"0__weight": A, "2__weight": B},
    )
    projected = Residual(f)
    projected.shortcut = built(lambda: torch.nn.Linear(4, 4, bias=False), weight=W)
    blocks = (Residual(f), projected, Dense(f, dim=0))
    h = 1e-5
    J = np.stack([((f(x + h * e) - f(x - h * e)) / (2 * h)).numpy() for e in torch.eye(4).double()], axis=1)
    return all_of(*(equal(c, jacobian(block, x), tol=1e-7) for c, block in zip(claim(J, W.numpy()), blocks)))
