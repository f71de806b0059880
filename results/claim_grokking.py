"""Claim: on modular addition a network knows the training sums long before it understands the others, and then does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from results._claims import panels, write
from results.tables import at_least

MODULUS = 31
SEEDS = 3
STEPS = 4000
WIDTH = 256
SHARE = 0.5  # of all sums that are learned from
WEIGHT_DECAY = 1.0
NONE = 0.0  # the same, for the line that shows what it does


class Quadratic(nn.Module):
    """Squared activations, which can multiply."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Return the squares."""
        return z.square()


def accuracies(seed: int, weight_decay: float) -> np.ndarray:
    """Return step, training and test accuracy along the training."""
    p = MODULUS
    a, b = torch.meshgrid(torch.arange(p), torch.arange(p), indexing="ij")
    X = torch.cat([torch.eye(p)[a.flatten()], torch.eye(p)[b.flatten()]], 1)
    y = (a + b).flatten() % p
    order = torch.randperm(p * p, generator=torch.Generator().manual_seed(seed))
    train, test = order[: int(SHARE * p * p)], order[int(SHARE * p * p) :]
    found = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(2 * p, WIDTH, bias=False), Quadratic(), nn.Linear(WIDTH, p, bias=False))
        optimizer = torch.optim.AdamW(net.parameters(), 5e-3, betas=(0.9, 0.98), weight_decay=weight_decay)
        for step in range(STEPS + 1):
            if step % 20 == 0:
                with torch.no_grad():
                    right = (net(X).argmax(1) == y).double()
                found.append((step, float(right[train].mean()), float(right[test].mean())))
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[train]), y[train]).backward()
            optimizer.step()
    return np.array(found)


def first(found: np.ndarray, column: int, level: float) -> float:
    """Return the first step at which an accuracy reaches a level, or NaN."""
    there = np.flatnonzero(found[:, column] >= level)
    return float(found[there[0], 0]) if len(there) else float("nan")


def run(out: Path) -> dict[str, Any]:
    """Train with and without weight decay, draw both, and assert the delay and that decay makes it."""
    figure, axes = panels(2)
    rows, delays, ends = [], [], {WEIGHT_DECAY: [], NONE: []}
    for axis, decay in zip(axes, (WEIGHT_DECAY, NONE)):
        for seed in range(SEEDS):
            found = accuracies(seed, decay)
            axis.semilogx(
                found[1:, 0], found[1:, 1], color="C0", lw=1, label="training" if seed == 0 else None
            )
            axis.semilogx(found[1:, 0], found[1:, 2], color="C1", lw=1, label="others" if seed == 0 else None)
            learned, understood = first(found, 1, 0.99), first(found, 2, 0.95)
            ends[decay].append(float(found[-1, 2]))
            if decay == WEIGHT_DECAY:
                delays.append(understood / learned)
            rows.append(
                (decay, seed, learned, "not reached" if np.isnan(understood) else understood, ends[decay][-1])
            )
        axis.set(xlabel="step", title=f"weight decay {decay:g}")
        axis.legend(frameon=False)
    axes[0].set_ylabel("accuracy")
    write(
        out,
        "claim_grokking",
        "Grokking on modular addition",
        claim="A network that has learned all training sums by heart says nothing right about the others for many "
        "more steps, and "
        "then understands them; weight decay makes it.",
        setting=f"a + b modulo {MODULUS}, {SHARE:.0%} of all {MODULUS**2} sums to learn from, one hidden layer of "
        f"{WIDTH} squares, "
        f"AdamW on all the data, {STEPS} steps, {SEEDS} seeds; steps to 99 % of the training sums and to 95 % of the others.",
        found=f"the others follow after {min(delays):.1f} to {max(delays):.1f} times as many steps as the training sums "
        f"took; at the end {min(ends[WEIGHT_DECAY]):.0%} to {max(ends[WEIGHT_DECAY]):.0%} of the others are right, "
        f"without weight "
        f"decay {min(ends[NONE]):.0%} to {max(ends[NONE]):.0%}.",
        change="`SHARE = 0.2` is too little to understand from; `WEIGHT_DECAY = 0.0` is the right picture.",
        headings=(
            "weight decay",
            "seed",
            "training sums known at step",
            "others at step",
            "others right at the end",
        ),
        rows=rows,
        figure=figure,
    )
    at_least(min(ends[WEIGHT_DECAY]), 0.95, "accuracy on the other sums in the end")
    at_least(min(delays), 3.0, "delay of understanding")
    return {"delays": delays, "with decay": ends[WEIGHT_DECAY], "without": ends[NONE]}
