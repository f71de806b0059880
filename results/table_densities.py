"""California housing and adult: every density model of the library in bits per dimension, against independent columns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from corollary import compare, data
from results.tables import at_most, page, processor_time

SECONDS = float(os.environ.get("DENSITIES_SECONDS", "10"))
ROWS, SPLITS = 4000, 3
SETS = ("california-housing", "adult")
TEXT = f"""{ROWS:,} rows drawn from each table, {SPLITS} splits with a fifth held out, {SECONDS:g} s of one processor for
each fit. Bits per dimension of held-out rows, lower is better: columns on a grid count as discrete, others in units of their
own resolution; all models see the columns in normal shape, by histograms of the training part, which is undone in the density.
The baselines know every column by itself. ± is half of the 95 % interval of the mean over the splits."""


def run(out: Path) -> dict[str, Any]:
    """Rank them all; the best must beat independent columns, and so must the flow."""
    rows, found = [], {}
    for name in SETS:
        table = data.load(name)
        chosen = np.random.default_rng(0).permutation(len(table.X))[:ROWS]
        X = table.X.iloc[chosen] if hasattr(table.X, "iloc") else table.X[chosen]
        with processor_time():
            board = compare(X, task="density", seed=0, splits=SPLITS, time_limit=SECONDS, progress=False)
        for place, row in enumerate(board.rows, 1):
            score = row["error"] if row["score"] is None else f"{row['score']:.4g} ± {row['width']:.2g}"
            rows.append((name, place, f"`{row['name']}`", row["group"], score, row["seconds"]))
        found[name] = {row["system"]: row["score"] for row in board.ranked}
    headings = ("data", "", "model", "from", "bits per dimension", "seconds")
    page(out / "table_densities.md", "Densities of tables", TEXT, headings, rows)
    for name, scores in found.items():
        at_most(min(scores.values()), scores["histograms"] - 0.05, f"bits of the best density on {name}")
        at_most(scores["flows"], scores["histograms"], f"bits of the flow against single columns on {name}")
    return found
