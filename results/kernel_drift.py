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
SEEDS, SAMPLES, STEPS = 6, 64, 100
CASES = {"relu": ("relu", False), "relu, one sign": ("relu", True), "erf": ("erf", False)}
TEXT = """Two hidden layers of equal width, drawn and scaled as for the infinite limit (`theory.infinite.wide_network`), learn
to tell even from odd in {samples} digits by {steps} steps of full-batch gradient descent on half the summed squared error (step
half of the largest stable one, which the kernel's spectrum gives); mean over {seeds} seeds. `drift` is
‖Θ − Θ₀‖ / ‖Θ₀‖ before and after training (`theory.ntk.drift`), `distance to the limit` the same between Θ₀ and the kernel
of infinite width, `movement` the relative change of the first and last layers' weights, and the last column the loss left over
that at the start. Slopes are of least squares in logarithms over all widths, with their standard deviation over seeds.

**What theory says.** The drift is at most a multiple of width^-½ (Lee et al., 2019), and whether that is attained depends on
the output weights a. To first order Θ changes along ⟨∇Θ, ∇f⟩, which is width^-3/2 times a sum over the units i of terms that
are odd in aᵢ. With signs at random the terms cancel, the sum grows with width^½, and the drift falls as width^-1 (Dyer and
Gur-Ari, 2020; Huang and Yau, 2020). That is for units without kinks; of ReLU units about width^½ cross their kink, and each
changes Θ by 1/width with a random sign, in all by width^-¾ (a count, not a proof). With output weights of one sign (their
absolute values, `relu, one sign`; outputs are then taken less those at the start, which would grow with width^½) nothing
cancels, the sum grows with the width, and the drift falls as width^-½. Distance to the limit and movement of the weights have
-½ in every case: means over units, and one step shared by all of them.

**Found.** Slope of the drift with output weights of one sign {one} (predicted -½), of random signs with the error function {erf}
(predicted -1) and with ReLU {relu} (predicted -¾); with ReLU, distance to the limit {limit} and movement of the weights
{weights} (predicted -½).

**To see it break**, change one line of `results/kernel_drift.py`: `net[-1].weight.abs_()` to `net[-1].weight.neg_()` keeps both
signs, and the slope of the middle case is that of the first."""


def run(out: Path) -> dict[str, float]:
    """Train networks of every width, measure, draw, and write the page."""
    X, y = load_digits(return_X_y=True)
    X = torch.from_numpy((X[:SAMPLES] - X[:SAMPLES].mean()) / X[:SAMPLES].std()).float()
    y = torch.from_numpy(1.0 - 2.0 * (y[:SAMPLES] % 2)).float()[:, None]
    found = {
        name: np.array([[_trained(*case, w, s, X, y) for w in WIDTHS] for s in range(SEEDS)])
        for name, case in CASES.items()
    }
    slopes = {
        name: np.array([[_slope(run[:, i]) for i in range(3)] for run in runs])
        for name, runs in found.items()
    }
    relu, one, erf = (_shown(slopes[name][:, 0]) for name in CASES)
    text = TEXT.format(
        samples=SAMPLES, steps=STEPS, seeds=SEEDS, relu=relu, one=one, erf=erf,
        limit=_shown(slopes["relu"][:, 1]), weights=_shown(slopes["relu"][:, 2]),
    )  # fmt: skip
    rows = [
        (name, width, *(float(v) for v in found[name][:, i].mean(0)))
        for name in found
        for i, width in enumerate(WIDTHS)
    ]
    _plot(out / "kernel_drift.png", found)
    headings = ("units", "width", "drift", "distance to the limit", "movement", "loss left")
    page(out / "kernel_drift.md", "Drift of the tangent kernel over width", text, headings, rows)
    mean = {name: each.mean(0) for name, each in slopes.items()}
    at_most(
        abs(float(mean["relu, one sign"][0]) + 0.5), 0.12, "the slope of the drift with one sign less -1/2"
    )
    at_most(abs(float(mean["erf"][0]) + 1.0), 0.2, "the slope of the drift with erf less -1")
    at_most(abs(float(mean["relu"][0]) + 0.75), 0.2, "the slope of the drift with relu less -3/4")
    for name in ("relu", "erf"):
        for i, what in ((1, "distance to the limit"), (2, "weights' movement")):
            at_most(abs(float(mean[name][i]) + 0.5), 0.15, f"the slope of the {what} less -1/2 with {name}")
    at_least(float(found["relu"][:, :, 0].min()), 0.0, "the drift")
    return {f"drift, {name}": round(float(values[0]), 3) for name, values in mean.items()}


def _trained(
    phi: str, one_sign: bool, width: int, seed: int, X: Tensor, y: Tensor
) -> tuple[float, float, float, float]:
    """Train one network; return drift, distance to the limit, movement of the outer weights, and the share of the loss left."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = wide_network([X.shape[1], width, width, 1], phi)
    with torch.no_grad():
        if one_sign:
            net[-1].weight.abs_()  # type: ignore[operator]
        start = net(X) if one_sign else 0.0
    first, K = copy.deepcopy(net), ntk.empirical(net, X)
    step = 0.5 * ntk.spectrum(K).largest_step
    losses = []
    for _ in range(STEPS):
        loss = 0.5 * (net(X) - start - y).square().sum()
        losses.append(float(loss.detach()))
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

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    width = np.array(WIDTHS, float)
    for axes, (phi, runs) in zip(figure.subplots(1, len(found), sharey=True), found.items()):
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
