"""MNIST and Fashion-MNIST: bits per dimension of densities, FID, precision and recall of generators."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from corollary import DDPM, GAN, VAE, Flow, PixelCNN, Run, Training, create, data
from corollary.metrics import fid, precision_recall
from corollary.plot import image_grid
from results.tables import at_most, page

SECONDS = float(os.environ.get("GENERATORS_SECONDS", "600"))  # for each fit
COUNT = int(os.environ.get("GENERATORS_COUNT", "2000"))  # images drawn and scored
TEXT = """Each fit has {seconds:.0f} s on two cores. *Bits*: per dimension of {count} held-out images of 256 levels, exact for
flows and PixelCNN, a bound for the VAE and DDPM; *FID*, *precision* and *recall* of {count} draws against the held-out images,
by the class probabilities of a LeNet trained on the same data. The last row is of real images: no generator can be expected to
do better."""


def features(X: np.ndarray, y: np.ndarray) -> Any:
    """Return the function that gives the class probabilities of a trained LeNet."""
    net = create("lenet", training=Training(epochs=3), random_state=0).fit(X, y)
    return net.predict_proba


def models() -> dict[str, Any]:
    """Return who takes part."""
    long = Training(epochs=10_000)
    return {
        "VAE": VAE(32, training=long, random_state=0),
        "coupling flow": Flow("coupling", training=long, random_state=0),
        "autoregressive flow": Flow("autoregressive", training=long, random_state=0),
        "PixelCNN": PixelCNN(output="logistic-mixture", training=long, random_state=0),
        "GAN": GAN(spectral_norm=True, latent=64, training=long, random_state=0),
        "DDPM": DDPM(training=long, random_state=0),
    }


def bits(model: Any, X: np.ndarray) -> float:
    """Return the mean bits per dimension, where there is a density."""
    if isinstance(model, VAE):
        return float(-model.score(X) / (X[0].size * np.log(2)))
    return float(np.mean(model.bits_per_dimension(X))) if hasattr(model, "bits_per_dimension") else np.nan


def run(out: Path) -> dict[str, Any]:
    """Fit them all to both sets; DDPM must draw better than the VAE."""
    rows, found = [], {}
    for name in ("mnist", "fashion-mnist"):
        train = data.load(name)
        X, y = np.asarray(train.X), np.asarray(train.y)
        order = np.random.default_rng(0).permutation(len(X))
        held, real = X[order[:COUNT]], X[order[COUNT : 2 * COUNT]]
        X, y = X[order[2 * COUNT :]], y[order[2 * COUNT :]]
        seen = features(X, y)
        strips = []
        for title, model in models().items():
            with Run(time_limit=SECONDS, progress=False):
                model.fit(X)
            drawn = np.asarray(model.sample(COUNT)).reshape(-1, *held.shape[1:])
            shown = held / 255 if held.dtype == np.uint8 else held
            scores = (fid(shown, drawn, seen), *precision_recall(shown, drawn, features=seen))
            rows.append((name, title, bits(model, held), *scores))
            found[f"{name} {title}"] = scores[0]
            strips.append(drawn[:10])
        rows.append(
            (name, "real images", "", fid(held, real, seen), *precision_recall(held, real, features=seen))
        )
        image_grid(np.concatenate(strips)).savefig(out / f"generators_{name}.png", dpi=110)
        at_most(found[f"{name} DDPM"], found[f"{name} VAE"], f"FID of DDPM against that of the VAE on {name}")
    text = TEXT.format(seconds=SECONDS, count=COUNT)
    page(
        out / "generators.md",
        "Generators of images",
        text,
        ("data", "model", "bits", "FID", "precision", "recall"),
        rows,
    )
    return found
