"""A page to open in a browser: what was learned and how much better than a guess, then pictures and cases.

Which sections there are follows from the model's roles (:mod:`corollary.roletable`), never from its name.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from corollary import __version__
from corollary.data.dataset import Dataset
from corollary.engine.interrupts import OutOfTime, time_box
from corollary.engine.loop import STOPS
from corollary.io import write_text
from corollary.reporting.by_role import sections
from corollary.reporting.lead import lead
from corollary.reporting.pages import figure_tag, page, section_html, table_html

__all__ = ["figure_tag", "page", "report", "sections", "steps_done"]


def steps_done(model: Any) -> str:
    """Return how many steps a fit made, and whether it was stopped within one."""
    steps = len(getattr(model, "history_", []))
    if steps and getattr(model, "n_iter_", steps) == steps - 1 and getattr(model, "stopped_", "") in STOPS:
        return f"{steps - 1} and part of the next" if steps > 1 else "part of 1"
    return str(steps)


def report(
    model: Any,
    dataset: Dataset,
    path: str | Path,
    *,
    train: Dataset | None = None,
    time_limit: float | None = None,
    **facts: Any,
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
    time_limit : float, optional
        Seconds for the pictures; those that are not ready by then are left out, and the page says so.
    **facts
        Further lines of the summary, such as ``accuracy=0.97``.
    """
    history = getattr(model, "history_", [])
    seconds = history[-1]["seconds"] if history else 0.0  # stopped before the first step
    rows = [("fitted to", repr(train)), ("measured on", f"{dataset!r}, held out")]
    rows = rows if train is not None else [("shown on", repr(dataset))]
    rows += [(key, f"{v:.6g}" if isinstance(v, float) else str(v)) for key, v in facts.items()]
    rows += [("steps", steps_done(model)), ("seconds", f"{seconds:.2f}")]
    body = [table_html((), rows)]
    try:
        with time_box(time_limit):
            if said := lead(model, dataset, train):
                body.insert(0, f"<p class=lead>{html.escape(said)}</p>")
            for section in sections(model, dataset):
                body.append(section_html(*section))
    except OutOfTime as error:
        body.append(f"<h2>Left out</h2><p>The rest of this page: {html.escape(str(error))}.</p>")
    body.append(f"<h2>Parameters</h2><pre>{html.escape(repr(model))}</pre>")
    body.append(f"<p class=soft>corollary {__version__}</p>")
    return write_text(path, page(type(model).__name__, "".join(body)))
