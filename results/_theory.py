"""Pictures of the theory: regions, splines, rates, double descent, losses, averages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import nn

from corollary import losses, optim, plot, theory
from results._drawings import ACCENT, INK, SOFT, WARM, _label, panels

__all__ = ["THEORY"]


def counting() -> Figure:
    """Draw the linear regions of a small network that has learned a disc."""
    angle = np.linspace(0, 2 * np.pi, 200)
    X = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], 1) * np.linspace(0.1, 1, 200)[:, None])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).double()
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(500):
            optimizer.zero_grad()
            (net(X)[:, 0] - X.square().sum(1)).square().mean().backward()
            optimizer.step()
    return plot.regions(theory.counting.linear_regions(net, radius=1.5))


def approximation() -> Figure:
    """Draw splines through more and more points, and the error of more and more units."""
    figure, (left, right) = panels(2, "Exact splines of ReLU units, and Barron's rate", 3.9, 3.0)
    x = np.linspace(0, 1, 400)
    f = np.sin(9 * x) * np.exp(-x)
    left.plot(x, f, color=SOFT, lw=3)
    for n, colour in ((5, WARM), (12, ACCENT)):
        at = np.linspace(0, 1, n)
        spline = theory.approximation.relu_spline(at, np.sin(9 * at) * np.exp(-at))
        left.plot(x, spline(x), color=colour, lw=1, label=f"{n} points")
    left.legend(fontsize=7, frameon=False)
    X = np.random.default_rng(0).uniform(-1, 1, size=(400, 5))
    rate = theory.approximation.barron_rate(X, np.cos(X.sum(1)), random_state=0)
    right.loglog(rate.sizes, rate.errors, "o-", ms=3, color=ACCENT, label=f"power {rate.exponent:.1f}")
    right.loglog(rate.sizes, rate.errors[0] / rate.sizes, color=SOFT, label="1 / m")
    right.legend(fontsize=7, frameon=False)
    _label(left, "x", "f(x)")
    _label(right, "hidden units m", "squared error")
    return figure


def generalisation() -> Figure:
    """Draw double descent on digits, and how three bounds fall with the number of samples."""
    X, y = load_digits(return_X_y=True)
    figure, (left, right) = panels(2, "Double descent on digits; gaps that theorems allow", 3.9, 3.0)
    found = theory.bounds.double_descent(X, np.eye(10)[y], n_train=150, repeats=3, random_state=0)
    left.loglog(found.sizes, found.test, "o-", ms=3, color=ACCENT)
    left.axvline(150, color=WARM, lw=1)
    _label(left, "random features (150 samples)", "test error")
    n = np.unique(np.logspace(2, 6, 30).astype(int))
    hoeffding = [theory.bounds.hoeffding(int(m)) for m in n]
    right.loglog(n, hoeffding, color=ACCENT, label="one function (Hoeffding)")
    right.loglog(
        n, [theory.bounds.vc_bound(int(m), 65) for m in n], color=WARM, label="half-spaces in 64 dimensions"
    )
    right.axhline(1, color=INK, lw=0.6, ls=":")
    right.legend(fontsize=7, frameon=False)
    _label(right, "samples", "gap of training and true error")
    return figure


def loss_shapes() -> Figure:
    """Draw the losses of numbers by their error, and of classes by their margin."""
    figure, (left, right) = panels(2, "Losses", 3.9, 3.0)
    z = torch.linspace(-3, 3, 301)
    for name in ("squared", "absolute", "huber", "quantile"):
        loss = losses.REGRESSION[name]
        options = {"level": 0.8} if name == "quantile" else {}
        left.plot(z, loss(z[:, None], torch.zeros(301, 1), **options), lw=1.2, label=name)
    one = torch.ones(301)
    for name, loss in {
        "logistic": losses.logistic,
        "hinge": losses.hinge,
        "zero-one": losses.zero_one,
    }.items():
        right.plot(z, loss(z, one), lw=1.2, label=name)
    for axes, x in ((left, "output − target"), (right, "margin")):
        axes.set_ylim(-0.1, 4)
        axes.legend(fontsize=7, frameon=False)
        _label(axes, x, "loss")
    return figure


def averages() -> Figure:
    """Draw noisy descent in a bowl, and its running mean."""
    figure, (left, right) = panels(2, "Points of a noisy descent, and their mean", 3.9, 3.0)
    path = optim.trajectory(lambda p: 0.5 * (p * p).sum(), "sgd", (2.0, 1.5), 400, lr=0.2, noise=2.0)
    mean = np.cumsum(path.points, 0) / np.arange(1, 402)[:, None]
    left.plot(*path.points.T, color=SOFT, lw=0.5)
    left.plot(*mean.T, color=ACCENT, lw=1.5)
    left.plot(0, 0, "*", color=WARM, ms=9)
    right.semilogy(np.linalg.norm(path.points, axis=1), color=SOFT, lw=0.7, label="last point")
    right.semilogy(np.linalg.norm(mean, axis=1), color=ACCENT, label="mean")
    right.legend(fontsize=7, frameon=False)
    _label(left, "first parameter", "second parameter")
    _label(right, "step", "distance from the minimum")
    return figure


THEORY: dict[str, Callable[[], Figure]] = {
    "approximation": approximation,
    "counting": counting,
    "generalisation": generalisation,
    "learning-from-loss": loss_shapes,
    "polyak-average": averages,
}
