"""What people write themselves: plain networks and the plain loop that trains them, to compare defaults with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Score = Callable[[int], float]
SEEDS = range(int(os.environ.get("RESULTS_SEEDS", "5")))


def measured(methods: dict[str, Score], seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Return the scores over seeds of each method, and the seconds of the processor that one fit takes."""
    found: dict[str, dict[str, Any]] = {}
    for name, score in methods.items():
        start = process_time()
        scores = [told(name, seed, float(score(seed))) for seed in seeds]
        found[name] = {"scores": scores, "seconds": (process_time() - start) / len(seeds)}
    return found


def told(name: str, seed: int, score: float) -> float:
    """Return the score, and write it down: a page takes half an hour."""
    sys.stderr.write(f"{name}, seed {seed}: {score:.4f}\n")
    return score


def shown(found: dict[str, Any]) -> str:
    """Return mean, deviation and seconds of a method."""
    spread = f" ± {np.std(found['scores']):.3f}" if len(set(found["scores"])) > 1 else ""
    return f"{np.mean(found['scores']):.3f}{spread} ({found['seconds']:.1f} s)"


def trained(
    net: nn.Module,
    X: Tensor,
    y: Tensor,
    *,
    epochs: int,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    views: Callable[[Tensor], Tensor] | None = None,
) -> nn.Module:
    """Train with Adam and the cross-entropy, as the tutorials do."""
    optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(batch_size):
            x = X[rows] if views is None else views(X[rows])
            loss = F.cross_entropy(net(x), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net.eval()


def predicted(net: nn.Module, X: Tensor, batch_size: int = 128) -> np.ndarray:
    """Return the most probable classes."""
    with torch.no_grad():
        return torch.cat([net(x).argmax(1) for x in X.split(batch_size)]).numpy()


# --- images ----------------------------------------------------------------------------------------------


def convolution(n_in: int, n_out: int) -> list[nn.Module]:
    """Return a 3 x 3 convolution, batch normalisation and ReLU."""
    return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU()]


def cnn(channels: int, n_classes: int, side: int) -> nn.Module:
    """Return four blocks of convolution and pooling (three for 8 pixels), and one layer on the average."""
    layers, n_in = [], channels
    for n_out in (16, 32, 64, 128)[: 4 if side >= 16 else 3]:
        layers += [*convolution(n_in, n_out), nn.MaxPool2d(2)]
        n_in = n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))


def flips_and_shifts(x: Tensor, mirrored: bool, most: int) -> Tensor:
    """Return images moved by up to so many pixels, half of them mirrored."""
    x = torch.where((torch.rand(len(x)) < 0.5)[:, None, None, None], x.flip(3), x) if mirrored else x
    padded = F.pad(x, (most,) * 4, mode="reflect")
    h, w = x.shape[2:]
    places = torch.randint(0, 2 * most + 1, (len(x), 2)).tolist()
    return torch.stack([p[:, r : r + h, c : c + w] for p, (r, c) in zip(padded, places)])


class PlainUNet(nn.Module):
    """Three levels with two convolutions each, upsampling, and maps carried over."""

    def __init__(self, channels: int, n_classes: int, width: int = 16) -> None:
        super().__init__()
        double = lambda n, m: nn.Sequential(*convolution(n, m), *convolution(m, m))
        self.down1, self.down2, self.down3 = (
            double(n, m) for n, m in ((channels, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.up2, self.up1 = double(6 * width, 2 * width), double(3 * width, width)
        self.head = nn.Conv2d(width, n_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of every pixel."""
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.down3(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        return self.head(self.up1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))


# --- sets ------------------------------------------------------------------------------------------------


class PlainPointNet(nn.Module):
    """The same three layers for every point, the maximum over points, and two layers more: clouds (n, d, m)."""

    def __init__(self, dimension: int, n_classes: int) -> None:
        super().__init__()
        point = lambda n, m: [nn.Conv1d(n, m, 1), nn.BatchNorm1d(m), nn.ReLU()]
        self.points = nn.Sequential(*point(dimension, 64), *point(64, 128), *point(128, 256))
        self.cloud = nn.Sequential(
            nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, n_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of each cloud."""
        return self.cloud(self.points(x).amax(2))


def centred(clouds: np.ndarray) -> Tensor:
    """Return clouds (n, m, d) with their centre at 0 and their farthest point at 1, as (n, d, m)."""
    clouds = clouds - clouds.mean(1, keepdims=True)
    radius = np.linalg.norm(clouds, axis=2).max(1)[:, None, None]
    return torch.as_tensor((clouds / radius).transpose(0, 2, 1), dtype=torch.float32)


# --- series ----------------------------------------------------------------------------------------------


def gru_classes(X: list[np.ndarray], y: np.ndarray, X_test: list[np.ndarray], seed: int) -> np.ndarray:
    """Return classes by the loop that most people would write: standardised, padded, Adam, the last state."""
    torch.manual_seed(seed)
    mean, spread = np.concatenate(X).mean(0), np.concatenate(X).std(0)
    pad = lambda parts: nn.utils.rnn.pad_sequence(
        [torch.as_tensor((x - mean) / spread, dtype=torch.float32) for x in parts], batch_first=True
    )
    lengths, test_lengths = (torch.tensor([len(x) for x in parts]) for parts in (X, X_test))
    inputs, target, width = pad(X), torch.as_tensor(y), 64
    gru, head = nn.GRU(X[0].shape[1], width, batch_first=True), nn.Linear(width, int(y.max()) + 1)
    optimizer = torch.optim.Adam([*gru.parameters(), *head.parameters()], lr=3e-3)

    def logits(rows: Tensor, sizes: Tensor) -> Tensor:
        return head(gru(rows)[0][torch.arange(len(rows)), sizes - 1])

    for _ in range(30):
        for rows in torch.randperm(len(y)).split(32):
            optimizer.zero_grad()
            F.cross_entropy(logits(inputs[rows], lengths[rows]), target[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return logits(pad(X_test), test_lengths).argmax(1).numpy()
