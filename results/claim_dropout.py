"""Claim: a network with rescaled weights answers as the ensemble of all networks that dropout makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from corollary import MLPClassifier, Training
from results._claims import panels, spread, write
from results.tables import at_least, at_most

NETS = ((10,), (6, 6))
SEEDS = 5
DROPOUT = 0.5


def ensemble(net: nn.Module, X: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    """Return the log-probabilities (masks, n, classes) of every network that dropout can make."""
    linear = [part for part in net.modules() if isinstance(part, nn.Linear)]
    bits = torch.tensor(np.indices((2,) * sum(sizes)).reshape(sum(sizes), -1).T, dtype=X.dtype)
    found = []
    for mask in bits:
        h = X
        for layer, m in zip(linear, mask.split(sizes)):
            h = torch.relu(layer(h)) * m / (1 - DROPOUT)
        found.append(linear[-1](h).log_softmax(1))
    return torch.stack(found)


def one(sizes: tuple[int, ...], seed: int) -> dict[str, float]:
    """Train with dropout; compare the rescaled net with its 2^k networks on held-out digits."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:1200], order[1200:1400]
    X = X / 16
    plan = Training(epochs=60, learning_rate=5e-3)
    model = MLPClassifier(sizes, dropout=DROPOUT, training=plan, random_state=seed).fit(X[train], y[train])
    with torch.no_grad():
        x, net = torch.tensor(X[test]), model.module_.double().eval()
        logs, rescaled = ensemble(net, x, sizes), net(x).log_softmax(1)
        geometric = logs.mean(0).log_softmax(1)
        arithmetic = logs.exp().mean(0)
    right = {
        name: float((p.argmax(-1).numpy() == y[test]).mean())
        for name, p in {
            "rescaled": rescaled,
            "geometric": geometric,
            "arithmetic": arithmetic,
            "single": logs,
        }.items()
    }
    return {"deviation": float((rescaled.exp() - geometric.exp()).abs().max()), **right}


def run(out: Path) -> dict[str, Any]:
    """Measure one and two hidden layers, draw the accuracies, and assert the equality."""
    figure, axes = panels()
    rows, found = [], {}
    names = ("single", "rescaled", "geometric", "arithmetic")
    for number, sizes in enumerate(NETS):
        runs = [one(sizes, seed) for seed in range(SEEDS)]
        found[sizes] = {name: [r[name] for r in runs] for name in ("deviation", *names)}
        means = [float(np.mean(found[sizes][name])) for name in names]
        axes.bar(np.arange(4) + 0.4 * number - 0.2, means, 0.4, label=f"hidden units {sizes}")
        rows.append(
            (
                str(sizes),
                2 ** sum(sizes),
                f"{max(found[sizes]['deviation']):.1e}",
                *(f"{value:.3f}" for value in means),
            )
        )
    axes.set_xticks(range(4), names)
    axes.set(ylabel="accuracy", ylim=(0, 1))
    axes.legend(frameon=False, loc="lower right")
    one_layer, two_layers = (found[sizes] for sizes in NETS)
    gain = [a - b for a, b in zip(one_layer["rescaled"], one_layer["single"])]
    write(
        out,
        "claim_dropout",
        "Dropout's ensemble",
        claim="With one hidden layer, the network with rescaled weights is exactly the normalised geometric mean of "
        "the 2^k networks "
        "that dropout makes of it; with more layers it is close to it. It is better than its members.",
        setting=f"Digits, nets trained with dropout {DROPOUT:g} on 1,200, every one of their 2^k networks asked about "
        f"200 others; "
        f"{SEEDS} seeds, each with another division. *Deviation*: the largest difference of two probabilities. "
        f"*Single*: the mean "
        "accuracy of the members.",
        found=f"the largest deviation is {max(one_layer['deviation']):.0e} with one hidden layer and "
        f"{max(two_layers['deviation']):.2f} with two; the rescaled net is {100 * float(np.mean(gain)):.0f} points "
        f"better than its "
        f"members, and within "
        f"{100 * max(abs(a - b) for a, b in zip(one_layer['rescaled'], one_layer['arithmetic'])):.1f} points "
        "of the arithmetic mean.",
        change="`NETS = ((6, 6), (6, 6))`: with two layers the equality is gone.",
        headings=("hidden units", "networks", "largest deviation", *names),
        rows=rows,
        figure=figure,
    )
    at_most(max(one_layer["deviation"]), 1e-9, "deviation of the rescaled net from the geometric mean")
    at_least(max(two_layers["deviation"]), 1e-3, "deviation with two layers")
    at_least(min(gain), 0.02, "gain over a single member")
    return {"deviations": one_layer["deviation"], "two layers": two_layers["deviation"], "gain": spread(gain)}
