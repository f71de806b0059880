"""U-Net: clothes cut out of a real photograph's texture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_sample_image

from corollary import Segmenter, Training, data
from corollary.vision.segmenter import intersection_over_union
from results.tables import at_least, page, spread

SIDE, TRAINED, TESTED, EPOCHS, SEEDS = 40, 1500, 300, 8, (0, 1, 2)
KEPT = (0, 1, 2)  # T-shirts, trousers and pullovers, as three classes beside the background
GARMENTS = len(KEPT)
TEXT = f"""A piece of clothing (Fashion-MNIST) is laid at a random place over a random patch of a photograph
(scikit-learn's china.jpg), half transparent; every pixel is background, T-shirt, trousers or pullover. {TRAINED} images
of {SIDE} x {SIDE} pixels to learn from, {TESTED} others, of other clothes and another part of the photograph, to be
tested on. Intersection over union of each class: mean ± standard deviation over {len(SEEDS)} seeds of the weights and of the
places. Beside it, everything called background, and the best threshold of the brightness."""


def compose(
    clothes: np.ndarray, labels: np.ndarray, photo: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, h, w) in [0, 1] and masks (n, h, w): 0 where the background is seen."""
    rng = np.random.default_rng(seed)
    n = len(clothes)
    images = np.empty((n, SIDE, SIDE), np.float32)
    masks = np.zeros((n, SIDE, SIDE), np.int64)
    for i, (garment, label) in enumerate(zip(clothes, labels)):
        top, left = (rng.integers(0, limit - SIDE) for limit in photo.shape)
        images[i] = photo[top : top + SIDE, left : left + SIDE]
        row, column = rng.integers(0, SIDE - 27, 2)
        window = (i, slice(row, row + 28), slice(column, column + 28))
        shape = garment > 25
        images[window] = np.where(shape, 0.5 * images[window] + 0.5 * garment / 255, images[window])
        masks[window][shape] = label + 1
    return images, masks


def run(out: Path) -> dict[str, Any]:
    """Train, compare with thresholding, and draw some masks."""
    source = data.load("fashion-mnist")
    train, test = source.extra["split"]
    few = {"train": _first(source, train, TRAINED), "test": _first(source, test, TESTED)}
    photo = load_sample_image("china.jpg").mean(2).astype(np.float32) / 255
    half = photo.shape[1] // 2
    plan = Training(epochs=EPOCHS, batch_size=32, learning_rate=4e-3, schedule="cosine", augment=0)
    by_class, anything, plain, nothing = [], [], [], []
    for seed in SEEDS:
        X, masks = compose(*few["train"], photo[:, :half], 2 * seed)
        X_test, masks_test = compose(*few["test"], photo[:, half:], 2 * seed + 1)
        model = Segmenter(width=12, options={"depth": 3}, training=plan, random_state=seed).fit(X, masks)
        predicted = model.predict(X_test)
        by_class.append(_overlap(masks_test, predicted))
        nothing.append(_overlap(masks_test, np.zeros_like(predicted)).mean())
        anything.append(intersection_over_union(masks_test > 0, predicted > 0, [True])[0])
        levels = np.linspace(0, 1, 21)
        plain.append(max(intersection_over_union(masks_test > 0, X_test > t, [True])[0] for t in levels))
    found = {
        "mean IoU": float(np.mean(by_class)),
        "clothes": float(np.mean(anything)),
        "threshold": float(np.mean(plain)),
    }
    _plot(out / "segmentation.png", X_test, masks_test, predicted)
    names = ("background", *(source.target_names[k] for k in KEPT))
    rows = [(name, spread(values)) for name, values in zip(names, np.transpose(by_class))]
    rows += [("mean of the classes", spread(np.mean(by_class, axis=1)))]
    rows += [("mean of the classes, all called background", spread(nothing))]
    rows += [("any clothes", spread(anything)), ("any clothes, by threshold", spread(plain))]
    page(out / "segmentation.md", "Segmentation of clothes", TEXT, ("class", "IoU"), rows)
    at_least(found["mean IoU"], 0.70, "mean intersection over union")
    at_least(found["clothes"], found["threshold"] + 0.2, "intersection over union of clothes")
    return found


def _overlap(masks: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return intersection_over_union(masks, predicted, range(GARMENTS + 1))


def _first(source: Any, part: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    rows = part[np.isin(source.y[part], KEPT)][:n]
    return source.X[rows], source.y[rows]


def _plot(path: Path, images: np.ndarray, masks: np.ndarray, predicted: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 8, figsize=(10, 4), layout="constrained")
    for i, column in enumerate(axes.T):
        column[0].imshow(images[i], cmap="gray", vmin=0, vmax=1)
        for part, picture in zip(column[1:], (masks[i], predicted[i])):
            part.imshow(picture, cmap="viridis", vmin=0, vmax=GARMENTS)
    for part, name in zip(axes[:, 0], ("image", "mask", "found")):
        part.set_ylabel(name)
    for part in axes.flat:
        part.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=110)
    plt.close(figure)
