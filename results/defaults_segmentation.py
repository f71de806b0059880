"""Masks with default settings: our U-Net beside the plain one that people write themselves."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_sample_image

from corollary import Segmenter, data
from corollary.vision.segmenter import intersection_over_union
from results._plain import SEEDS, PlainUNet, measured, predicted, shown, trained
from results._scenes_drawn import scenes, strewn_digits
from results.segmentation import KEPT, compose
from results.tables import at_least, page

EPOCHS, TRAINED, TESTED = 40, 120, 120
TEXT = f"""Mean intersection over union of the classes on {TESTED} test images, mean ± standard deviation over {len(SEEDS)}
seeds, with the processor's seconds of one fit and its test; {TRAINED} images to learn from, and nothing is set.
**Scenes**: three of four shapes before a ground, of any colours, with noise, RGB of 40 x 40 pixels: five classes.
**Digits**: three handwritten digits from 0 to 4 on noise, grey, 40 x 40 pixels: six classes. **Clothes**: T-shirts,
trousers and pullovers laid half transparent over a photograph, grey, 40 x 40 pixels: four classes. Beside ours: a
plain U-Net of three levels with 16 to 64 channels, trained with Adam for {EPOCHS} epochs in batches of 8 by a loop as
in tutorials, once more with images and masks mirrored and turned upside down; and the commonest class everywhere. How
defaults follow from the data stands in `corollary.engine.budget` and `corollary.vision.views`."""


def sets() -> dict[str, tuple[np.ndarray, ...]]:
    """Return images in [0, 1] and masks, to train and to test."""
    clothes = data.load("fashion-mnist")
    photo = load_sample_image("china.jpg").mean(2).astype(np.float32) / 255
    half, parts = photo.shape[1] // 2, []
    for seed, (part, side) in enumerate(zip(clothes.extra["split"], (photo[:, :half], photo[:, half:]))):
        rows = part[np.isin(clothes.y[part], KEPT)][: TRAINED if seed == 0 else TESTED]
        parts += compose(clothes.X[rows], clothes.y[rows], side, seed)
    return {
        "scenes": (*scenes(TRAINED, 0), *scenes(TESTED, 1)),
        "digits": (*strewn_digits(TRAINED, 0), *strewn_digits(TESTED, 1)),
        "clothes": tuple(parts),
    }


def mean_iou(masks: np.ndarray, found: np.ndarray) -> float:
    """Return the mean over classes."""
    return float(np.nanmean(intersection_over_union(masks, found, np.unique(masks))))


def ours(X: np.ndarray, masks: np.ndarray, X_test: np.ndarray, masks_test: np.ndarray, seed: int) -> float:
    """Return the mean intersection over union by default."""
    return mean_iou(masks_test, Segmenter(random_state=seed).fit(X, masks).predict(X_test))


def plain(
    views: bool, X: np.ndarray, masks: np.ndarray, X_test: np.ndarray, masks_test: np.ndarray, seed: int
) -> float:
    """Return that of the plain U-Net; its views carry the mask as one more channel."""
    torch.manual_seed(seed)
    inputs, tests = (torch.as_tensor(part if part.ndim == 4 else part[:, None]) for part in (X, X_test))
    mean, spread = (f(dim=(0, 2, 3), keepdim=True) for f in (inputs.mean, inputs.std))
    inputs, tests, y = (inputs - mean) / spread, (tests - mean) / spread, torch.as_tensor(masks)
    net = PlainUNet(inputs.shape[1], int(masks.max()) + 1)
    if not views:
        return mean_iou(masks_test, predicted(trained(net, inputs, y, epochs=EPOCHS, batch_size=8), tests))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(8):
            axes = [axis for axis in (-1, -2) if torch.rand(()) < 0.5]
            loss = torch.nn.functional.cross_entropy(net(inputs[rows].flip(axes)), y[rows].flip(axes))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return mean_iou(masks_test, predicted(net.eval(), tests))


def commonest(
    X: np.ndarray, masks: np.ndarray, X_test: np.ndarray, masks_test: np.ndarray, seed: int
) -> float:
    """Return that of one class everywhere."""
    return mean_iou(masks_test, np.full_like(masks_test, np.bincount(masks.ravel()).argmax()))


def run(out: Path) -> dict[str, Any]:
    """Measure all; assert that the default is no worse than the plain U-Net, beyond the spread."""
    found = {}
    for name, parts in sets().items():
        methods = {
            "`Segmenter()`": partial(ours, *parts),
            "plain U-Net": partial(plain, False, *parts),
            "plain U-Net, mirrored": partial(plain, True, *parts),
        }
        found[name] = measured(methods, SEEDS) | measured(
            {"commonest class": partial(commonest, *parts)}, [0]
        )
    rows = [(method, *(shown(found[name][method]) for name in found)) for method in found["scenes"]]
    page(out / "defaults_segmentation.md", "Masks with default settings", TEXT, ("", *found), rows)
    for name, row in found.items():
        mine = row["`Segmenter()`"]["scores"]
        usual = max(
            float(np.mean(r["scores"])) for method, r in row.items() if method.startswith("plain U-Net")
        )
        at_least(float(np.mean(mine) + np.std(mine)) + 0.005, usual, f"mean IoU by default on {name}")
    return {name: {m: float(np.mean(r["scores"])) for m, r in row.items()} for name, row in found.items()}
