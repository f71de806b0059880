"""The pictures of a sampler's draws: traces, ranks, and pairs of parameters with the divergences among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

from corollary import errors
from corollary.plot.pictures import ACCENT, BASE, INK, MAX_POINTS, SOFT

__all__ = ["joint", "ranks", "trace"]

MOST = 8  # parameters in one picture


def _draws(draws: Any, names: Sequence[str] | None, owner: str) -> tuple[np.ndarray, list[str]]:
    """Return the draws (chains, draws, d) of the first few parameters, and their names."""
    x = np.asarray(draws, dtype=float)
    if x.ndim != 3 or not x.size:
        raise errors.value(owner, "draws must have shape (chains, draws, d)", f"shape {x.shape}")
    names = [f"theta[{i}]" for i in range(x.shape[2])] if names is None else [str(name) for name in names]
    if len(names) != x.shape[2]:
        raise errors.value(owner, f"there must be a name for each of {x.shape[2]} parameters", len(names))
    return x[:, :, :MOST], names[:MOST]


def _shades(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["viridis"](c / max(1, count)) for c in range(count)]


def trace(draws: Any, names: Sequence[str] | None = None, diverging: Any = None) -> Figure:
    """Return, for each parameter, the histogram of every chain beside its path; divergent draws are marked below.

    Parameters
    ----------
    draws : array-like of shape (chains, draws, d)
        The draws; the first eight parameters are shown.
    names : sequence of str, optional
        Names of all parameters.
    diverging : array-like of bool, shape (chains, draws), optional
        Which transitions diverged, as in ``statistics_["diverging"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import plot
    >>> len(plot.trace(np.random.default_rng(0).normal(size=(4, 100, 2))).axes)
    4
    """
    x, names = _draws(draws, names, "trace")
    C, S, d = x.shape
    figure = Figure(figsize=(7.0, 1.5 * d + 0.3), layout="constrained")
    for i, name in enumerate(names):
        density, path = figure.add_subplot(d, 2, 2 * i + 1), figure.add_subplot(d, 2, 2 * i + 2)
        for c, shade in enumerate(_shades(C)):
            density.hist(x[c, :, i], bins="auto", histtype="step", density=True, color=shade, lw=0.9)
            path.plot(x[c, :, i], color=shade, lw=0.4)
        if diverging is not None:
            at = np.flatnonzero(np.asarray(diverging).any(0))
            path.plot(at, np.full(len(at), x[..., i].min()), "|", color=BASE)
        density.set_ylabel(name, fontsize=8)
        density.set_yticks([])
        for axes in (density, path):
            axes.tick_params(labelsize=7)
            axes.spines[["top", "right"]].set_visible(False)
    return figure


def ranks(draws: Any, names: Sequence[str] | None = None, bins: int = 20) -> Figure:
    """Return, for each parameter and chain, the histogram of its ranks among all draws: flat where chains agree.

    Parameters
    ----------
    draws : array-like of shape (chains, draws, d)
        The draws; the first eight parameters are shown.
    names : sequence of str, optional
        Names of all parameters.
    bins : int, default=20
        Bars of a histogram.
    """
    x, names = _draws(draws, names, "ranks")
    C, S, d = x.shape
    figure = Figure(figsize=(1.6 * min(C, 8) + 0.6, 1.2 * d + 0.3), layout="constrained")
    shown = min(C, 8)
    for i, name in enumerate(names):
        rank = rankdata(x[:, :, i]).reshape(C, S)
        for c in range(shown):
            axes = figure.add_subplot(d, shown, i * shown + c + 1)
            counts, _ = np.histogram(rank[c], bins, (0, C * S))
            axes.bar(np.arange(bins), counts, width=0.9, color=ACCENT)
            axes.axhline(S / bins, color=INK, lw=0.8, ls="--")
            axes.set(xticks=[], yticks=[], ylim=(0, max(3 * S / bins, counts.max())))
            axes.spines[["top", "right"]].set_visible(False)
            if c == 0:
                axes.set_ylabel(name, fontsize=8)
    return figure


def joint(draws: Any, names: Sequence[str] | None = None, diverging: Any = None) -> Figure:
    """Return scatters of all pairs of parameters, with divergent draws in another colour, and histograms between them.

    Parameters
    ----------
    draws : array-like of shape (chains, draws, d)
        The draws; the first eight parameters are shown.
    names : sequence of str, optional
        Names of all parameters.
    diverging : array-like of bool, shape (chains, draws), optional
        Which transitions diverged: where they gather, the sampler cannot go.
    """
    x, names = _draws(draws, names, "joint")
    d, flat = x.shape[2], x.reshape(-1, x.shape[2])
    marked = np.zeros(len(flat), bool) if diverging is None else np.asarray(diverging, bool).ravel()
    if len(marked) != len(flat):
        raise errors.value("joint", f"diverging must have shape {x.shape[:2]}", np.shape(diverging))
    plain = np.flatnonzero(~marked)[:: max(1, len(flat) // MAX_POINTS)]
    figure = Figure(figsize=(1.5 * d + 0.6, 1.5 * d + 0.6), layout="constrained")
    for i in range(d):
        for j in range(i + 1):
            axes = figure.add_subplot(d, d, i * d + j + 1)
            if i == j:
                axes.hist(flat[:, i], bins="auto", color=SOFT)
            else:
                axes.plot(flat[plain, j], flat[plain, i], ".", color=ACCENT, ms=1.5, alpha=0.5)
                axes.plot(flat[marked, j], flat[marked, i], ".", color=BASE, ms=3)
            axes.set(xticks=[], yticks=[])
            if i == d - 1:
                axes.set_xlabel(names[j], fontsize=8)
            if j == 0:
                axes.set_ylabel(names[i], fontsize=8)
    return figure
