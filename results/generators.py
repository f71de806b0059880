"""MNIST and Fashion-MNIST: bits per dimension of densities, FID, precision and recall of generators, sample sheets."""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from torch import nn

from corollary import DDPM, GAN, VAE, Flow, PixelCNN, Training, create, data
from corollary.metrics import fid, precision_recall
from corollary.plot import image_grid
from results.tables import at_least, at_most, page

SHARE = float(os.environ.get("GENERATORS_SHARE", "1"))  # of the epochs below
SETS = os.environ.get("GENERATORS_SETS", "fashion-mnist,mnist").split(",")
IMAGES = int(os.environ.get("GENERATORS_IMAGES", "4000"))
SCORED, DRAWN, SHOWN = 128, 250, 12
EPOCHS = {"VAE": 12, "coupling flow": 10, "autoregressive flow": 15, "PixelCNN": 4, "GAN": 8, "DDPM": 16}
TEXT = """Means over 2 x 2 pixels (14 x 14) of the first {images:,} training images, and few epochs for each model, so that a
fit takes a minute or less of one core; one seed. *Bits*: per dimension of {scored} test images of 256 levels: exact for PixelCNN,
a bound for the others ({even} by the histogram of each pixel by itself). *FID*, *precision* and *recall*: of {drawn} draws
against {drawn} test images, by the 84 features of a LeNet trained on the same images. The last row is of other test images: no
generator can be expected to do better. *Weights*: of all networks. *Seconds*: processor time of the fit. Below, draws of each
model in the order of the table, and real images in the last row."""


def small(X: np.ndarray) -> np.ndarray:
    """Return the means over 2 x 2 pixels, in 256 levels."""
    n, h, w = X.shape
    return np.rint(X.reshape(n, h // 2, 2, w // 2, 2).mean((2, 4))).astype(np.uint8)


def features(X: np.ndarray, y: np.ndarray) -> nn.Module:
    """Return the layers of a trained LeNet before the last."""
    net = create("lenet", training=Training(epochs=3), random_state=0).fit(X, y)
    scale, lenet = net.module_
    return nn.Sequential(scale, lenet.features)


def models() -> dict[str, Any]:
    """Return who takes part."""
    plans = {name: Training(epochs=max(1, round(SHARE * n)), batch_size=32) for name, n in EPOCHS.items()}
    made = {
        "VAE": VAE(32, importance_samples=16, random_state=0),
        "coupling flow": Flow("coupling", random_state=0),
        "autoregressive flow": Flow("autoregressive", hidden_layer_sizes=(512,), random_state=0),
        "PixelCNN": PixelCNN(output="logistic-mixture", random_state=0),
        "GAN": GAN("non-saturating", spectral_norm=True, latent=64, random_state=0),
        "DDPM": DDPM(sampling_steps=25, random_state=0),
    }
    return {name: model.set_params(training=plans[name]) for name, model in made.items()}


def bits(model: Any, X: np.ndarray) -> float:
    """Return the mean bits per dimension, where there is a density."""
    return float(np.mean(model.bits_per_dimension(X))) if hasattr(model, "bits_per_dimension") else np.nan


def independent_bits(train: np.ndarray, test: np.ndarray) -> float:
    """Return the bits of every pixel by itself, by its smoothed histogram: the trivial density."""
    test = test.reshape(len(test), -1)
    counts = np.full((256, test.shape[1]), 1 / 256)
    np.add.at(counts, (train.reshape(len(train), -1), np.arange(test.shape[1])), 1)
    return float(-np.log2(np.take_along_axis(counts / counts.sum(0), test.astype(int), 0)).mean())


def run(out: Path) -> dict[str, Any]:
    """Fit them all; assert the order that the models are known for."""
    rows, found, even = [], {}, {}
    for name in SETS:
        images = data.load(name)
        train, test = images.extra["split"]
        X, y = small(images.X[train[:IMAGES]]), images.y[train[:IMAGES]]
        tested = small(images.X[test[: 2 * DRAWN]])
        held, other = (tested[i * DRAWN : (i + 1) * DRAWN].astype(np.float32) / 255 for i in range(2))
        held, other = held[:, None], other[:, None]
        seen, sheet = features(X, y), []
        even[name] = independent_bits(X, tested[:SCORED])
        for title, model in models().items():
            start = process_time()
            model.fit(X)
            seconds = process_time() - start
            weights = sum(p.numel() for p in model.module_.parameters())
            drawn = np.asarray(model.sample(DRAWN), np.float32).reshape(held.shape)
            scores = (fid(held, drawn, seen), *precision_recall(held, drawn, features=seen))
            b = bits(model, tested[:SCORED])
            rows.append((name, title, "" if np.isnan(b) else b, *scores, f"{weights:,}", round(seconds)))
            print(*rows[-1], flush=True)
            found[f"{name} {title}"] = {"bits": b, "fid": scores[0], "precision": scores[1]}
            sheet.append(drawn[:SHOWN])
        real = (fid(held, other, seen), *precision_recall(held, other, features=seen))
        rows.append((name, "real images", "", *real, "", ""))
        figure = image_grid(np.concatenate([*sheet, other[:SHOWN]]), columns=SHOWN)
        figure.savefig(out / f"generators_{name}.png", dpi=90)
    alone = " and ".join(f"{b:.2f} on {name}" for name, b in even.items())
    text = TEXT.format(images=IMAGES, scored=SCORED, drawn=DRAWN, even=alone)
    sheets = "\n\n".join(f"![{name}](generators_{name}.png)" for name in SETS)
    headings = ("data", "model", "bits", "FID", "precision", "recall", "weights", "seconds")
    page(out / "generators.md", "Generators of images", f"{text}\n\n{sheets}", headings, rows)
    for name in SETS:
        score = {title: found[f"{name} {title}"] for title in EPOCHS}
        at_most(score["PixelCNN"]["bits"], even[name], f"bits of PixelCNN against single pixels on {name}")
        at_most(score["DDPM"]["fid"], score["VAE"]["fid"], f"FID of DDPM against that of the VAE on {name}")
        at_least(score["DDPM"]["precision"], 0.5, f"precision of DDPM on {name}")
    return found
