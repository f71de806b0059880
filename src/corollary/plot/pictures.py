"""The pictures of the reports: curves, confusion, images, codes, leaderboards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

__all__ = [
    "codes",
    "confusion",
    "curves",
    "image_grid",
    "importances",
    "leaderboard",
    "pairs",
    "predictions",
    "probabilities",
    "regions",
    "residuals",
    "robustness",
    "save",
    "series",
]

INK, ACCENT, SOFT, BASE = "#1f2933", "#2563eb", "#9aa5b1", "#c2410c"
MARKS = {"corollary": "o", "scikit-learn": "s", "yours": "D", "baseline": "|"}
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
        axes.xaxis.get_major_locator().set_params(integer=True)
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


def residuals(predicted: Any, truth: Any) -> Figure:
    """Return errors against predictions, and their histogram beside it."""
    predicted, truth = np.asarray(predicted).ravel(), np.asarray(truth).ravel()
    error = predicted - truth
    figure = Figure(figsize=(7.4, 3.2), layout="constrained")
    axes, beside = figure.subplots(1, 2, width_ratios=(2, 1), sharey=True)
    axes.plot(predicted[:MAX_POINTS], error[:MAX_POINTS], ".", ms=3, color=ACCENT, alpha=0.5)
    axes.axhline(0, color=SOFT, lw=1)
    axes.set(xlabel="predicted", ylabel="predicted - true")
    beside.hist(error, bins=30, orientation="horizontal", color=SOFT)
    beside.set_xlabel("rows")
    for part in (axes, beside):
        part.spines[["top", "right"]].set_visible(False)
    return figure


def probabilities(code: np.ndarray, chances: np.ndarray, names: Sequence[str]) -> Figure:
    """Return ROC, precision against recall, and calibration, of two classes or of each class against the rest."""
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import precision_recall_curve, roc_curve

    figure = Figure(figsize=(9.6, 3.3), layout="constrained")
    roc, trade, reliable = figure.subplots(1, 3)
    present, counts = np.unique(code, return_counts=True)
    chosen = present[[counts.argmin()]] if len(names) == 2 else present[:10]  # of two, the rarer
    for place, c in enumerate(chosen):
        if len(present) < 2:
            continue
        colour = ACCENT if len(chosen) == 1 else f"C{place}"
        is_c, p = code == c, chances[:, c]
        roc.plot(*roc_curve(is_c, p)[:2], color=colour, lw=1.3, label=str(names[c]))
        precision, recall, _ = precision_recall_curve(is_c, p)
        trade.plot(recall, precision, color=colour, lw=1.3)
        trade.axhline(is_c.mean(), color=colour, lw=0.6, ls=":")
        often, said = calibration_curve(is_c, p.clip(0, 1), n_bins=8, strategy="quantile")
        reliable.plot(said, often, color=colour, lw=1.3, marker="o", ms=3)
    roc.plot([0, 1], [0, 1], color=SOFT, lw=1)
    reliable.plot([0, 1], [0, 1], color=SOFT, lw=1)
    roc.set(xlabel="false positives", ylabel="true positives", title="ROC")
    trade.set(xlabel="recall", ylabel="precision", title="Precision and recall", ylim=(-0.03, 1.03))
    reliable.set(xlabel="probability said", ylabel="how often true", title="Calibration")
    roc.legend(fontsize=7, frameon=False, title="class", title_fontsize=7)
    for axes in (roc, trade, reliable):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(9)
    return figure


def importances(names: Sequence[str], means: np.ndarray, deviations: np.ndarray) -> Figure:
    """Return importances as bars from zero, the largest on top, with their deviations."""
    figure, axes = _figure(6.4, 0.8 + 0.26 * max(1, len(names)))
    axes.barh(list(names)[::-1], means[::-1], xerr=deviations[::-1], color=ACCENT, alpha=0.7, height=0.65)
    axes.axvline(0, color=INK, lw=0.8)
    axes.tick_params(labelsize=8)
    return figure


def regions(found: Any) -> Figure:
    """Draw the linear regions (``theory.counting.linear_regions``) of a network, coloured by their number of active units."""
    from matplotlib.collections import PolyCollection

    figure, axes = _figure(4.8, 4.6)
    cells = PolyCollection(
        found.polygons, array=found.patterns.sum(1), cmap="Blues", edgecolors=INK, linewidths=0.4
    )
    axes.add_collection(cells)
    axes.autoscale_view()
    axes.set_aspect("equal")
    axes.set_title(f"{found.count} linear regions")
    figure.colorbar(cells, ax=axes, label="active units")
    return figure


def image_grid(
    images: Any, columns: int = 10, titles: Sequence[str] | None = None, *, inverted: bool = True
) -> Figure:
    """Return images ``(n, h, w)`` or ``(n, c, h, w)`` as a grid; each is scaled to its own range unless in [0, 1].

    ``inverted`` shows 0 as white where there is one channel, as ink on paper; pictures as they are to be looked at are not.
    """
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
        axes.imshow(image, cmap="gray_r" if inverted else "gray", **limits)
        axes.set_axis_off()
        if titles is not None:
            axes.set_title(titles[i], fontsize=6)
    return figure


def pairs(before: Any, after: Any, shape: tuple[int, ...], n: int = 10, *, inverted: bool = True) -> Figure:
    """Return the first ``n`` rows of ``before`` above those of ``after``, as images of this shape."""
    both = np.concatenate([np.asarray(before)[:n], np.asarray(after)[:n]]).reshape(-1, *shape)
    both = np.clip(both, 0, 1) if np.asarray(before).max() <= 1 else both
    return image_grid(both, columns=min(n, len(before)), inverted=inverted)


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


def robustness(curves: Any, title: str = "") -> Figure:
    """Return the accuracy under attack over the radius, with its interval.

    ``curves`` is one of :func:`corollary.attack.evaluate`, or a dict of several by name.
    """
    named = curves if isinstance(curves, dict) else {"": curves}
    figure, axes = _figure()
    for (name, curve), colour in zip(named.items(), cycle((ACCENT, BASE, INK, SOFT))):
        axes.plot(curve.eps, curve.accuracy, color=colour, marker="o", ms=3, lw=1.4, label=name)
        axes.fill_between(curve.eps, curve.low, curve.high, color=colour, alpha=0.15, lw=0)
    first = next(iter(named.values()))
    axes.set(xlabel=f"radius ({first.norm})", ylabel="accuracy under attack", ylim=(0, 1.02), title=title)
    if any(named):
        axes.legend(fontsize=8, frameon=False)
    return figure


def leaderboard(
    rows: Sequence[dict[str, Any]], metric: str, *, larger_is_better: bool = True, winner: str | None = None
) -> Figure:
    """Return the means of a comparison as points with their 95 % intervals, best on top.

    A line stands at the best baseline. Points, not bars: a point needs no axis that starts at zero, and a score below
    zero does not look longer than a good one. What is far worse than the baseline leaves the axis, with an arrow.
    """
    rows = [row for row in rows if row.get("score") is not None][::-1]
    figure, axes = _figure(7.2, 1.1 + 0.3 * max(1, len(rows)))
    scores = np.array([row["score"] for row in rows], dtype=float)
    widths = np.nan_to_num(np.array([row.get("width", np.nan) for row in rows], dtype=float))
    base = next((row["score"] for row in rows[::-1] if row.get("group") == "baseline"), None)
    low, high = _limits(scores, widths, base, larger_is_better)
    for i, row in enumerate(rows):
        colour = ACCENT if row["system"] == winner else BASE if row.get("group") == "baseline" else INK
        place = float(np.clip(scores[i], low, high))
        if place == scores[i]:
            axes.plot([scores[i] - widths[i], scores[i] + widths[i]], [i, i], color=colour, lw=2, alpha=0.45)
        axes.plot(
            place,
            i,
            MARKS.get(row.get("group", ""), "o") if place == scores[i] else "<>"[place == high],
            color=colour,
            ms=6,
        )
        tie = " =" if row.get("tied") and row["system"] != rows[-1]["system"] else ""
        axes.text(
            1.01,
            i,
            f"{scores[i]:.4g}{tie}",
            va="center",
            fontsize=7,
            color=colour,
            transform=axes.get_yaxis_transform(),
        )
    if base is not None:
        axes.axvline(base, color=BASE, lw=1, ls="--", zorder=0)
    margin = 0.04 * (high - low)
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=8)
    better = "larger is better" if larger_is_better else "smaller is better"
    axes.set_xlabel(
        f"{metric} ({better}; line: best baseline)" if base is not None else f"{metric} ({better})",
        fontsize=8,
    )
    axes.tick_params(axis="x", labelsize=8)
    return figure


def _limits(scores: np.ndarray, widths: np.ndarray, base: float | None, larger: bool) -> tuple[float, float]:
    """Return the ends of the axis: everything, unless some are worse than the baseline by more than the others' range."""
    if not len(scores):
        return 0.0, 1.0
    shown = np.ones(len(scores), dtype=bool)
    if base is not None:
        sign = 1.0 if larger else -1.0
        good = scores[sign * scores >= sign * base]
        shown = sign * scores >= sign * base - (float(good.max() - good.min()) or abs(base) or 1.0)
    low, high = float((scores - widths)[shown].min()), float((scores + widths)[shown].max())
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _label(row: dict[str, Any]) -> str:
    group = row.get("group", "")
    return row["system"] if group in ("", "corollary") else f"{row['system']} ({group})"
