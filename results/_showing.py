"""What the pictures of fitted systems share: short fits, parts of named data, titles, text."""

from __future__ import annotations

import textwrap
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from corollary import Run, catalog, data
from corollary.data.convert import as_input
from corollary.data.dataset import Dataset

__all__ = ["LONGER", "SECONDS", "fitted", "halves", "share", "titled", "written"]

SECONDS = 8.0  # for each fit
LONGER = 25.0  # for those that learn from texts


def fitted(entry: catalog.Entry, X: Any, y: Any = None, seconds: float = SECONDS, **params: Any) -> Any:
    """Return the system, fitted for a few seconds."""
    model = catalog.create(entry.id, **params)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    with Run(time_limit=seconds, progress=False):
        return model.fit(X) if y is None else model.fit(X, y)


@cache
def halves(name: str, kind: str = "") -> tuple[Dataset, Dataset]:
    """Return a train and a test part of named data, as the input kind wants them."""
    source = data.load(name)
    return data.split(as_input(source, kind, "gallery") if kind else source, 0.2, seed=0)


def titled(figure: Figure, title: str) -> Figure:
    """Put a title over a figure, in as many lines as it needs."""
    letters = int(12 * figure.get_figwidth())
    figure.suptitle("\n".join(textwrap.wrap(title, letters)), fontsize=10)
    return figure


def share(truth: Any, found: Any) -> str:
    """Say how many predictions are right."""
    return f"{np.mean(np.asarray(truth) == np.asarray(found)):.1%} right"


def written(title: str, lines: list[tuple[str, str]], width: float = 7.5) -> Figure:
    """Return lines of text, each with its colour."""
    figure = Figure(figsize=(width, 0.6 + 0.26 * len(lines)), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(len(lines), 0))
    for i, (line, colour) in enumerate(lines):
        axes.text(0, i + 0.5, line, family="monospace", fontsize=8, color=colour, va="center")
    return figure
