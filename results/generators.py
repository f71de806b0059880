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
FULL = os.environ.get("GENERATORS_FULL", "fashion-mnist").split(",")  # sets that are also taken in full size
IMAGES = int(os.environ.get("GENERATORS_IMAGES", "4000"))
SEEDS = {
    14: int(os.environ.get("GENERATORS_SEEDS", "3")),
    28: int(os.environ.get("GENERATORS_FULL_SEEDS", "1")),
}
CACHE = os.environ.get("GENERATORS_CACHE")  # a folder: what was measured before is not measured again
SCORED, DRAWN, SHOWN = 128, 250, 12
EPOCHS = {
    14: {"VAE": 12, "coupling flow": 12, "autoregressive flow": 10, "GAN": 10, "DDPM": 16, "PixelCNN": 8},
    28: {"VAE": 12, "coupling flow": 8, "autoregressive flow": 10, "GAN": 12, "DDPM": 40, "PixelCNN": 6},
}
MODELS = tuple(EPOCHS[14])
ALONE, REAL = "independent pixels", "real images"
TEXT = """The first {images:,} training images, and few epochs for each model. Means over 2 x 2 pixels (14 x 14), where a fit
takes a minute or less of one core, with {seeds} seeds: means, and ± the standard deviation; in full size (28 x 28), where it
takes up to a quarter of an hour, with {full_seeds}. *Bits*: per dimension of {scored} test images of 256 levels: exact for
PixelCNN, a bound for the others. *FID*, *precision* and *recall*: of {drawn} draws against {drawn} test images, by the 84
features of a LeNet trained on the same images. *Independent pixels*, the trivial generator, draws every pixel from its own
histogram. The last row of each is of other test images: no generator can be expected to do better. *Weights*: of all networks.
*Seconds*: processor time of the fit. Below, draws of each model with the first seed, in the order of the table."""


