"""Pictures of what is not fitted: functions, layers, optimisers. Each function returns a figure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from corollary import data, optim, plot, theory
from corollary.completion import recovery_curve, scalar_flow
from corollary.data.augment import augment
from corollary.graphs.wl import colour_refinement
from corollary.nn import LRU, Residual, TemporalConvNet
from corollary.nn.activations import ACTIVATIONS, activation
from corollary.nn.normalisation import norm
from corollary.optim.schedule import SCHEDULES
from corollary.theory import convolution
from corollary.theory.graphs import graph_fourier, oversmoothing
from corollary.theory.recurrence import gradient_flow
from corollary.theory.symmetry import rotations

__all__ = ["DRAWINGS", "panels"]

INK, ACCENT, SOFT, WARM = "#1f2933", "#2563eb", "#9aa5b1", "#d9480f"


def panels(n: int, title: str, width: float = 3.0, height: float = 2.7) -> tuple[Figure, list[Any]]:
    """Return a figure with a title and ``n`` panels in a row."""
    figure = Figure(figsize=(width * n, height), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = [figure.add_subplot(1, n, i + 1) for i in range(n)]
    for part in axes:
        part.spines[["top", "right"]].set_visible(False)
        part.tick_params(labelsize=7)
    return figure, axes


def _label(axes: Any, x: str, y: str, title: str = "") -> None:
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.set_title(title, fontsize=9)


def _bare(axes: Any, title: str = "") -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=9)


# --- networks --------------------------------------------------------------------------------------------


def activations() -> Figure:
    """Draw every activation of one input, and its derivative."""
    names = [name for name in ACTIVATIONS if name not in ("softmax", "maxout", "heaviside")]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    figure.suptitle("Activations (blue) and their derivatives (orange)", fontsize=10)
    for i, name in enumerate(names):
        z = torch.linspace(-3, 3, 301, requires_grad=True)
        a = activation(name)(z)
        (slope,) = torch.autograd.grad(a.sum(), z)
        axes = figure.add_subplot(2, -(-len(names) // 2), i + 1)
        axes.plot(z.detach(), a.detach(), color=ACCENT, lw=1.6)
        axes.plot(z.detach(), slope, color=WARM, lw=1, ls="--")
        axes.set_ylim(-1.5, 3)
        axes.set_title(name, fontsize=8)
        axes.tick_params(labelsize=6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def normalisation() -> Figure:
    """Draw what a deep stack does to the scale of its activations, plain and normalised."""
    figure, (axes,) = panels(1, "A deep tanh net with weights twice too large", 5)
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(0))
    for name in (None, "batch", "layer"):
        torch.manual_seed(0)
        z, saturated = x, []
        for _ in range(20):
            linear = nn.Linear(64, 64, bias=False)
            nn.init.normal_(linear.weight, std=2 / 8)
            z = torch.tanh(norm(name, linear)(z)).detach()
            saturated.append(float((z.abs() > 0.97).double().mean()))
        axes.plot(range(1, 21), saturated, marker="o", ms=3, label=name or "none")
    _label(axes, "layer", "share of saturated units")
    axes.legend(fontsize=7, frameon=False)
    return figure


def shortcuts() -> Figure:
    """Draw the gradient that reaches each layer of a deep net with and without shortcuts."""
    figure, (axes,) = panels(1, "Gradient that reaches the layers of a net of 40, untrained", 5)
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    for name in ("plain", "residual"):
        torch.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(40)]
        net = nn.Sequential(*(Residual(block) if name == "residual" else block for block in blocks))
        net(x).square().mean().sqrt().backward()
        norms = [float(block[0].weight.grad.norm()) + 1e-12 for block in blocks]
        axes.semilogy(range(1, 41), norms, marker="o", ms=3, label=name)
    _label(axes, "layer", "norm of the weights' gradient")
    axes.legend(fontsize=7, frameon=False)
    return figure


def convolutions() -> Figure:
    """Draw a photograph, two of its convolutions, and a Toeplitz matrix."""
    photo = data.load("photos").X[0].mean(0)[150:350, 200:400] / 255
    blur = np.outer(*[np.hanning(11)] * 2)
    figure, axes = panels(4, "Convolution of a photograph, and as a matrix", 2.4)
    edges = convolution.convolve(photo, np.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]]), "same")
    shown = (photo, convolution.fft_convolve(photo, blur / blur.sum(), "same"), edges)
    for part, picture, title in zip(axes, shown, ("photograph", "blurred", "upright edges")):
        part.imshow(picture, cmap="gray")
        _bare(part, title)
    axes[3].imshow(convolution.toeplitz([1.0, 2.0, 3.0, 2.0, 1.0], 16), cmap="Blues")
    _bare(axes[3], "Toeplitz matrix of a kernel")
    return figure


# --- sequences -------------------------------------------------------------------------------------------


def gradients() -> Figure:
    """Draw how gradients vanish and explode through time."""
    figure, (axes,) = panels(1, "Gradient k steps back in a recurrent net, and its bound (dashed)", 5)
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * 0.1
    for scale, colour in ((0.5, ACCENT), (1.0, INK), (1.5, WARM)):
        torch.manual_seed(0)
        cell = nn.RNN(3, 32)
        with torch.no_grad():
            nn.init.orthogonal_(cell.weight_hh_l0, gain=scale)
        flow = gradient_flow(cell, x)
        steps = range(1, len(flow.measured) + 1)
        axes.semilogy(steps, np.maximum(flow.measured, 1e-12), color=colour, label=f"weights of norm {scale}")
        axes.semilogy(steps, np.maximum(flow.bound, 1e-12), color=colour, ls="--", lw=0.8)
    _label(axes, "steps back", "norm of the Jacobian")
    axes.set_ylim(1e-12, 1e10)
    axes.legend(fontsize=7, frameon=False)
    return figure


def recurrent_unit() -> Figure:
    """Draw the eigenvalues of a linear recurrent unit and what it makes of an impulse."""
    torch.manual_seed(0)
    layer = LRU(1, 200, r_min=0.8, r_max=0.995, max_phase=0.6)
    figure, (left, right) = panels(2, "Linear recurrent unit: eigenvalues, and the answer to an impulse", 3.6)
    real, imaginary = (part.detach().numpy() for part in layer.eigenvalues())
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    left.plot(circle.real, circle.imag, color=SOFT, lw=1)
    left.plot(real, imaginary, ".", ms=3, color=ACCENT)
    left.set_aspect("equal")
    _label(left, "real part", "imaginary part")
    impulse = torch.zeros(1, 120, 1)
    impulse[0, 5] = 1
    right.plot(layer(impulse)[0, :, 0].detach(), color=ACCENT, lw=1.4)
    right.plot(impulse[0, :, 0], color=SOFT, lw=1)
    _label(right, "step", "output")
    return figure


def temporal() -> Figure:
    """Draw which inputs the last output of a temporal net depends on, block by block."""
    figure, (axes,) = panels(
        1, "What the last step sees of the past, through 1 to 5 dilated blocks", 6.5, 2.4
    )
    seen = []
    for depth in range(1, 6):
        torch.manual_seed(0)
        net, x = TemporalConvNet(1, (8,) * depth), torch.zeros(1, 1, 160, requires_grad=True)
        with torch.no_grad():
            for p in net.parameters():
                p.abs_()
        net(x)[0, :, -1].sum().backward()
        seen.append((x.grad[0, 0] != 0).double().numpy())
    axes.imshow(
        np.array(seen), aspect="auto", cmap="Blues", extent=(-160, 0, 5.5, 0.5), interpolation="nearest"
    )
    _label(axes, "steps before the last", "blocks")
    return figure


# --- graphs ----------------------------------------------------------------------------------------------


def _club() -> tuple[Any, dict[int, Any]]:
    import networkx as nx

    graph = nx.karate_club_graph()
    return graph, nx.spring_layout(graph, seed=3, weight=None)


def refinement() -> Figure:
    """Draw the colours of the karate club in each round of refinement."""
    import networkx as nx

    graph, places = _club()
    figure, axes = panels(4, "Colour refinement of the karate club", 2.7)
    plain = nx.Graph(graph.edges)
    rounds = colour_refinement(plain, 3)
    for i, (part, colours) in enumerate(zip(axes, rounds)):
        codes = np.unique(colours, return_inverse=True)[1]
        order = dict(zip(plain.nodes, codes))
        shown = [order[v] for v in graph]
        nx.draw(graph, places, part, node_color=shown, cmap="turbo", node_size=40, width=0.4, edge_color=SOFT)
        part.set_title(f"round {i}: {codes.max() + 1} colours", fontsize=9)
    return figure


def spectrum() -> Figure:
    """Draw low and high frequencies on a graph, and how layers smooth them away."""
    import networkx as nx

    graph, places = _club()
    plain = nx.Graph()
    plain.add_nodes_from(graph.nodes)
    plain.add_edges_from(graph.edges)
    values, vectors = graph_fourier(plain)
    figure, axes = panels(3, "Eigenvectors of the karate club's Laplacian, and smoothing", 3.0)
    for part, k in zip(axes, (1, len(values) - 1)):
        wave = vectors[:, k]
        bound = np.abs(wave).max()
        options = {"node_color": wave, "cmap": "coolwarm", "vmin": -bound, "vmax": bound}
        nx.draw(plain, places, part, node_size=40, width=0.4, edge_color=SOFT, **options)
        part.set_title(f"eigenvalue {values[k]:.2f}", fontsize=9)
    smooth = oversmoothing(plain, np.eye(len(plain)), layers=16)
    axes[2].semilogy(smooth.distance, marker="o", ms=3, color=ACCENT)
    _label(axes[2], "layers of propagation", "share not yet smooth")
    return figure


def symmetry() -> Figure:
    """Draw that a convolution with a symmetric kernel commutes with a rotation, and one without does not."""
    photo = data.load("photos").X[1].mean(0)[100:300, 200:400] / 255
    x = torch.from_numpy(photo)[None, None]
    turn = rotations(4)[1]
    figure, axes = panels(4, "Turned then filtered, or filtered then turned?", 2.4)
    kernels = {"round kernel": torch.ones(1, 1, 9, 9) / 81}
    kernels["slanted kernel"] = torch.eye(9).reshape(1, 1, 9, 9) / 9
    for i, (name, kernel) in enumerate(kernels.items()):
        call = partial(nn.functional.conv2d, weight=kernel.to(x), padding=4)
        a, b = call(turn(x))[0, 0], turn(call(x))[0, 0]
        axes[2 * i].imshow(a, cmap="gray")
        _bare(axes[2 * i], f"{name}: one order")
        axes[2 * i + 1].imshow((a - b).abs(), cmap="Reds", vmin=0, vmax=0.2)
        _bare(axes[2 * i + 1], f"difference, {float((a - b).abs().mean()):.3f}")
    return figure


# --- completion, data, optimisation ----------------------------------------------------------------------


def recovery() -> Figure:
    """Draw the share of matrices recovered against the number of known entries."""
    figure, (axes,) = panels(1, "When the least nuclear norm recovers a 14 × 14 matrix", 5)
    for rank in (1, 2, 3):
        curve = recovery_curve(14, rank, repeats=8, random_state=0)
        axes.plot(curve.samples / 196, curve.success, marker="o", ms=3, label=f"rank {rank}")
    _label(axes, "share of entries known", "share of matrices recovered")
    axes.legend(fontsize=7, frameon=False)
    return figure


def factorisation() -> Figure:
    """Draw the product of two numbers under gradient flow."""
    figure, (axes,) = panels(1, "Gradient flow of a product from c to 1: a plateau, then a jump", 5)
    t = np.linspace(0, 10, 400)
    for c in (1e-6, 1e-4, 1e-2, 0.3, 2.0):
        axes.plot(t, scalar_flow(1.0, c, t), label=f"c = {c:g}")
    _label(axes, "time", "product")
    axes.legend(fontsize=7, frameon=False)
    return figure


def schedules() -> Figure:
    """Draw every schedule."""
    figure, (axes,) = panels(1, "Schedules over 100 steps, after a warm-up of 10", 5)
    for name in SCHEDULES:
        axes.plot([optim.schedule(name, t, 100, warmup=10) for t in range(100)], label=name, lw=1.3)
    _label(axes, "step", "factor on the learning rate")
    axes.legend(fontsize=7, frameon=False, ncol=2)
    return figure


def augmentations() -> Figure:
    """Draw a photograph and random variants of it."""
    photo = data.load("photos").X[1][:, 80:320, 180:420].astype(np.float32) / 255
    figure, axes = panels(6, "A photograph, and what augmentation makes of it", 1.7, 2.1)
    wanted = [{}, {"flip": 1.0}, {"rotate": 40.0}, {"crop": 150}, {"colour": 0.3}, {"noise": 0.15}]
    for part, settings in zip(axes, wanted):
        made = augment(photo[None], generator=torch.Generator().manual_seed(1), **settings)[0]
        part.imshow(np.clip(made.transpose(1, 2, 0), 0, 1))
        _bare(part, ", ".join(settings) or "original")
    return figure


# Rates at which each does well in the valley below.
RATES = {
    "signsgd": 0.02,
    "subgradient": 0.2,
    "newton": 1.0,
    "adagrad": 0.5,
    "adam": 0.1,
    "amsgrad": 0.1,
    "rmsprop": 0.02,
    "muon": 0.05,
}


def _valley(p: torch.Tensor) -> torch.Tensor:
    x, y = p.flatten()
    return 0.5 * (1 - x) ** 2 + 4 * (y - x * x) ** 2


def optimiser(name: str) -> Figure:
    """Draw 150 steps of an optimiser down a bent valley, beside plain descent."""
    figure, (left, right) = panels(2, f"{name} in Rosenbrock's valley, beside plain descent (grey)", 3.8, 3.0)
    x, y = np.meshgrid(np.linspace(-1.6, 1.6, 161), np.linspace(-0.7, 1.9, 131))
    left.contourf(x, y, np.log1p(0.5 * (1 - x) ** 2 + 4 * (y - x * x) ** 2), 20, cmap="Blues", alpha=0.7)
    left.plot(1, 1, "*", color=WARM, ms=9)
    for which, colour in (("gd", SOFT), (name, ACCENT)):
        path, losses = _path(which, noisy=which == name and name in ("sgd", "minibatch"))
        left.plot(*path.T, color=colour, lw=1.2, marker=".", ms=2)
        right.semilogy(losses, color=colour, label=which)
    left.set(xlim=(-1.6, 1.6), ylim=(-0.7, 1.9))
    _label(left, "first parameter", "second parameter")
    _label(right, "step", "loss")
    return figure


def _path(name: str, noisy: bool) -> tuple[np.ndarray, np.ndarray]:
    rate = RATES.get(name, 0.004 if name in ("heavy-ball", "nesterov") else 0.02)
    noise = {"sgd": 2.0, "minibatch": 0.5}.get(name, 0.0) if noisy else 0.0
    options = {"radius": 1.2} if name == "projected" else {}
    path = optim.trajectory(_valley, name, (-1.3, 0.9), 150, lr=rate, noise=noise, **options)
    return path.points, path.values + 1e-12


def _small_problem() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Return a small net and two classes that no line divides."""
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.standard_normal((128, 4)), dtype=torch.float32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    return net, (X, (X[:, 0] * X[:, 1] > 0).long())


