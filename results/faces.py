"""ORL faces: parts by non-negative factorisation against eigenfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from corollary import NMF, PCA, data
from results.tables import at_least, at_most, page

RANK, STEP = 49, 2
TEXT = """{n} photographs of {people} people at every second pixel ({h} × {w}), {k} components each. *Error*: root-mean-square of
the reconstruction, grey levels from 0 to 1. *Sparseness* (Hoyer): 0 for an even image, 1 for a single pixel, mean over
the components. Principal components are the better code; non-negative ones are parts: eyes, mouths, hair, collars, which
only ever add up. The picture shows {shown} of each, and a face rebuilt by both."""


def sparseness(components: np.ndarray) -> float:
    """Return the mean of (√d − ‖x‖₁/‖x‖₂) / (√d − 1) over rows."""
    d = components.shape[1]
    ratio = np.abs(components).sum(axis=1) / np.linalg.norm(components, axis=1)
    return float(np.mean((np.sqrt(d) - ratio) / (np.sqrt(d) - 1)))


def run(out: Path) -> dict[str, Any]:
    """Fit both; PCA must be nearer to the faces, NMF sparser."""
    found = data.load("orl-faces")
    images = np.asarray(found.X, np.float32)[:, ::STEP, ::STEP] / 255
    X = images.reshape(len(images), -1)
    pca = PCA(RANK, random_state=0).fit(X)
    nmf = NMF(RANK, init="nndsvda", max_iter=400, tol=1e-5, random_state=0).fit(X)
    models = {"`PCA`": pca, "`NMF`": nmf}
    rebuilt = {name: model.inverse_transform(model.transform(X)) for name, model in models.items()}
    errors = {name: float(np.sqrt(np.mean((X - again) ** 2))) for name, again in rebuilt.items()}
    sparse = {name: sparseness(model.components_) for name, model in models.items()}
    draw(images, nmf.components_, pca, rebuilt, out / "faces.png")
    size = {"n": len(X), "people": len(np.unique(found.y)), "h": images.shape[1], "w": images.shape[2]}
    text = TEXT.format(**size, k=RANK, shown=12)
    rows: list[tuple[str, float, Any]] = [(name, errors[name], sparse[name]) for name in models]
    rows.append(("the mean face", float(np.sqrt(np.mean((X - X.mean(axis=0)) ** 2))), ""))
    page(out / "faces.md", "Parts of faces", text, ("model", "error", "sparseness"), rows)
    at_most(errors["`PCA`"], errors["`NMF`"], "the error of PCA against NMF")
    at_least(sparse["`NMF`"], sparse["`PCA`"] + 0.15, "the sparseness of NMF against PCA")
    return {"error": errors, "sparseness": sparse}


def draw(images: np.ndarray, parts: np.ndarray, pca: PCA, rebuilt: dict[str, np.ndarray], path: Path) -> None:
    """Draw twelve components of each, and a face with its two reconstructions."""
    shape = images.shape[1:]
    figure = plt.figure(figsize=(11, 5), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(4, 4, 1.4))
    order = np.argsort(-np.linalg.norm(parts, axis=1))
    panels = (
        (left, "NMF: parts that add up", parts[order], "gray_r"),
        (middle, "PCA: eigenfaces of both signs", pca.components_, "RdBu_r"),
    )
    for panel, title, components, colours in panels:
        panel.suptitle(title)
        for axis, component in zip(panel.subplots(3, 4).ravel(), components):
            limit = np.abs(component).max()
            low = 0 if colours == "gray_r" else -limit
            axis.imshow(component.reshape(shape), cmap=colours, vmin=low, vmax=limit)
            axis.axis("off")
    faces = {"a face": images.reshape(len(images), -1), **rebuilt}
    for axis, (name, rows) in zip(right.subplots(3, 1), faces.items()):
        axis.imshow(rows[7].reshape(shape), cmap="gray", vmin=0, vmax=1)
        axis.set_title(name.strip("`"), fontsize=9)
        axis.axis("off")
    figure.savefig(path, dpi=110)
    plt.close(figure)
