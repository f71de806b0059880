"""Pictures and clouds that are drawn, not found: noisy shapes, scenes of several shapes, surfaces in space."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

SHAPES = ("disc", "square", "triangle", "cross")
SOLIDS = ("ball", "box", "cylinder", "cone", "torus")


def stencil(kind: int, side: int, row: float, column: float, radius: float) -> np.ndarray:
    """Return where a shape lies on a canvas, (side, side)."""
    y, x = (np.mgrid[:side, :side] - np.array([row, column])[:, None, None]) / radius
    if kind == 0:
        return x**2 + y**2 <= 1
    if kind == 1:
        return np.maximum(abs(x), abs(y)) <= 0.85
    if kind == 2:
        return (y <= 0.8) & (y >= 2 * abs(x) - 1)
    return (np.minimum(abs(x), abs(y)) <= 0.28) & (np.maximum(abs(x), abs(y)) <= 1)


def noisy_shapes(n: int, seed: int, side: int = 48, noise: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Return RGB pictures (n, 3, side, side) in [0, 1] of one bright shape each, anywhere, of any colour and size."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % len(SHAPES)
    X = np.empty((n, 3, side, side), np.float32)
    for image, kind in zip(X, y):
        radius = rng.uniform(0.13, 0.3) * side
        row, column = rng.uniform(radius, side - radius, 2)
        image[:] = rng.uniform(0.0, 0.5, 3)[:, None, None]
        image[:, stencil(int(kind), side, row, column, radius)] = rng.uniform(0.5, 1.0, (3, 1))
    return np.clip(X + noise * rng.normal(size=X.shape), 0, 1).astype(np.float32), y


def scenes(n: int, seed: int, side: int = 40, noise: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """Return RGB pictures of three shapes and masks of five classes: the ground, and what each shape is."""
    rng = np.random.default_rng(seed)
    X, masks = np.empty((n, 3, side, side), np.float32), np.zeros((n, side, side), np.int64)
    for image, mask in zip(X, masks):
        image[:] = rng.uniform(0.0, 0.5, 3)[:, None, None]
        for kind in rng.integers(0, len(SHAPES), 3):
            radius = rng.uniform(0.12, 0.22) * side
            row, column = rng.uniform(radius, side - radius, 2)
            where = stencil(int(kind), side, row, column, radius)
            image[:, where], mask[where] = rng.uniform(0.5, 1.0, (3, 1)), kind + 1
    return np.clip(X + noise * rng.normal(size=X.shape), 0, 1).astype(np.float32), masks


def strewn_digits(n: int, seed: int, side: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Return grey pictures of three handwritten digits from 0 to 4 on noise, and masks of what each pixel belongs to.

    Pictures of even seeds show digits of the first half of the writers' list, those of odd seeds digits of the second.
    """
    rng = np.random.default_rng(seed)
    found = load_digits()
    rows = np.flatnonzero(found.target < 5)
    rows = rows[: len(rows) // 2] if seed % 2 == 0 else rows[len(rows) // 2 :]
    X, masks = rng.uniform(0, 0.5, (n, side, side)), np.zeros((n, side, side), np.int64)
    for image, mask in zip(X, masks):
        for i in rng.choice(rows, 3):
            digit = np.kron(found.images[i] / 16, np.ones((2, 2)))
            r, c = rng.integers(0, side - 15, 2)
            window = (slice(r, r + 16), slice(c, c + 16))
            image[window] = np.where(digit > 0.4, 0.6 * digit + 0.4 * image[window], image[window])
            mask[window][digit > 0.4] = found.target[i] + 1
    return X.astype(np.float32), masks


def solid(kind: int, points: int, rng: np.random.Generator) -> np.ndarray:
    """Return points of the surface of a solid, (points, 3)."""
    turn, u = rng.uniform(0, 2 * np.pi, points), rng.uniform(-1, 1, points)
    ring = np.stack([np.cos(turn), np.sin(turn)], 1)
    if kind == 0:
        return np.column_stack([ring * np.sqrt(1 - u**2)[:, None], u])
    if kind == 1:
        x = rng.uniform(-1, 1, (points, 3))
        axis = rng.integers(0, 3, points)
        x[np.arange(points), axis] = np.sign(x[np.arange(points), axis])
        return x
    if kind == 2:
        lid = rng.random(points) < 1 / 3
        radius, height = np.where(lid, np.sqrt(rng.random(points)), 1), np.where(lid, np.sign(u), u)
        return np.column_stack([ring * radius[:, None], height])
    if kind == 3:
        radius = np.sqrt(rng.random(points))
        return np.column_stack(
            [ring * radius[:, None], np.where(rng.random(points) < 0.3, -1, 1 - 2 * radius)]
        )
    around = rng.uniform(0, 2 * np.pi, points)
    return np.column_stack([ring * (1 + 0.4 * np.cos(around))[:, None], 0.4 * np.sin(around)])


def moved(clouds: np.ndarray, seed: int) -> np.ndarray:
    """Return clouds (n, m, d), turned about their last axis if they lie in space, scaled by up to 5 and moved by up to 10."""
    rng = np.random.default_rng(seed)
    n, _, d = clouds.shape
    if d == 3:
        a = rng.uniform(0, 2 * np.pi, n)
        turn = np.stack([np.cos(a), -np.sin(a), np.sin(a), np.cos(a)], 1).reshape(n, 2, 2)
        clouds = np.concatenate([clouds[:, :, :2] @ turn, clouds[:, :, 2:]], 2)
    return clouds * np.exp(rng.uniform(-1.6, 1.6, (n, 1, 1))) + rng.uniform(-10, 10, (n, 1, d))


def solids(n: int, seed: int, points: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Return clouds of noisy points on five solids, each stretched a little, moved and scaled."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % len(SOLIDS)
    clouds = np.stack([solid(int(kind), points, rng) for kind in y]) * rng.uniform(0.6, 1.4, (n, 1, 3))
    return moved(clouds + 0.05 * rng.normal(size=clouds.shape), seed), y


def digit_clouds(rows: np.ndarray, seed: int, points: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Return handwritten digits as points drawn where their ink is, (n, points, 2), moved and scaled."""
    rng, found = np.random.default_rng(seed), load_digits()
    clouds = np.empty((len(rows), points, 2))
    for cloud, image in zip(clouds, found.images[rows]):
        ink = np.clip(image.ravel() - 3, 0, None)
        places = rng.choice(64, points, p=ink / ink.sum())
        cloud[:] = np.column_stack(np.unravel_index(places, (8, 8))) + rng.uniform(-0.5, 0.5, (points, 2))
    return moved(clouds / 4, seed), found.target[rows]
