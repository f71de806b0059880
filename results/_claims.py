"""One page for each claim of the course: the claim, the setting, the number found, and one line that breaks it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from corollary import plot
from results.tables import page

FOUND = "**Found.** "
# Claims whose pages were there before: they are listed with the others.
ELSEWHERE = {
    "certificates": "a PAC-Bayes bound below 1 on real digits, with the network that attains it",
    "infinite_width": "the tangent kernel drifts as the root of the width",
    "rings": "mode collapse on a ring and a grid, by loss and by rule",
    "robustness": "what adversarial training gains and costs",
}


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
    """Draw the figure, write the page, and bring the list of claims up to date."""
    plot.save(figure, out / f"{name}.png")
    parts = (
        f"**The claim.** {claim}",
        f"**The setting.** {setting}",
        f"{FOUND}{found}",
        f"**To see it break**, change one line of `results/{name}.py`: {change}",
    )
    page(out / f"{name}.md", title, "\n\n".join(parts), headings, rows)
    index(out)


def index(out: Path) -> None:
    """List every claim with what was found."""
    lines = [
        "# Claims of the course",
        "",
        "Each page has the claim, the setting, the number found, its seeds, and one line to change to see the claim break.",
        "`python -m results claim_NAME` runs one again.",
        "",
    ]
    for path in sorted(out.glob("claim_*.md")):
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        said = re.search(re.escape(FOUND) + r"(.+?)\n\n", text, re.S)
        lines.append(f"- [{title}]({path.name}): {' '.join(said[1].split()) if said else ''}")
    for name, what in ELSEWHERE.items():
        path = out / f"{name}.md"
        if path.exists():
            title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            lines.append(f"- [{title}]({path.name}): {what}.")
    (out / "claims.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


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
