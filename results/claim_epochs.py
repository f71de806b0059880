"""Claim: with noisy labels the test error over the training time falls, rises while the noise is learned, and falls again.

A linear model of the pixels is trained by gradient descent on squared errors. Along a singular direction of the inputs with
curvature lambda, t steps of size eta learn the share s = 1 - (1 - eta lambda)^t, and the expected squared error there is

    lambda beta^2 (1 - s)^2 + s^2 sigma^2 / n,

what is not learned yet of the signal beta, and what is learned of the noise sigma: first falling, then rising. Directions whose
lambdas lie far apart pass through this one after the other. Here the right half of every picture is dimmed to CONTRAST, which
multiplies its lambdas by CONTRAST^2: the bright half is learned first, and its noise with it (which includes all that only the
other half could tell); the dim half follows, and brings the second descent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from results._claims import panels, spread, write
from results.tables import at_least, at_most

SEEDS = 5
NOISE = 0.4
N_TRAIN = 200
CONTRAST = 0.01
STEPS = 10**8
CHECKED = 40  # which of the measured times is reached step by step too
WIDE = {"n_train": 1000, "noise": 0.2, "width": 256, "steps": 2500}  # a network of one speed, beside it
DIM = np.indices((8, 8))[1].ravel() >= 4


def divided(seed: int, n_train: int, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return digits in a random order, labels of which the first ``n_train`` are partly wrong, and the right ones."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    labels, some = y[order].copy(), np.arange(int(noise * n_train))
    labels[some] = (labels[some] + rng.integers(1, 10, size=len(some))) % 10
    return X[order] / 16, labels, y[order]


# --- two speeds ------------------------------------------------------------------------------------------


def times() -> np.ndarray:
    """Return the steps at which errors are measured."""
    return np.unique(np.logspace(0, np.log10(STEPS), 80).astype(np.int64))


def linear(seed: int, contrast: float) -> np.ndarray:
    """Return step, training error (noisy labels) and test error (clean ones) of gradient descent, in closed form."""
    X, labels, truth = divided(seed, N_TRAIN, NOISE)
    X = (X - X[:N_TRAIN].mean(0)) * np.where(DIM, contrast, 1.0)
    U, s, V = np.linalg.svd(X[:N_TRAIN], full_matrices=False)
    rate = np.minimum((s / s[0]) ** 2, 1 - 1e-15)  # eta lambda, with the step 1 / lambda_max
    safe = np.where(s > 1e-9 * s[0], s, np.inf)  # pixels that are always empty have no direction
    target = U.T @ (np.eye(10)[labels[:N_TRAIN]] - 0.1)
    found = []
    for t in times():
        share = -np.expm1(t * np.log1p(-rate))
        said = (X @ (V.T @ ((share / safe)[:, None] * target))).argmax(1)
        found.append((t, *_errors(said, labels, truth, N_TRAIN)))
    return np.array(found)


def stepped(seed: int, steps: int) -> np.ndarray:
    """Return the training and test errors after so many steps that are taken one by one, against which ``linear`` is checked."""
    X, labels, truth = divided(seed, N_TRAIN, NOISE)
    X = (X - X[:N_TRAIN].mean(0)) * np.where(DIM, CONTRAST, 1.0)
    A, target, W = X[:N_TRAIN], np.eye(10)[labels[:N_TRAIN]] - 0.1, np.zeros((64, 10))
    step = 1 / np.linalg.norm(A, 2) ** 2
    for _ in range(steps):
        W -= step * A.T @ (A @ W - target)
    return np.array(_errors((X @ W).argmax(1), labels, truth, N_TRAIN))


def _errors(said: np.ndarray, labels: np.ndarray, truth: np.ndarray, n: int) -> tuple[float, float]:
    return float(np.mean(said[:n] != labels[:n])), float(np.mean(said[n:] != truth[n:]))


def shape(test: np.ndarray) -> tuple[float, float, float]:
    """Return the valley before, the value at, and the valley after the peak with the deepest valleys on both sides."""
    depth = [min(test[p] - test[:p].min(), test[p] - test[p:].min()) for p in range(1, len(test))]
    p = 1 + int(np.argmax(depth))
    return float(test[:p].min()), float(test[p]), float(test[p:].min())


# --- one speed -------------------------------------------------------------------------------------------


def wide(seed: int, n_train: int, noise: float, width: int, steps: int) -> np.ndarray:
    """Return step, training and test error of a wide network on whole pictures, trained by Adam on batches."""
    X, labels, truth = divided(seed, n_train, noise)
    A, noisy, rng = torch.tensor(X, dtype=torch.float32), torch.tensor(labels), np.random.default_rng(seed)
    at = {0, *np.unique(np.logspace(0, np.log10(steps), 60).astype(int))}
    found = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        for step in range(steps + 1):
            if step in at:
                with torch.no_grad():
                    said = net(A).argmax(1).numpy()
                found.append((step, *_errors(said, labels, truth, n_train)))
            rows = torch.tensor(rng.integers(n_train, size=128))
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(A[rows]), noisy[rows]).backward()
            optimizer.step()
    return np.array(found)


SETTING = """{n} real digits of 8 × 8 pixels, {noise:.0%} of their labels wrong, the others to test on with right labels. A linear
model of the pixels, of which the right half is dimmed to {contrast:.0%} contrast, learns by gradient descent on the squared
errors of ten indicators, from zero, at step size η = 1/λ_max. Along a singular direction of curvature λ the share s = 1 − (1 −
ηλ)^t is learned after t steps, and the expected squared error there is λβ²(1 − s)² + s²σ²/n: what is not yet learned of the
signal β, and what is learned of the noise σ. Each direction falls and rises in its own time, about 1/(ηλ). Dimming divides λ
by {ratio:.0f}, so the dim half has its turn when the bright half has been spoilt by the wrong labels, and by what only the
dim half could explain. Errors are of classification; the closed form is checked against {at} steps taken one by one. {seeds}
seeds, each with another division."""
FOUND = (
    "the error rises by {rise} points after its first valley and falls by {fall} points after the peak, until the dim half "
    "learns the wrong labels too and the error ends {end} points above its second valley; with both halves at one contrast "
    "the second fall is of {again}. One speed is not enough in a wide network either (right; {n_train} digits, {noise:.0%} "
    "of the labels wrong, {steps} updates of 128 by Adam): there the error rises by {risen} points and falls by {fallen}."
)


def run(out: Path) -> dict[str, Any]:
    """Train with two speeds and with one, draw both, and assert what was seen."""
    two, one = ([linear(seed, contrast) for seed in range(SEEDS)] for contrast in (CONTRAST, 1.0))
    nets = [wide(seed, **WIDE) for seed in range(SEEDS)]  # type: ignore[arg-type]
    at = int(times()[CHECKED])
    np.testing.assert_allclose(
        stepped(0, at), two[0][CHECKED, 1:], atol=1 / N_TRAIN
    )  # one may lie on an edge
    figure, (left, right) = panels(2)
    _draw(left, two, f"right half at {CONTRAST:.0%} contrast", one[0])
    _draw(right, [net[1:] for net in nets], f"two layers of {WIDE['width']}, Adam")
    found, even = ([shape(part[:, 2]) for part in runs] for runs in (two, one))
    rise = [100 * (peak - first) for first, peak, _ in found]
    fall = [100 * (peak - second) for _, peak, second in found]
    end = [100 * (part[-1, 2] - row[2]) for part, row in zip(two, found)]
    again = [100 * (peak - second) for _, peak, second in even]
    ends = [_after_valley(net[:, 2]) for net in nets]
    risen = [100 * float(test.max() - test[0]) for test in ends]
    fallen = [100 * float(test.max() - test[-3:].mean()) for test in ends]
    said = {"rise": rise, "fall": fall, "end": end, "again": again, "risen": risen, "fallen": fallen}
    write(
        out,
        "claim_epochs",
        "Double descent over epochs",
        claim="With some wrong labels the test error falls, rises while the wrong labels are learned, and falls again, "
        "where parts of the model learn at speeds that lie far apart.",
        setting=SETTING.format(
            n=N_TRAIN, noise=NOISE, contrast=CONTRAST, ratio=CONTRAST**-2, at=at, seeds=SEEDS
        ),
        found=FOUND.format(**{name: spread(values) for name, values in said.items()}, **WIDE),
        change="`CONTRAST = 1.0` gives both halves one speed and takes the second descent away, as the dashed line shows.",
        headings=("seed", "first valley", "peak", "second valley", "end"),
        rows=[(seed, *row, part[-1, 2]) for seed, (row, part) in enumerate(zip(found, two))],
        figure=figure,
    )
    at_least(min(rise), 4.0, "rise after the first valley, in points")
    at_least(min(fall), 8.0, "second descent, in points")
    at_most(max(again), 2.0, "second descent with one contrast, in points")
    at_least(min(risen), 2.0, "rise of a wide network, in points")
    at_most(max(fallen), 2.0, "second descent of a wide network, which is said not to be there, in points")
    return said


def _after_valley(test: np.ndarray) -> np.ndarray:
    """Return means of three neighbouring points, from the valley in the first two thirds on."""
    test = np.convolve(test, np.ones(3) / 3, "valid")
    return test[int(test[: len(test) * 2 // 3].argmin()) :]


def _draw(axes: Any, runs: list[np.ndarray], title: str, beside: np.ndarray | None = None) -> None:
    for seed, found in enumerate(runs):
        axes.semilogx(found[:, 0], found[:, 2], color="C1", lw=1, label="test" if seed == 0 else None)
        axes.semilogx(found[:, 0], found[:, 1], color="C0", lw=1, label="training" if seed == 0 else None)
    if beside is not None:
        axes.semilogx(beside[:, 0], beside[:, 2], color="grey", ls="--", label="test, one contrast")
    axes.set(xlabel="updates", ylabel="error", title=title)
    axes.legend(frameon=False)
