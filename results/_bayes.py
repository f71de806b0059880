"""Pictures of samplers, of networks' posteriors and of infinitely wide networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import make_moons
from torch import Tensor, nn

from corollary import bayes, catalog, theory
from results._drawings import ACCENT, INK, SOFT, WARM, _label, panels
from results._showing import fitted

__all__ = ["BAYES", "banded", "bordered"]

# Steps of the samplers that have a fixed one: small enough that their bias cannot be seen.
FIXED = {"ULA": 0.05, "SGLD": 0.05, "SGHMC": 0.05}


def banana(x: Tensor) -> Tensor:
    """Return the log-density of a bent Gaussian, (n, 2) -> (n,)."""
    a, b = x.unbind(-1)
    return -0.5 * (a / 1.5).square() - 0.5 * ((b - 0.5 * a.square() + 1) / 0.5).square()


def sampler(name: str) -> Figure:
    """Draw four short chains and the draws of longer ones over the contours of a bent density."""
    options = {"step_size": FIXED[name], "thin": 20} if name in FIXED else {}
    model = getattr(bayes, name)(4, 500, 500, random_state=0, **options)
    model.fit(banana, torch.tensor([[-3.0, 3.5], [3.0, 3.5], [0.0, 2.0], [0.0, -1.0]], dtype=torch.float64))
    draws = np.asarray(model.draws_)
    rhat = float(np.max(bayes.r_hat(draws)))
    figure, axes = panels(
        2, f"{name} on a bent density: {draws[..., 0].size:,} draws, R-hat {rhat:.2f}", 3.8, 3.4
    )
    x, y = np.meshgrid(np.linspace(-5, 5, 120), np.linspace(-3, 9, 120))
    height = banana(torch.from_numpy(np.stack([x, y], -1))).exp().numpy()
    for part in axes:
        part.contour(x, y, height, levels=(0.02, 0.1, 0.3, 0.6, 0.9), colors=SOFT, linewidths=0.7)
    for chain, colour in zip(draws, (ACCENT, WARM, INK, "#2b8a3e")):
        axes[0].plot(*chain[:25].T, "-o", ms=2, lw=0.6, color=colour)
    axes[1].plot(*draws.reshape(-1, 2).T, ".", ms=1.2, color=ACCENT)
    for part, title in zip(axes, ("the first 25 draws of each chain", "all draws")):
        _label(part, "", "", title)
    return figure


def banded(entry: catalog.Entry) -> Figure:
    """Draw what a regression says between and beyond a few points, and how sure it is."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-3, -1, 12), rng.uniform(0.5, 3, 14)])[:, None]
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(len(x))
    wavy = {"activation": "erf", "bias_std": 1.0, "alpha": 0.01} if entry.chapter == "kernels" else {}
    model = fitted(entry, x, y, **wavy)
    at = np.linspace(-4.5, 4.5, 300)[:, None]
    mean, std = (np.asarray(part) for part in model.predict(at, return_std=True))
    figure, (axes,) = panels(1, f"{entry.name}: mean and two standard deviations", 6, 3.2)
    axes.fill_between(at[:, 0], mean - 2 * std, mean + 2 * std, color=ACCENT, alpha=0.2, lw=0)
    axes.plot(at[:, 0], mean, color=ACCENT)
    axes.plot(at[:, 0], np.sin(2 * at[:, 0]), color=SOFT, lw=1, label="truth")
    axes.plot(x[:, 0], y, "o", ms=3.5, color=WARM, label="data")
    axes.set_ylim(-3.5, 3.5)
    axes.legend(frameon=False, fontsize=7)
    return figure


def bordered(entry: catalog.Entry) -> Figure:
    """Draw the probability of a class over the plane of two moons."""
    X, y = make_moons(160, noise=0.2, random_state=0)
    model = fitted(entry, X, y)
    a, b = np.meshgrid(np.linspace(-2.5, 3.5, 90), np.linspace(-2, 2.5, 90))
    chance = model.predict_proba(np.column_stack([a.ravel(), b.ravel()]))[:, 1].reshape(a.shape)
    figure, (axes,) = panels(1, f"{entry.name}: probability of the blue class", 5.4, 3.6)
    axes.contourf(a, b, chance, levels=np.linspace(0, 1, 11), cmap="coolwarm_r", alpha=0.75)
    axes.contour(a, b, chance, levels=(0.5,), colors=INK, linewidths=1)
    for c, colour in ((0, WARM), (1, ACCENT)):
        axes.plot(*X[y == c].T, "o", ms=3, color=colour, mec="white", mew=0.4)
    return figure


def tangent_kernel() -> Figure:
    """Draw the tangent kernel of a narrow and a wide network on a circle, beside that of infinite width."""
    angle = np.linspace(-np.pi, np.pi, 121)
    A = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], 1))
    figure, axes = panels(
        3, "Tangent kernel on the circle, seen from angle 0; five random networks each", 3.0, 2.8
    )
    for part, width in zip(axes, (16, 128, 1024)):
        for seed in range(5):
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                first, last = nn.Linear(2, width, bias=False), nn.Linear(width, 1, bias=False)
                nn.init.normal_(first.weight)
                nn.init.normal_(last.weight, std=width**-0.5)
            net = nn.Sequential(first, nn.ReLU(), last).double()
            row = theory.ntk.empirical(net, A, A[60:61])[:, 0].detach().numpy()
            part.plot(angle, row / row[60], lw=0.8, color=ACCENT, alpha=0.7)
        part.set_ylim(-0.1, 1.1)
        _label(part, "angle", "kernel, 1 at angle 0" if width == 16 else "", f"width {width:,}")
    return figure


SAMPLERS = {
    "metropolis": "Metropolis",
    "hmc": "HMC",
    "nuts": "NUTS",
    "langevin": "MALA",
    "ula": "ULA",
    "sgld": "SGLD",
    "sghmc": "SGHMC",
}
BAYES: dict[str, Callable[[], Any]] = {id: partial(sampler, name) for id, name in SAMPLERS.items()}
BAYES["empirical-ntk"] = tangent_kernel
