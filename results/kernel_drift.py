"""How far the tangent kernel of a network moves while it is trained, over its width."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corollary.theory import ntk
from corollary.theory.infinite import wide_network
from results.tables import at_least, at_most, page

WIDTHS = (64, 128, 256, 512, 1024)
SEEDS, SAMPLES, STEPS = 4, 64, 100
TEXT = """Two hidden layers of equal width, drawn and scaled as for the infinite limit (`theory.infinite.wide_network`), learn
to tell even from odd in {samples} digits by {steps} steps of full-batch gradient descent on half the summed squared error (step
half of the largest stable one, which the kernel's spectrum gives); mean over {seeds} seeds. `drift` is
‖Θ − Θ₀‖ / ‖Θ₀‖ before and after training (`theory.ntk.drift`), `distance to the limit` the same between Θ₀ and the kernel
of infinite width, `movement` the relative change of the first and last layers' weights, and the last column the loss left over
that at the start. Slopes are of least squares in logarithms over all widths, with their standard deviation over seeds.

The theory bounds the drift by a multiple of width^-½. Measured slopes: distance to the limit {limit}, movement of the weights
{weights}, drift with ReLU units {relu}, with the error function {erf}. {verdict}"""


def run(out: Path) -> dict[str, float]:
    """Train networks of every width, measure, draw, and write the page."""
    X, y = load_digits(return_X_y=True)
    X = torch.from_numpy((X[:SAMPLES] - X[:SAMPLES].mean()) / X[:SAMPLES].std()).float()
    y = torch.from_numpy(1.0 - 2.0 * (y[:SAMPLES] % 2)).float()[:, None]
    found = {
        phi: np.array([[_trained(phi, w, s, X, y) for w in WIDTHS] for s in range(SEEDS)])
        for phi in ("relu", "erf")
    }
    slopes = {
        phi: np.array([[_slope(run[:, i]) for i in range(3)] for run in runs]) for phi, runs in found.items()
    }
    mean = {phi: each.mean(0) for phi, each in slopes.items()}
    relu, erf = (_shown(slopes[phi][:, 0]) for phi in ("relu", "erf"))
    steep = max(mean["relu"][0], mean["erf"][0]) < -0.6
    verdict = (
        "The drift falls faster than the bound: the units' changes have random signs and mostly cancel in the kernel, so that "
        "its slope lies nearer -1; the bound's -½ is that of the weights and of the random start."
        if steep
        else "The drift falls as the bound says."
    )
    text = TEXT.format(
        samples=SAMPLES, steps=STEPS, seeds=SEEDS, relu=relu, erf=erf, verdict=verdict,
        limit=_shown(slopes["relu"][:, 1]), weights=_shown(slopes["relu"][:, 2]),
    )  # fmt: skip
    rows = [
        (phi, width, *(float(v) for v in found[phi][:, i].mean(0)))
        for phi in found
        for i, width in enumerate(WIDTHS)
    ]
    _plot(out / "kernel_drift.png", found)
    headings = ("units", "width", "drift", "distance to the limit", "movement", "loss left")
    page(out / "kernel_drift.md", "Drift of the tangent kernel over width", text, headings, rows)
    for phi in found:
        at_most(float(mean[phi][0]), -0.4, f"the slope of the drift with {phi}")
        at_most(
            abs(float(mean[phi][1]) + 0.5),
            0.15,
            f"the slope of the distance to the limit less -1/2 with {phi}",
        )
        at_most(
            abs(float(mean[phi][2]) + 0.5), 0.15, f"the slope of the weights' movement less -1/2 with {phi}"
        )
    at_least(float(found["relu"][:, :, 0].min()), 0.0, "the drift")
    return {f"drift, {phi}": round(float(values[0]), 3) for phi, values in mean.items()}


def _trained(phi: str, width: int, seed: int, X: Tensor, y: Tensor) -> tuple[float, float, float, float]:
    """Train one network; return drift, distance to the limit, movement of the outer weights, and the share of the loss left."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = wide_network([X.shape[1], width, width, 1], phi)
    first, K = copy.deepcopy(net), ntk.empirical(net, X)
    step = 0.5 * ntk.spectrum(K).largest_step
    losses = []
    for _ in range(STEPS):
        loss = 0.5 * (net(X) - y).square().sum()
        losses.append(float(loss))
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), gradients):
                p.sub_(g, alpha=step)
    limit = _limit(phi, X)
    return (
        ntk.drift(K, ntk.empirical(net, X)),
        ntk.drift(limit, K),
        _movement(first, net),
        losses[-1] / losses[0],
    )


def _limit(phi: str, X: Tensor) -> Tensor:
    from corollary.theory.infinite import infinite_kernels

    return infinite_kernels(X, n_layers=2, activation=phi).ntk


def _movement(before: nn.Module, after: nn.Module) -> float:
    """Return the relative change of the first and the last layer's weights, on average."""
    pairs = [
        (a.weight.detach(), b.weight.detach()) for a, b in zip((before[0], before[-1]), (after[0], after[-1]))
    ]  # type: ignore[index]
    return float(np.mean([float((b - a).norm() / a.norm()) for a, b in pairs]))


def _slope(values: np.ndarray) -> float:
    return float(np.polyfit(np.log(WIDTHS), np.log(values), 1)[0])


def _shown(slopes: np.ndarray) -> str:
    return f"{slopes.mean():.2f} ± {slopes.std(ddof=1):.2f}"


def _plot(path: Path, found: dict[str, Any]) -> None:
    """Draw the three measures over width, and lines of slope -1/2 and -1."""
    from matplotlib.figure import Figure

    from corollary import plot

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    width = np.array(WIDTHS, float)
    for axes, (phi, runs) in zip(figure.subplots(1, 2, sharey=True), found.items()):
        for i, label in enumerate(("drift", "distance to the limit", "movement of the weights")):
            axes.errorbar(
                width, runs[:, :, i].mean(0), runs[:, :, i].std(0, ddof=1), marker="o", ms=3, label=label
            )
        top = runs[:, 0, 0].mean()
        axes.plot(width, top * (width / width[0]) ** -0.5, "k--", lw=0.8, label="slope -1/2")
        axes.plot(width, top * (width / width[0]) ** -1.0, "k:", lw=0.8, label="slope -1")
        axes.set(xscale="log", yscale="log", xlabel="width", title=phi)
    figure.axes[0].legend(fontsize=7, frameon=False)
    plot.save(figure, path)
