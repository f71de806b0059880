"""Shapes: meshes, and clouds of points drawn from their surfaces."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.fetch import Members

Fields = dict[str, Any]

SHAPES = (
    "anchor_dense", "armadillo", "bear", "blade", "bull", "bunny00", "camel", "cow", "elephant", "fandisk",
    "femur", "hand", "helmet", "homer", "knot1", "lion", "man", "mushroom", "pinion", "triceratops",
)  # fmt: skip
_INNER = "usr/share/doc/libcgal-dev/data.tar.gz"


def read_off(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners (n, 3) and the triangles (m, 3) of a mesh in the OFF format.

    A face with more corners is cut into a fan; colours are not read.

    >>> read_off("OFF 4 1 0  0 0 0  1 0 0  1 1 0  0 1 0  4 0 1 2 3")[1].tolist()
    [[0, 1, 2], [0, 2, 3]]
    """
    lines = [line.partition("#")[0] for line in text.splitlines()]
    words = " ".join(lines).split()
    if not words or words[0] != "OFF":
        raise errors.value("read_off", "a mesh must begin with OFF", repr(" ".join(words[:1])))
    n, m = int(words[1]), int(words[2])
    corners = np.array(words[4 : 4 + 3 * n], dtype=np.float64).reshape(n, 3)
    numbers = np.array(words[4 + 3 * n :], dtype=np.float64).astype(np.int64)
    if len(numbers) == 4 * m and (numbers[::4] == 3).all():
        return corners, numbers.reshape(m, 4)[:, 1:]
    place, fans = 0, []
    for _ in range(m):
        face = numbers[place + 1 : place + 1 + numbers[place]]
        fans += [(face[0], b, c) for b, c in zip(face[1:-1], face[2:])]
        place += 1 + len(face)
    return corners, np.array(fans, dtype=np.int64).reshape(-1, 3)


def surface_points(
    corners: np.ndarray, triangles: np.ndarray, shape: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """Draw clouds (clouds, points, 3) from a surface, evenly by area."""
    a, b, c = corners[triangles].transpose(1, 0, 2)
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    which = rng.choice(len(triangles), size=shape, p=area / area.sum())
    u, v = rng.random((2, *shape, 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)  # fold the square into the triangle
    return a[which] + u * (b - a)[which] + v * (c - a)[which]


def cgal(files: Members, clouds: float = 30, points: float = 256) -> Fields:
    """Read twenty meshes: clouds of points of each, turned about the y axis by any angle; y is which mesh.

    The last third of each mesh's clouds is there to test.
    """
    rng = np.random.default_rng(0)
    shape = (int(clouds), int(points))
    X, train = [], []
    with tarfile.open(fileobj=io.BytesIO(files[_INNER])) as bundle:
        for name in SHAPES:
            stream = bundle.extractfile(f"data/meshes/{name}.off")
            drawn = surface_points(*read_off(stream.read().decode() if stream else ""), shape, rng)
            X += list((drawn @ _turns(rng.uniform(0, 2 * np.pi, size=shape[0]))).astype(np.float32))
            train += [i < 2 * shape[0] // 3 for i in range(shape[0])]
    split = (np.flatnonzero(train), np.flatnonzero(~np.array(train)))
    y = np.repeat(np.arange(len(SHAPES)), shape[0])
    return {"X": X, "y": y, "target_names": list(SHAPES), "extra": {"split": split}}


def _turns(angle: np.ndarray) -> np.ndarray:
    """Return the rotations (n, 3, 3) about the y axis."""
    c, s, zero, one = np.cos(angle), np.sin(angle), 0 * angle, 1 + 0 * angle
    return np.stack([c, zero, s, zero, one, zero, -s, zero, c], axis=1).reshape(-1, 3, 3)
