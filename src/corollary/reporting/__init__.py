"""A page to open in a browser: what was learned and how much better than a guess, then pictures and cases.

Which sections there are follows from the model's roles (:mod:`corollary.roletable`), never from its name.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from corollary import __version__
from corollary.data.dataset import Dataset
from corollary.reporting.by_role import sections
from corollary.reporting.lead import lead
from corollary.reporting.pages import figure_tag, page, section_html, table_html

__all__ = ["figure_tag", "page", "report", "sections"]


def report(
    model: Any, dataset: Dataset, path: str | Path, *, train: Dataset | None = None, **facts: Any
) -> Path:
    """Write an HTML page about a fitted model and data it can be shown on.

    Parameters
    ----------
    model : fitted estimator
        What the page is about.
    dataset : Dataset
        Data of the model's input kind, with ``y`` if there is one; best such that the model has not seen.
    path : path
        The file to write.
    train : Dataset, optional
        What the model was fitted to: baselines are fitted to it too, and the page says that ``dataset`` was held out.
    **facts
        Further lines of the summary, such as ``accuracy=0.97``.
    """
    history = getattr(model, "history_", [])
    seconds = history[-1]["seconds"] if history else 0.0  # stopped before the first step
    rows = [("fitted to", repr(train)), ("measured on", f"{dataset!r}, held out")]
    rows = rows if train is not None else [("shown on", repr(dataset))]
    rows += [(key, f"{v:.6g}" if isinstance(v, float) else str(v)) for key, v in facts.items()]
    rows += [("steps", str(len(history))), ("seconds", f"{seconds:.2f}")]
    said = lead(model, dataset, train)
    body = [f"<p class=lead>{html.escape(said)}</p>" if said else "", table_html((), rows)]
    body += [section_html(*section) for section in sections(model, dataset)]
    body.append(f"<h2>Parameters</h2><pre>{html.escape(repr(model))}</pre>")
    body.append(f"<p class=soft>corollary {__version__}</p>")
    Path(path).write_text(page(type(model).__name__, "".join(body)), encoding="utf-8")
    return Path(path)