def small(X: np.ndarray) -> np.ndarray:
    """Return the means over 2 x 2 pixels, in 256 levels."""
    n, h, w = X.shape
    return np.rint(X.reshape(n, h // 2, 2, w // 2, 2).mean((2, 4))).astype(np.uint8)


def features(X: np.ndarray, y: np.ndarray) -> nn.Module:
    """Return the layers of a trained LeNet before the last."""
    net = create("lenet", training=Training(epochs=3), random_state=0).fit(X, y)
    scale, lenet = net.module_
    return nn.Sequential(scale, lenet.features)


def models(seed: int, side: int) -> dict[str, Any]:
    """Return who takes part."""
    plans = {name: Training(max(1, round(SHARE * n)), batch_size=32) for name, n in EPOCHS[side].items()}
    made = {
        "VAE": VAE(32, importance_samples=16),
        "coupling flow": Flow("coupling"),
        "autoregressive flow": Flow("autoregressive", hidden_layer_sizes=(512,)),
        "GAN": GAN("non-saturating", spectral_norm=True, latent=64),
        "DDPM": DDPM(sampling_steps=25),
        "PixelCNN": PixelCNN(output="logistic-mixture"),
    }
    return {name: model.set_params(training=plans[name], random_state=seed) for name, model in made.items()}


def bits(model: Any, X: np.ndarray) -> float:
    """Return the mean bits per dimension, where there is a density."""
    return float(np.mean(model.bits_per_dimension(X))) if hasattr(model, "bits_per_dimension") else np.nan


class Alone:
    """The trivial generator and density: every pixel by itself, by its histogram."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: np.ndarray) -> Alone:
        """Count the levels of every pixel; 1/256 is added to each count."""
        self.rows = X.reshape(len(X), -1)
        counts = np.full((256, self.rows.shape[1]), 1 / 256)
        np.add.at(counts, (self.rows, np.arange(self.rows.shape[1])), 1)
        self.shares = counts / counts.sum(0)
        return self

    def bits_per_dimension(self, X: np.ndarray) -> np.ndarray:
        """Return the mean bits of the pixels of each image."""
        codes = X.reshape(len(X), -1).astype(int)
        return -np.log2(np.take_along_axis(self.shares, codes, 0)).mean(1)

    def sample(self, n: int) -> np.ndarray:
        """Return images whose pixels come from n training images each on its own."""
        rows = np.random.default_rng(self.seed).integers(len(self.rows), size=(n, self.rows.shape[1]))
        return np.take_along_axis(self.rows, rows, 0) / 255


class Judge:
    """The images of one set with a number of pixels on a side, a LeNet trained on them, and what is measured by it."""

    def __init__(self, name: str, side: int) -> None:
        images = data.load(name)
        train, test = images.extra["split"]
        self.name, self.side = name, side
        self.X, self.tested = images.X[train[:IMAGES]], images.X[test[: 2 * DRAWN]]
        if side == 14:
            self.X, self.tested = small(self.X), small(self.tested)
        halves = self.tested.astype(np.float32).reshape(2, DRAWN, 1, *self.X.shape[1:]) / 255
        self.held, self.other = halves
        self.features = features(self.X, images.y[train[:IMAGES]])

    def scores(self, drawn: np.ndarray) -> dict[str, float]:
        """Return FID, precision and recall of draws."""
        precision, recall = precision_recall(self.held, drawn, features=self.features)
        return {"FID": fid(self.held, drawn, self.features), "precision": precision, "recall": recall}

    def tried(self, model: Any) -> tuple[dict[str, float], np.ndarray]:
        """Return the numbers of a model after a fit, and some draws."""
        start = process_time()
        model.fit(self.X)
        seconds = process_time() - start
        weights = sum(p.numel() for p in model.module_.parameters()) if hasattr(model, "module_") else 0
        drawn = np.asarray(model.sample(DRAWN), np.float32).reshape(self.held.shape)
        found = {"bits": bits(model, self.tested[:SCORED]), **self.scores(drawn)}
        return {**found, "weights": weights, "seconds": seconds}, drawn[:SHOWN]

    def measured(self, title: str, model: Any, seed: int) -> tuple[dict[str, float], np.ndarray]:
        """Return what was measured before, or measure it."""
        epochs = EPOCHS[self.side].get(title, 0)
        key = f"{self.name}-{self.side}-{title}-{seed}-{IMAGES}-{epochs}-{SHARE:g}".replace(" ", "_")
        path = None if CACHE is None else Path(CACHE) / f"{key}.npz"
        if path is not None and path.exists():
            with np.load(path) as kept:
                return {k: float(kept[k]) for k in kept.files if k != "drawn"}, kept["drawn"]
        found, drawn = self.tried(model)
        print(key, found, flush=True)
        if path is not None:
            np.savez(path, drawn=drawn, **found)  # type: ignore[arg-type]
        return found, drawn


COLUMNS = ("bits", "FID", "precision", "recall")


def shown(runs: list[dict[str, float]], column: str) -> str:
    """Return mean and deviation over the seeds, or nothing."""
    values = np.array([found.get(column, np.nan) for found in runs])
    if np.isnan(values).any():
        return ""
    return f"{values.mean():.3f}" + (f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else "")


def run(out: Path) -> dict[str, Any]:
    """Fit them all; assert the order that the models are known for."""
    cases = {name: (name, 14) for name in SETS} | {f"{name}, 28 x 28": (name, 28) for name in FULL if name}
    rows, found = [], {}
    for case, (name, side) in cases.items():
        judge = Judge(name, side)
        runs, sheet = _runs(judge)
        runs[REAL] = [judge.scores(judge.other)]
        for title, each in runs.items():
            sizes = "" if title not in MODELS else f"{each[0]['weights']:,.0f}"
            seconds = "" if title not in MODELS else round(np.mean([one["seconds"] for one in each]))
            rows.append((case, title, *(shown(each, column) for column in COLUMNS), sizes, seconds))
        figure = image_grid(np.concatenate([*sheet, judge.other[:SHOWN]]), columns=SHOWN)
        figure.savefig(out / f"{_sheet(name, side)}.png", dpi=90)
        found[case] = {
            title: {c: float(np.mean([f.get(c, np.nan) for f in each])) for c in COLUMNS}
            for title, each in runs.items()
        }
    text = TEXT.format(images=IMAGES, scored=SCORED, drawn=DRAWN, seeds=SEEDS[14], full_seeds=SEEDS[28])
    pictures = "\n\n".join(f"![{case}]({_sheet(*what)}.png)" for case, what in cases.items())
    headings = ("data", "model", *COLUMNS, "weights", "seconds")
    page(out / "generators.md", "Generators of images", f"{text}\n\n{pictures}", headings, rows)
    for case, scores in found.items():
        _check(case, scores)
    return found


def _sheet(name: str, side: int) -> str:
    return f"generators_{name}" + ("" if side == 14 else f"_{side}")


def _runs(judge: Judge) -> tuple[dict[str, list[dict[str, float]]], list[np.ndarray]]:
    """Return the numbers of every model with every seed, and draws of each with the first."""
    runs: dict[str, list[dict[str, float]]] = {title: [] for title in (ALONE, *MODELS)}
    sheet = []
    for seed in range(SEEDS[judge.side]):
        for title, model in {ALONE: Alone(seed), **models(seed, judge.side)}.items():
            numbers, drawn = judge.measured(title, model, seed)
            runs[title].append(numbers)
            sheet += [] if seed else [drawn]
    return runs, sheet


def _check(case: str, score: dict[str, dict[str, float]]) -> None:
    """Assert the floors of one set of images."""
    alone = score[ALONE]
    for title in ("VAE", "coupling flow", "autoregressive flow", "PixelCNN"):
        at_most(score[title]["bits"], alone["bits"], f"bits of {title} against single pixels on {case}")
    for title in MODELS:
        at_most(score[title]["FID"], alone["FID"], f"FID of {title} against single pixels on {case}")
    at_most(score["DDPM"]["FID"], score["VAE"]["FID"], f"FID of DDPM against that of the VAE on {case}")
    at_least(score["DDPM"]["precision"], 0.5, f"precision of DDPM on {case}")
