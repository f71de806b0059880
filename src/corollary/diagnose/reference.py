"""A perceptron of usual size on the table of features: what a net that is not too small learns of them."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from corollary.diagnose.baselines import Problem, scaled, score_of

__all__ = ["perceptron_gain", "perceptron_guesses"]

# learns a smooth function of ten columns in a third of a second
WIDTH, STEPS, ROWS, RATE, DECAY = (64, 300, 64, 5e-3, 1e-4)


def perceptron_gain(train: Problem, valid: Problem | None, chance: float) -> float:
    """Return its score above chance on rows it has not seen, as a share of what is possible."""
    rows = np.random.default_rng(0).permutation(len(train.y))
    inside, outside = (rows, rows[:0]) if valid is not None else np.split(rows, [int(0.75 * len(rows))])
    test = valid if valid is not None else Problem(train.X[outside], train.y[outside], train.classes, outside)
    X, V = scaled(train.X[inside], train.X), scaled(test.X, train.X)
    if not len(test.y) or X.shape[1] != V.shape[1]:
        return float("nan")
    labels = np.unique(train.y) if train.classes else None
    mean, std = (0.0, 1.0) if train.classes else (float(train.y.mean()), float(train.y.std()) or 1.0)
    codes = np.searchsorted(labels, train.y[inside]) if labels is not None else (train.y[inside] - mean) / std
    guess = _fitted(X, codes, V, 1 if labels is None else len(labels))
    answer = guess if labels is not None else guess[:, 0] * std + mean
    return (score_of(answer, test.y, labels) - chance) / max(1e-9, 1 - chance)


def perceptron_guesses(train: Problem, folds: int = 3) -> np.ndarray:
    """Return its probabilities of classes, for rows that it was not trained on, by folds; it stops before it learns by heart."""
    X, labels = scaled(train.X), np.unique(train.y)
    codes = np.searchsorted(labels, train.y)
    fold = np.random.default_rng(0).permutation(len(codes)) % folds
    guess = np.zeros((len(codes), len(labels)))
    for k in range(folds):
        logits = _fitted(X[fold != k], codes[fold != k], X[fold == k], len(labels), STEPS // 3)
        guess[fold == k] = torch.from_numpy(logits).softmax(1).numpy()
    return guess


def _fitted(X: np.ndarray, y: np.ndarray, V: np.ndarray, outputs: int, steps: int = STEPS) -> np.ndarray:
    x, v = torch.from_numpy(X).float(), torch.from_numpy(V).float()
    t = torch.from_numpy(y).long() if outputs > 1 else torch.from_numpy(y).float()[:, None]
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs)
        )  # fmt: skip
        descent = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(descent, 2 * RATE, steps)
        for _ in range(steps):
            rows = torch.randint(len(x), (min(ROWS, len(x)),))
            out = net(x[rows])
            loss = F.cross_entropy(out, t[rows]) if outputs > 1 else F.mse_loss(out, t[rows])
            descent.zero_grad()
            loss.backward()
            descent.step()
            schedule.step()
    with torch.no_grad():
        return net(v).numpy()
