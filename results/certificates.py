"""Digits: a PAC-Bayes bound of a network that is below 1, with the network that attains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from corollary.theory.bounds import StochasticNetwork, certificate, hoeffding
from results.tables import at_most, page

SEEDS, DELTA, WIDTH = 3, 0.05, 100
TEXT = f"""A network 64-{WIDTH}-10 whose weights are drawn anew for every answer, trained to minimise its own bound, on 8 × 8
digits; {SEEDS} seeds, which also draw the division. The bound is on the true error of that network and fails with a
probability of at most {DELTA}; the samples are those it is computed from. Guessing has an
error of 0.9: from random weights so few samples do not pay for learning, and that bound says nothing.
Hoeffding's bound for one fixed network tested on a
fifth of the digits is its test error ± {hoeffding(1797 // 5, DELTA):.3f}."""


def one(seed: int, share: float) -> dict[str, float]:
    """Train on 80 % of the digits; a ``share`` of those, not counted in the bound, places the prior."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = torch.tensor(X[order] / 16, dtype=torch.float32), y[order]
    n = int(0.8 * len(y))
    cut = int(share * n)
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    if cut:
        optimizer = torch.optim.Adam(module.parameters(), 1e-3)
        for _ in range(300):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(X[:cut]), torch.tensor(y[:cut])).backward()
            optimizer.step()
    net = StochasticNetwork(module, 0.03).fit(
        X[cut:n], y[cut:n], epochs=400, learning_rate=5e-3, random_state=seed
    )
    found = certificate(net, X[cut:n], y[cut:n], delta=DELTA, draws=1000, random_state=seed)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        wrong = [(net(X[n:], generator).argmax(1).numpy() != y[n:]).mean() for _ in range(100)]
    return {
        "bound": found.bound,
        "train": found.error,
        "test": float(np.mean(wrong)),
        "kl": found.kl,
        "n": found.n,
    }


def run(out: Path) -> dict[str, Any]:
    """Certify networks with a random and with a learned prior; assert that both bounds hold and are below 1."""
    rows, found = [], {}
    for name, share, floor in (
        ("random weights", 0.0, 1.0),
        ("weights learned from half of the data", 0.5, 0.3),
    ):
        seeds = [one(seed, share) for seed in range(SEEDS)]
        worst = max(seed["bound"] for seed in seeds)
        at_most(worst, floor, f"bound with the prior at {name}")
        for seed in seeds:
            at_most(seed["test"], seed["bound"], "test error against its bound")
        mean = {key: float(np.mean([seed[key] for seed in seeds])) for key in seeds[0]}
        rows.append((name, int(mean["n"]), mean["bound"], worst, mean["train"], mean["test"], mean["kl"]))
        found[name] = mean["bound"]
    headings = (
        "middle of the prior",
        "samples",
        "bound",
        "worst",
        "training error",
        "test error",
        "KL (nats)",
    )
    page(out / "certificates.md", "A PAC-Bayes bound below 1 on digits", TEXT, headings, rows)
    return found
