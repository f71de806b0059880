"""Pictures of a diagnosis: the evidence of a finding, the history, the layers.

What a finding was measured by is in its ``evidence``: numbers become bars, a list beside ``layers``, ``columns``, ``classes`` or
``names`` a bar for each of them, any other list a line, a table an image. A finding without any is shown by what it is about:
the data, the history or the layers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from corollary.plot.pictures import ACCENT, BASE, INK, SOFT

__all__ = ["layer_rows", "picture", "plot"]

LABELS = ("layers", "columns", "features", "classes", "names", "layer", "class")
NOT_DRAWN = ("rows", "row", "step", "epoch")  # where, not how much
SHOWN = 24  # bars at most
SPREAD = 100.0  # ratio of the largest to the smallest from which a scale is logarithmic


def plot(report: Any) -> Figure:
    """Return a figure with the evidence of the first finding, the history, and the layers, as far as there are any."""
    panels = []
    first = (report.alarms or report.findings or [None])[0]
    if first is not None and (drawn := _evidence(first.evidence)):
        panels.append((first.cause, drawn))
    if drawn := _history(report):
        panels.append(("history", drawn))
    if drawn := _layers(report):
        panels.append(("layers", drawn))
    if not panels and (drawn := _data(report, first)):
        panels.append(("data", drawn))
    figure = Figure(figsize=(4.4 * max(1, len(panels)), 3.3), layout="constrained")
    if not panels:
        figure.text(0.5, 0.5, "nothing was measured that can be drawn", ha="center", color=SOFT)
        return figure
    for axes, (title, draw) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels):
        draw(axes)
        axes.set_title(title, fontsize=9)
        _tidy(axes)
    return figure


def picture(report: Any, finding: Any) -> Figure | None:
    """Return the picture of one finding, or None if nothing of it can be drawn."""
    tries = [_evidence(finding.evidence)]
    if finding.family in ("descent", "outcome"):
        tries.append(_history(report))
    if finding.family in ("start", "architecture", "graph", "descent"):
        tries.append(_layers(report))
    if finding.family in ("data", "objective"):
        tries.append(_data(report, finding))
    draw = next((each for each in tries if each), None)
    if draw is None:
        return None
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    draw(axes)
    _tidy(axes)
    return figure


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(8)


# --- evidence --------------------------------------------------------------------------------------------


def _evidence(evidence: Mapping[str, Any]) -> Any:
    """Return what draws the evidence, or None."""
    arrays, numbers, names = {}, {}, None
    for key, value in evidence.items():
        if key in LABELS and isinstance(value, list | tuple | np.ndarray) and _worded(value):
            names = [str(v) for v in value]
        elif key in NOT_DRAWN:
            continue
        elif isinstance(value, int | float | np.number) and np.isfinite(float(value)):
            numbers[key] = float(value)
        elif (found := _numbers(value)) is not None:
            arrays[key] = found
    table = next((a for a in arrays.values() if a.ndim == 2), None)
    if table is not None:
        return lambda axes: axes.imshow(table, aspect="auto", cmap="viridis")
    if arrays:
        lists = {key: a for key, a in arrays.items() if a.ndim == 1}
        if names is not None and any(len(a) == len(names) for a in lists.values()):
            key, values = next((key, a) for key, a in lists.items() if len(a) == len(names))
            return lambda axes: _bars(axes, names, values, key)
        return lambda axes: _lines(axes, lists)
    if len(numbers) >= 2:
        return lambda axes: _bars(axes, list(numbers), np.array(list(numbers.values())), "")
    return None


def _worded(values: Any) -> bool:
    return len(values) > 0 and isinstance(next(iter(values)), str | np.str_)


def _numbers(value: Any) -> np.ndarray | None:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, Mapping):
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim in (1, 2) and array.size >= 2 and np.isfinite(array).any() else None


def _scale(values: np.ndarray) -> str:
    sizes = values[np.isfinite(values) & (values != 0)]
    wide = len(sizes) > 1 and (sizes > 0).all() and sizes.max() > SPREAD * sizes.min()
    return "log" if wide else "linear"


def _bars(axes: Any, names: list[str], values: np.ndarray, label: str) -> None:
    names, values = names[:SHOWN], np.asarray(values, dtype=np.float64)[:SHOWN]
    at = np.arange(len(names))[::-1]
    axes.barh(at, np.nan_to_num(values), color=ACCENT, height=0.7)
    axes.set_yticks(at, names)
    axes.set(xlabel=label.replace("_", " "), xscale=_scale(values))
    if axes.get_xscale() == "linear":
        axes.axvline(0, color=SOFT, lw=0.8)


RUNS = {"losses": "with the change", "control": "as it is"}  # of a copy that was trained on


def _lines(axes: Any, lists: Mapping[str, np.ndarray]) -> None:
    colours = (ACCENT, BASE, INK, "#15803d", "#7e22ce")
    for (key, values), colour in zip(lists.items(), colours):
        axes.plot(
            values,
            color=colour,
            marker="o" if len(values) < 25 else None,
            ms=3,
            lw=1.3,
            label=RUNS.get(key, key),
        )
    if "losses" in lists:
        axes.set(xlabel="step", ylabel="loss of the batch")
    axes.set(yscale=_scale(np.concatenate(list(lists.values()))))
    axes.legend(fontsize=7, frameon=False)


# --- history, layers, data -------------------------------------------------------------------------------


def _subject(report: Any) -> Any:
    """Return what was examined: the module, its samples and its history."""
    return getattr(report.subject, "subject", report.subject)


def _history(report: Any) -> Any:
    history = getattr(_subject(report), "history", None) or report.measurements.get("history") or {}
    if not isinstance(history, Mapping):
        return None
    lists = {
        name: np.asarray(history[key], dtype=np.float64)
        for key, name in (("loss", "training loss"), ("val_loss", "validation loss"))
        if key in history and len(np.atleast_1d(history[key])) > 1
    }

    def draw(axes: Any) -> None:
        _lines(axes, lists)
        axes.set(xlabel="epoch", ylabel="loss")

    return draw if lists else None


def layer_rows(report: Any) -> list[dict[str, Any]]:
    """Return the table per layer of a report as a list of dicts."""
    layers = report.measurements.get("layers")
    if isinstance(layers, Mapping):
        layers = [{"layer": name, **row} for name, row in layers.items() if isinstance(row, Mapping)]
    if hasattr(layers, "to_dict"):
        layers = layers.reset_index().to_dict("records")
    return [dict(row) for row in layers or [] if isinstance(row, Mapping)]


def _layers(report: Any) -> Any:
    rows = layer_rows(report)
    if len(rows) < 2:
        return None
    key = next(
        (k for k in ("gradient", "gradients", "grad", "dead", "activation", "activations") if k in rows[0]),
        None,
    )
    if key is None:
        return None
    names = [str(row.get("layer", row.get("name", row.get("where", i)))) for i, row in enumerate(rows)]
    values = np.array([float(row[key]) if isinstance(row.get(key), int | float) else np.nan for row in rows])
    return lambda axes: _bars(axes, names, values, key)


def _data(report: Any, finding: Any) -> Any:
    """Return what draws the spread of the inputs' columns, or of the targets."""
    samples = getattr(_subject(report), "train", None)
    x, y = getattr(samples, "x", None), getattr(samples, "y", None)
    about_targets = finding is not None and finding.cause in (
        "unscaled-targets", "class-imbalance", "label-noise", "misaligned-labels", "output-range", "wrong-loss", "double-softmax",
    )  # fmt: skip
    if about_targets and hasattr(y, "detach") and y.numel() > 1:
        values = y.detach().cpu().numpy().reshape(-1)
        if values.dtype.kind in "iub":
            found, counts = np.unique(values, return_counts=True)
            return lambda axes: _bars(axes, [str(n) for n in found], counts, "samples of each class")
        return lambda axes: (
            axes.hist(values[np.isfinite(values)], 40, color=ACCENT),
            axes.set(xlabel="target", ylabel="samples"),
        )
    if not hasattr(x, "detach") or not x.is_floating_point() or x.ndim < 2:
        return None
    column = re.search(r"(?:feature|column)s? \[?(\d+)", finding.where) if finding is not None else None
    if column:
        return _column(_subject(report), int(column[1]))
    flat = x.detach().float().cpu().reshape(len(x), -1)[:, :SHOWN].numpy()
    size = np.sqrt(np.nanmean(np.where(np.isfinite(flat), flat, np.nan) ** 2, axis=0))
    names = [f"feature {i}" for i in range(flat.shape[1])]
    return lambda axes: _bars(axes, names, size, "root mean square of each feature")


def _column(subject: Any, column: int) -> Any:
    """Return what draws one feature: how it is distributed in training and in validation."""

    def values(samples: Any) -> np.ndarray:
        flat = samples.x.detach().float().cpu().reshape(len(samples.x), -1).numpy()
        return flat[np.isfinite(flat[:, column]), column] if column < flat.shape[1] else np.empty(0)

    found = {"training": values(subject.train)}
    if getattr(subject, "valid", None) is not None:
        found["validation"] = values(subject.valid)
    found = {name: v for name, v in found.items() if len(v)}
    if not found:
        return None

    def draw(axes: Any) -> None:
        edges = np.histogram_bin_edges(np.concatenate(list(found.values())), 30)
        for (name, v), colour in zip(found.items(), (ACCENT, BASE)):
            axes.hist(v, edges, color=colour, alpha=0.5, density=True, label=f"{name}, {len(v)} rows")
        axes.set(xlabel=f"feature {column}", ylabel="density")
        axes.legend(fontsize=7, frameon=False)

    return draw
