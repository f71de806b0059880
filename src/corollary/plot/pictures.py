"""The pictures of the reports: curves, confusion, images, codes, leaderboards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

__all__ = [
    "codes",
    "confusion",
    "curves",
    "image_grid",
    "leaderboard",
    "pairs",
    "predictions",
    "save",
    "series",
]

INK, ACCENT, SOFT = "#1f2933", "#2563eb", "#9aa5b1"
MAX_POINTS = 5000  # more points in a scatter hide each other


def _figure(width: float = 6.0, height: float = 3.6) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, path: str | Path | None = None) -> bytes:
    """Return the figure as PNG bytes, and write them if a path is given."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    if path is not None:
        Path(path).write_bytes(buffer.getvalue())
    return buffer.getvalue()


def curves(history: Sequence[dict[str, float]]) -> Figure:
    """Return every metric of a ``history_`` against the step; training and validation share a panel."""
    names = [
        name for name in dict.fromkeys(k for row in history for k in row) if name not in ("step", "seconds")
    ]
    panels = list(dict.fromkeys(name.removeprefix("validation_") for name in names)) or ["seconds"]
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(3.4 * columns, 2.6 * rows), layout="constrained")
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, i + 1)
        for name, colour in ((panel, ACCENT), (f"validation_{panel}", INK)):
            points = [(row["step"], row[name]) for row in history if name in row]
            if points:
                marker = "o" if len(points) < 12 else None
                axes.plot(*zip(*points), color=colour, marker=marker, ms=3, lw=1.4, label=name.split("_")[0])
        axes.set_title(panel.replace("_", " "), fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        if any(f"validation_{panel}" in row for row in history):
            axes.legend(["training", "validation"], fontsize=7, frameon=False)
    return figure


def confusion(truth: Any, predicted: Any) -> Figure:
    """Return the table of true against predicted classes."""
    from sklearn.metrics import confusion_matrix

    classes = np.unique(np.concatenate([np.asarray(truth), np.asarray(predicted)]))
    table = confusion_matrix(truth, predicted, labels=classes)
    side = min(9.0, 2.4 + 0.34 * len(classes))
    figure, axes = _figure(side, side)
    axes.imshow(np.sqrt(table), cmap="Blues")  # the root lets rare confusions be seen beside the diagonal
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    if len(classes) <= 25:
        axes.set_xticks(range(len(classes)), classes, fontsize=7, rotation=90)
        axes.set_yticks(range(len(classes)), classes, fontsize=7)
        dark = table > table.max() / 4
        for i, j in np.argwhere(table > 0):
            axes.text(
                j, i, table[i, j], ha="center", va="center", fontsize=7, color="white" if dark[i, j] else INK
            )
    return figure


def predictions(truth: Any, predicted: Any) -> Figure:
    """Return predicted against true numbers, with the line where they are equal."""
    truth, predicted = np.asarray(truth).ravel(), np.asarray(predicted).ravel()
    figure, axes = _figure(4.2, 4.2)
    axes.plot(truth[:MAX_POINTS], predicted[:MAX_POINTS], ".", ms=3, color=ACCENT, alpha=0.5)
    ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
    axes.plot(ends, ends, color=SOFT, lw=1)
    axes.set_xlabel("true")
    axes.set_ylabel("predicted")
    return figure


def image_grid(images: Any, columns: int = 10, titles: Sequence[str] | None = None) -> Figure:
    """Return images ``(n, h, w)`` or ``(n, c, h, w)`` as a grid; each is scaled to its own range unless in [0, 1]."""
    images = np.asarray(images)
    if images.ndim == 4:
        images = images[:, 0] if images.shape[1] == 1 else images[:, :3].transpose(0, 2, 3, 1)
    n = len(images)
    columns = min(columns, n)
    rows = math.ceil(n / columns)
    figure = Figure(figsize=(0.85 * columns, (0.85 if titles is None else 1.05) * rows), layout="constrained")
    bounded = images.min() >= 0 and images.max() <= 1
    for i, image in enumerate(images):
        axes = figure.add_subplot(rows, columns, i + 1)
        limits = {"vmin": 0, "vmax": 1} if bounded else {}
        axes.imshow(image, cmap="gray_r", **limits)
        axes.set_axis_off()
        if titles is not None:
            axes.set_title(titles[i], fontsize=6)
    return figure


def pairs(before: Any, after: Any, shape: tuple[int, ...], n: int = 10) -> Figure:
    """Return the first ``n`` rows of ``before`` above those of ``after``, as images of this shape."""
    both = np.concatenate([np.asarray(before)[:n], np.asarray(after)[:n]]).reshape(-1, *shape)
    return image_grid(
        np.clip(both, 0, 1) if np.asarray(before).max() <= 1 else both, columns=min(n, len(before))
    )


def series(waves: Sequence[Any], forecasts: Sequence[Any] | None = None) -> Figure:
    """Return series ``(t,)`` or ``(t, d)`` below each other; forecasts of their last steps in colour."""
    figure = Figure(figsize=(6.4, 1.3 * len(waves)), layout="constrained")
    for i, wave in enumerate(map(np.asarray, waves)):
        axes = figure.add_subplot(len(waves), 1, i + 1)
        axes.plot(wave, color=ACCENT if forecasts is None else INK, lw=0.9)
        if forecasts is not None:
            steps = np.arange(len(wave))[-len(forecasts[i]) :]
            axes.plot(steps, forecasts[i], color=ACCENT, lw=1.4, marker="o", ms=2)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def codes(Z: Any, labels: Any = None) -> Figure:
    """Return codes as points in the plane of their two leading directions, coloured by label."""
    Z = np.asarray(Z, dtype=float)[:MAX_POINTS]
    if Z.shape[1] > 2:
        centred = Z - Z.mean(0)
        Z = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    if Z.shape[1] == 1:
        Z = np.column_stack([Z[:, 0], np.zeros(len(Z))])
    figure, axes = _figure(5.2, 4.4)
    if labels is None:
        axes.plot(*Z.T, ".", ms=3, color=ACCENT, alpha=0.5)
        return figure
    names, index = np.unique(np.asarray(labels)[:MAX_POINTS], return_inverse=True)
    points = axes.scatter(
        *Z.T, c=index, s=6, cmap="tab10" if len(names) <= 10 else "viridis", alpha=0.7, lw=0
    )
    if len(names) <= 10:
        axes.legend(
            points.legend_elements()[0],
            names,
            fontsize=7,
            frameon=False,
            loc="center left",
            bbox_to_anchor=(1, 0.5),
        )
    return figure


def leaderboard(rows: Sequence[dict[str, Any]], metric: str) -> Figure:
    """Return the scores of a comparison as bars, best on top."""
    rows = [row for row in rows if row.get("score") is not None]
    figure, axes = _figure(6.4, 0.9 + 0.32 * max(1, len(rows)))
    names = [row["system"] for row in rows][::-1]
    scores = [row["score"] for row in rows][::-1]
    axes.barh(names, scores, color=[SOFT] * (len(rows) - 1) + [ACCENT], height=0.65)
    axes.set_xlabel(metric)
    axes.tick_params(labelsize=8)
    if rows and min(scores) > 0 and max(scores) < 3 * min(scores):
        axes.set_xlim(left=max(0.0, min(scores) - 0.3 * (max(scores) - min(scores)) - 1e-3))
    for i, score in enumerate(scores):
        axes.text(score, i, f" {score:.4g}", va="center", fontsize=7, color=INK)
    return figure
