"""Images with default settings: three nets beside the plain convolutional net that people write themselves."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from corollary import ImageClassifier, data
from results._plain import SEEDS, cnn, flips_and_shifts, measured, predicted, shown, trained
from results._scenes_drawn import noisy_shapes
from results.tables import at_least, page

EPOCHS = 40
NETS = ("resnet", "lenet", "vgg")
TEXT = f"""Test accuracy, mean ± standard deviation over {len(SEEDS)} seeds, with the processor's seconds of one fit and its
test. Nothing is set but the net's name. **Shapes**: 400 pictures of 48 x 48 pixels, RGB, of one of four shapes
anywhere, of any colour and size, with noise; 400 others to be tested on. **Digits**: 600 handwritten digits of 8 x 8
pixels, tested on 1,197. **Clothes**: 600 pictures of 28 x 28 pixels of Fashion-MNIST, tested on 2,000. Beside ours: a
plain net of four blocks of convolution, batch normalisation and pooling with 16 to 128 channels, trained with Adam
for {EPOCHS} epochs in batches of 32 by a loop as in tutorials, as it is and with pictures shifted by up to a twelfth
of their side and (but for digits) mirrored; and logistic regression on the pixels. How defaults follow from the data
stands in `corollary.engine.budget` (epochs and batches from the number of pictures), `corollary.vision.views` (which
views the labels allow) and `corollary.vision.net` (how far the stem of a net shrinks small pictures)."""


def sets() -> dict[str, tuple[np.ndarray, ...]]:
    """Return pictures in [0, 1] and labels, to train and to test."""
    found, rng = load_digits(), np.random.default_rng(0)
    rows = rng.permutation(len(found.target))
    digits, y = (found.images[rows] / 16).astype(np.float32), found.target[rows]
    clothes = data.load("fashion-mnist")
    train, test = (part[:n] for part, n in zip(clothes.extra["split"], (600, 2000)))
    return {
        "shapes": (*noisy_shapes(400, 0), *noisy_shapes(400, 1)),
        "digits": (digits[:600], y[:600], digits[600:], y[600:]),
        "clothes": (clothes.X[train], clothes.y[train], clothes.X[test], clothes.y[test]),
    }


def ours(net: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> float:
    """Return the accuracy by default."""
    return ImageClassifier(net, random_state=seed).fit(X, y).score(X_test, y_test)


def plain(
    views: bool,
    mirrored: bool,
    X: np.ndarray,
    y: np.ndarray,
    X_test: np.ndarray,
    y_test: np.ndarray,
    seed: int,
) -> float:
    """Return the accuracy of the plain net."""
    torch.manual_seed(seed)
    inputs, tests = (torch.as_tensor(part, dtype=torch.float32) for part in (X, X_test))
    if X.dtype == np.uint8:
        inputs, tests = inputs / 255, tests / 255
    if X.ndim == 3:
        inputs, tests = inputs[:, None], tests[:, None]
    mean, spread = (f(dim=(0, 2, 3), keepdim=True) for f in (inputs.mean, inputs.std))
    inputs, tests = (inputs - mean) / spread, (tests - mean) / spread
    side = inputs.shape[2]
    shown_as = partial(flips_and_shifts, mirrored=mirrored, most=round(side / 12)) if views else None
    net = cnn(inputs.shape[1], int(y.max()) + 1, side)
    trained(net, inputs, torch.as_tensor(y), epochs=EPOCHS, views=shown_as)
    return float(np.mean(predicted(net, tests) == y_test))


def logistic(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> float:
    """Return the accuracy of logistic regression on the pixels."""
    flat, tests = (part.reshape(len(part), -1) / float(X.max()) for part in (X, X_test))
    return LogisticRegression(C=0.1, max_iter=300).fit(flat, y).score(tests, y_test)


def run(out: Path) -> dict[str, Any]:
    """Measure all; assert that the default net is no worse than the plain one, beyond the spread."""
    found = {}
    for name, parts in sets().items():
        methods = {f"`{net}`": partial(ours, net, *parts) for net in NETS}
        methods["plain net"] = partial(plain, False, False, *parts)
        methods["plain net, with views"] = partial(plain, True, name != "digits", *parts)
        found[name] = measured(methods, SEEDS) | measured(
            {"logistic regression": partial(logistic, *parts)}, [0]
        )
    rows = [(method, *(shown(found[name][method]) for name in found)) for method in found["shapes"]]
    page(out / "defaults_images.md", "Images with default settings", TEXT, ("", *found), rows)
    for name, row in found.items():
        mine = row["`resnet`"]["scores"]
        usual = max(
            float(np.mean(r["scores"])) for method, r in row.items() if method.startswith("plain net")
        )
        at_least(
            float(np.mean(mine) + np.std(mine)) + 0.005, usual, f"accuracy of a ResNet by default on {name}"
        )
    return {name: {m: float(np.mean(r["scores"])) for m, r in row.items()} for name, row in found.items()}
