"""Pictures of descent: paths on a surface, races, spectra, rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from corollary import errors, optim
from corollary.plot.pictures import ACCENT, BASE, INK, SOFT

__all__ = ["decay", "race", "sharpness", "spectrum", "trajectory"]

POINTS = 161  # of the grid under a path, each way
LEVELS = 24
OFF = 1e3  # times its first loss beyond which an optimiser has diverged, and is drawn no further


def _panels(count: int, width: float = 4.4, height: float = 3.4) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(1, count)))
    for part in axes:
        part.spines[["top", "right"]].set_visible(False)
    return figure, axes


def trajectory(
    function: Any,
    optimizers: Mapping[str, Any] | Sequence[str] | str,
    start: Sequence[float],
    steps: int = 100,
    *,
    limits: Sequence[Sequence[float]] | None = None,
    best: Sequence[float] | None = None,
    **options: Any,
) -> Figure:
    """Return the paths of optimisers on a surface over the plane, and their values against gradients taken.

    Parameters
    ----------
    function : callable
        ``function(p)`` of a tensor of shape (2,) returns one number.
    optimizers : str, sequence of str, or dict
        Names of ``corollary.optim``; or labels with, for each, options of the optimiser of that name
        (``{"adam": {"lr": 0.1}}``) or a factory (``{"mine": lambda p: torch.optim.Adam(p, lr=0.1)}``).
    start : (float, float)
        Where they begin.
    steps : int, default=100
        How many each takes.
    limits : ((float, float), (float, float)), optional
        The part of the plane; by default what the paths need.
    best : (float, float), optional
        A minimum to mark.
    **options
        Of every optimiser that is given by name alone, such as ``lr``; ``noise`` and ``random_state`` of
        :func:`corollary.optim.trajectory`.

    Examples
    --------
    >>> figure = trajectory(lambda p: p[0] ** 2 + 10 * p[1] ** 2, ["gd", "heavy-ball"], (3.0, 1.0), 40, lr=0.02)
    >>> len(figure.axes)
    2
    """
    if len(start) != 2:
        raise errors.value("trajectory", "a surface has two parameters", f"a start with {len(start)}")
    named = [optimizers] if isinstance(optimizers, str) else optimizers
    chosen = dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, {})
    paths = {}
    for label, how in chosen.items():
        own = {} if callable(how) else how
        which = how if callable(how) else label
        paths[label] = optim.trajectory(function, which, start, steps, **({**options, **own}))
    figure, (left, right) = _panels(2)
    (a, b), (c, d) = limits or _around([path.points for path in paths.values()])
    x, y = np.meshgrid(np.linspace(a, b, POINTS), np.linspace(c, d, POINTS))
    at = torch.from_numpy(np.stack([x.ravel(), y.ravel()], 1))
    z = torch.stack([function(p) for p in at]).detach().numpy().reshape(x.shape)
    low = min(float(z.min()), *(float(path.values.min()) for path in paths.values()))
    left.contourf(x, y, np.log1p(z - low), LEVELS, cmap="Greys", alpha=0.6)
    colours = [ACCENT, BASE, "#15803d", "#7e22ce", "#be185d", "#0e7490", "#a16207", INK]
    span = max(float(path.values.max()) for path in paths.values()) - low
    for i, (label, path) in enumerate(paths.items()):
        colour = colours[i % len(colours)]
        left.plot(*path.points.T, color=colour, lw=1.2, marker=".", ms=2, label=label)
        right.plot(path.gradients, path.values - low + 1e-12 * (span or 1.0), color=colour, label=label)
    if best is not None:
        left.plot(*best, "*", color=INK, ms=9)
    left.set(xlim=(a, b), ylim=(c, d), xlabel="first parameter", ylabel="second parameter")
    right.set(yscale="log", xlabel="gradients taken", ylabel="value above the least seen")
    right.legend(fontsize=7, frameon=False)
    return figure


def _around(paths: Sequence[np.ndarray]) -> tuple[tuple[float, float], ...]:
    points = np.concatenate(paths)
    low, high = points.min(0), points.max(0)
    margin = 0.15 * np.maximum(high - low, 1e-3 + 0.3 * (high - low).max())
    return tuple((float(a), float(b)) for a, b in zip(low - margin, high + margin))


def race(found: Any) -> Figure:
    """Return the losses of :func:`corollary.optim.race`: medians with the range of the seeds, best first in the legend."""
    figure, (axes,) = _panels(1, 7.4, 4.4)
    colours = [ACCENT, BASE, "#15803d", "#7e22ce", "#be185d", "#0e7490", "#a16207"]
    for i, result in enumerate(found.results):
        middle = np.median(result.losses, axis=0)
        seen = middle < OFF * np.abs(middle[0])
        style = ("-", "--", ":")[i // len(colours) % 3]
        colour, label = colours[i % len(colours)], f"{result.optimizer} ({result.learning_rate:g})"
        axes.plot(result.passes[seen], middle[seen], style, color=colour, lw=1.4, label=label)
        axes.fill_between(
            result.passes[seen], result.losses.min(0)[seen], np.minimum(result.losses.max(0), OFF * np.abs(middle[0]))[seen],
            color=colour, alpha=0.12, lw=0,
        )  # fmt: skip
    positive = all((r.losses > 0).all() for r in found.results)
    axes.set(
        xlabel="gradients taken, in passes over the data",
        ylabel="loss",
        yscale="log" if positive else "linear",
    )
    axes.legend(
        fontsize=7,
        frameon=False,
        bbox_to_anchor=(1, 1),
        loc="upper left",
        title="rate in brackets",
        title_fontsize=7,
    )
    return figure


def spectrum(found: Any) -> Figure:
    """Return the spectral density of :func:`corollary.theory.density`, on a logarithmic scale that shows lone eigenvalues."""
    figure, (axes,) = _panels(1, 6.0, 3.4)
    floor = 1e-6 * float(found.density.max())
    axes.semilogy(found.grid, np.maximum(found.density, floor), color=ACCENT, lw=1.3)
    axes.fill_between(found.grid, floor, np.maximum(found.density, floor), color=ACCENT, alpha=0.15, lw=0)
    axes.axvline(0, color=SOFT, lw=0.8)
    axes.set(xlabel="eigenvalue of the Hessian", ylabel="density", ylim=(floor, None))
    return figure


def decay(*found: Any) -> Figure:
    """Return measured decays beside their bounds, a panel for each of :func:`corollary.theory.decay`."""
    figure, panels = _panels(len(found), 3.4, 3.0)
    for axes, each in zip(panels, found):
        floor = 1e-17 * max(float(each.measured[0]), 1e-300)
        axes.semilogy(np.maximum(each.bound, floor), color=SOFT, lw=1.3, label="bound")
        axes.semilogy(np.maximum(each.measured, floor), color=ACCENT, lw=1.3, label="measured")
        axes.set_title(each.optimizer, fontsize=9)
        axes.set(xlabel="anchor" if each.optimizer == "svrg" else "step", ylabel=each.quantity)
        axes.legend(fontsize=7, frameon=False)
    return figure


def sharpness(found: Any) -> Figure:
    """Return sharpness and loss along descent, of :func:`corollary.theory.edge_of_stability`, with the limit 2 / rate."""
    figure, (left, right) = _panels(2, 3.8, 3.0)
    left.plot(found.steps, found.sharpness, color=ACCENT, lw=1.3)
    left.axhline(found.limit, color=BASE, lw=1, ls="--")
    left.annotate("2 / learning rate", (found.steps[0], found.limit), fontsize=7, va="bottom", color=BASE)
    left.set(xlabel="step", ylabel="largest eigenvalue of the Hessian", ylim=(0, None))
    right.plot(found.losses, color=INK, lw=1)
    right.set(xlabel="step", ylabel="loss", yscale="log" if (found.losses > 0).all() else "linear")
    return figure