def raced() -> Figure:
    """Draw a race of all optimisers on a small net."""
    net, pair = _small_problem()
    return plot.race(optim.race(net, pair, passes=20, seeds=2))


def measured_rates() -> Figure:
    """Draw measured decays of least squares beside their theorems."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5)) * [1.0, 0.8, 0.6, 0.4, 0.3]
    y = X @ np.arange(1.0, 6.0) + 0.3 * rng.standard_normal(60)
    model = nn.Linear(5, 1, bias=False)
    names = ("gd", "heavy-ball", "nesterov", "sgd")
    return plot.decay(*(theory.decay(model, (X, y), name, loss="half_squared", steps=100) for name in names))


def clipping() -> Figure:
    """Draw descent at a cliff, with and without clipped gradients."""

    def cliff(p: torch.Tensor) -> torch.Tensor:
        return 0.05 * (p[0] - 3) ** 2 + torch.nn.functional.softplus(40 * (p[0] - 1)) / 10 + 0.5 * p[1] ** 2

    class Clipped(torch.optim.SGD):
        def step(self, closure=None):  # type: ignore[no-untyped-def, override]
            with torch.enable_grad():
                loss = closure()
            torch.nn.utils.clip_grad_norm_([p for g in self.param_groups for p in g["params"]], 0.3)
            super().step()
            return loss

    makers = {"plain": lambda p: torch.optim.SGD(p, lr=0.8), "clipped to 0.3": lambda p: Clipped(p, lr=0.8)}
    return plot.trajectory(cliff, makers, (-1.0, 1.0), 60)


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "activations": activations,
    "augmentation": augmentations,
    "convolution": convolutions,
    "equivariance": symmetry,
    "exact-recovery": recovery,
    "gradient-flow": gradients,
    "laplacian": spectrum,
    "lru": recurrent_unit,
    "normalisation": normalisation,
    "scalar-factorisation": factorisation,
    "schedules": schedules,
    "shortcuts": shortcuts,
    "temporal-conv": temporal,
    "wl-test": refinement,
    "clipping": clipping,
    "race": raced,
    "rates": measured_rates,
    **{
        name: partial(optimiser, name)
        for name in (*optim.NAMES, *optim.RULES)
        if name not in ("adamw", "sam", "lbfgs")
    },
}
