"""One page for each claim of the course: the claim, the setting, the number found, and one line that breaks it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from corollary import plot
from results.tables import page

FOUND = "**Found.** "  # what docs/pages.py looks for


def write(
    out: Path,
    name: str,
    title: str,
    *,
    claim: str,
    setting: str,
    found: str,
    change: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    figure: Figure,
) -> None:
    """Draw the figure and write the page; `make docs` lists what was found in docs/results/claims.md."""
    plot.save(figure, out / f"{name}.png")
    parts = (
        f"**The claim.** {claim}",
        f"**The setting.** {setting}",
        f"{FOUND}{found}",
        f"**To see it break**, change one line of `results/{name}.py`: {change}",
    )
    page(out / f"{name}.md", title, "\n\n".join(parts), headings, rows)


def panels(count: int = 1) -> tuple[Figure, Any]:
    """Return a figure with so many axes side by side."""
    figure = Figure(figsize=(0.6 + 4.2 * count, 3.3), layout="constrained")
    axes = figure.subplots(1, count)
    return figure, axes


def spread(values: Iterable[float], digits: int = 3) -> str:
    """Return the mean of some numbers, and their range."""
    values = [float(v) for v in values]
    mean = sum(values) / len(values)
    return f"{mean:.{digits}g} ({min(values):.{digits}g} to {max(values):.{digits}g})"
