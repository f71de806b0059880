"""Scenes for what BERT's heads tell of texts: numbers, labels of words, answers; all on lines of Shakespeare."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from corollary import Training, catalog, data, plot
from results._drawings import ACCENT, SOFT, WARM
from results._showing import LONGER, fitted, share, titled, written

__all__ = ["answers", "capitals", "lengths"]

HELD = 200  # lines that are not trained on
SMALL: dict[str, Any] = {"n_layers": 1, "width": 64, "n_heads": 4, "max_length": 48, "dropout": 0.0}
PLAN = Training(epochs=300, learning_rate=2e-3, batch_size=32)
GENTLE = Training(epochs=300, learning_rate=5e-4, batch_size=32)  # numbers swing more than classes


@cache
def lines(n: int = 3000) -> list[str]:
    """Return lines of plays, some words long."""
    found = [
        re.sub(r"[^A-Za-z' ]", "", line)
        for text in data.load("shakespeare").X[10:16]
        for line in text.split("\n")
    ]
    return [" ".join(line.split()) for line in found if 4 <= len(line.split()) <= 12][:n]


def learned(entry: catalog.Entry, X: list[Any], y: list[Any], plan: Training = PLAN) -> Any:
    """Return the model fitted for some seconds to all but the held-out part."""
    return fitted(entry, X[:-HELD], y[:-HELD], seconds=LONGER, **SMALL, training=plan)


def lengths(entry: catalog.Entry) -> Figure:
    """How many letters a line has, which no piece of a word says alone."""
    X = lines()
    y = [float(sum(map(str.isalpha, line))) for line in X]
    model = learned(entry, X, y, GENTLE)
    found, true = model.predict(X[-HELD:]), np.array(y[-HELD:])
    off = float(np.abs(found - true).mean())
    title = f"{entry.name} counts the letters of lines that it has not seen:\n{off:.1f} off on average"
    return titled(plot.predictions(true, found), title)


def capitals(entry: catalog.Entry) -> Figure:
    """Which words of a line were written with a capital; the model reads small letters only."""
    X = [line.lower().split() for line in lines()]
    y = [["Capital" if word[0].isupper() else "small" for word in line.split()] for line in lines()]
    model = learned(entry, X, y)
    found = model.predict(X[-HELD:])
    shown = []
    for words, wanted, tags in list(zip(X[-HELD:], y[-HELD:], found))[:8]:
        shown += [(_raised(words, wanted), SOFT), (_raised(words, tags), ACCENT)]
    right = share(np.concatenate(y[-HELD:]), np.concatenate(found))
    return written(f"Capitals of unseen lines, put back by {entry.name} (grey: true): {right}", shown)


def answers(entry: catalog.Entry) -> Figure:
    """The first or the last word of a line, as the question wants it."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 2, size=len(lines()))
    X = [(("How does it begin?", "How does it end?")[end], line) for end, line in zip(ends, lines())]
    y = [line.split()[-int(end)] for end, line in zip(ends, lines())]
    y = [(0, len(a)) if not end else (len(line) - len(a), len(line)) for a, end, (_, line) in zip(y, ends, X)]
    model = learned(entry, X, y)
    found = model.predict(X[-HELD:])
    wanted = [line[slice(*span)] for (_, line), span in zip(X[-HELD:], y[-HELD:])]
    shown = [
        (f"{line[:46]:<47} {question:<19} {a}", ACCENT if a == b else WARM)
        for (question, line), a, b in list(zip(X[-HELD:], found, wanted))[:12]
    ]
    return written(f"{entry.name} on unseen lines: {share(wanted, found)} (orange: wrong)", shown)


def _raised(words: list[str], tags: Any) -> str:
    return " ".join(word.capitalize() if tag == "Capital" else word for word, tag in zip(words, tags))
