"""Claim: simultaneous descent spirals out of a bilinear game, alternating descent circles, extragradient spirals in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from corollary import optim
from results._claims import panels, spread, write
from results.tables import at_most

SEEDS = 5
RATE = 0.3
STEPS = 60
RULES = ("simultaneous", "alternating", "extragradient")


def distances(rule: str, seed: int) -> np.ndarray:
    """Return the distance from the saddle of x·Qy, Q a rotation, after each step."""
    rng = np.random.default_rng(seed)
    Q = torch.tensor(np.linalg.qr(rng.normal(size=(4, 4)))[0])
    x, y = (torch.nn.Parameter(torch.tensor(rng.normal(size=4))) for _ in range(2))
    both = optim.ExtraGradient([x, y], RATE) if rule == "extragradient" else torch.optim.SGD([x, y], RATE)
    turns = [torch.optim.SGD([p], RATE) for p in (x, y)]

    def gradients() -> None:
        both.zero_grad()
        (x @ Q @ y).backward()
        y.grad.neg_()

    found = []
    for _ in range(STEPS + 1):
        found.append(float(torch.cat([x, y]).detach().norm()))
        if rule == "extragradient":
            both.step(gradients)
        elif rule == "simultaneous":
            gradients()
            both.step()
        else:
            for turn in turns:
                gradients()
                turn.step()
    return np.array(found)


def run(out: Path) -> dict[str, Any]:
    """Measure the game, draw it, and assert the rates."""
    theory = {
        "simultaneous": (1 + RATE**2) ** 0.5,
        "alternating": 1.0,
        "extragradient": ((1 - RATE**2) ** 2 + RATE**2) ** 0.5,
    }
    figure, axes = panels()
    rows, off = [], []
    for rule in RULES:
        paths = np.array([distances(rule, seed) for seed in range(SEEDS)])
        factors = (paths[:, -1] / paths[:, 0]) ** (1 / STEPS)
        off += [abs(factor - theory[rule]) for factor in factors]
        axes.semilogy(paths.T / paths[:, 0], color=f"C{RULES.index(rule)}", lw=1)
        axes.plot([], [], color=f"C{RULES.index(rule)}", label=rule)
        rows.append((rule, theory[rule], spread(factors, 4)))
    axes.set(xlabel="step", ylabel="distance from the saddle")
    axes.legend(frameon=False)
    write(
        out,
        "claim_games",
        "Games: spirals and extragradient",
        claim="On a bilinear game simultaneous descent moves away from the saddle by √(1 + η²) a step, alternating "
        "steps circle it, "
        "and extragradient approaches it by √((1 − η²)² + η²).",
        setting=f"x·Qy with a random rotation Q of 4 dimensions, η = {RATE:g}, {STEPS} steps, {SEEDS} seeds; the mean "
        "factor a step. What the rules do to a generative adversarial network is on [another page](rings.md).",
        found=f"the factors differ from theory by at most {max(off):.3f}.",
        change="`RATE = 1.5` is too long for extragradient: it leaves too.",
        headings=("rule", "factor in theory", "factor found"),
        rows=rows,
        figure=figure,
    )
    at_most(max(off), 0.02, "difference of a factor from theory")
    return {row[0]: row[2] for row in rows}
