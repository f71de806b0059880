"""A picture for every system's page: each is fitted for a few seconds on data of its kind."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from corollary import Run, catalog, data, plot, reporting
from corollary.data.convert import as_input
from corollary.data.dataset import Dataset
from results.tables import at_least

SECONDS = 8.0  # for each fit
SHARE = 0.8  # of the estimators that must have a picture
# What each input kind is shown on; the catalog's role decides where there are two.
SOURCES = {
    "table": "digits",
    "image": "digits",
    "ratings": "ml-100k",
    "graph": "karate",
    "sequence": "japanese-vowels",
}


def example(entry: catalog.Entry) -> Dataset:
    """Return data that the system can be shown on."""
    if entry.input == "text":
        texts = data.load("shakespeare").X
        return Dataset([text[:4000] for text in texts[:40]], kind="text", name="shakespeare")
    if entry.input == "set":
        from corollary.testing import sample_data

        X, y = sample_data("set")
        return Dataset(X, y, kind="set", name="two clouds")
    if "regressor" in entry.roles:
        return data.load("diabetes")
    return data.load(SOURCES[entry.input])


def picture(entry: catalog.Entry) -> Any:
    """Return the most telling figure of a short fit, or None."""
    dataset = as_input(example(entry), entry.input, entry.name)
    if "memory" in entry.roles:
        dataset = replace(dataset, X=np.where(dataset.X[:10] > 0.5, 1.0, -1.0), y=dataset.y[:10])
    model = catalog.create(entry.id)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    with Run(time_limit=SECONDS, progress=False):
        model.fit(dataset.X, dataset.y) if dataset.y is not None else model.fit(dataset.X)
    figures = [figure for _, _, figure in reporting.sections(model, dataset) if figure is not None]
    return figures[-1] if figures else None


def run(out: Path) -> dict[str, Any]:
    """Draw them all; a system that cannot be shown is named."""
    folder = out.parent / "pictures"
    folder.mkdir(exist_ok=True)
    missing = {}
    entries = catalog.entries(kind="estimator")
    for entry in entries:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                figure = picture(entry)
            except (ValueError, TypeError, RuntimeError, AttributeError, KeyError) as error:
                missing[entry.id] = str(error)[:100]
                continue
        if figure is None:
            missing[entry.id] = "no picture fits its roles"
        else:
            plot.save(figure, folder / f"{entry.id}.png")
    at_least(1 - len(missing) / len(entries), SHARE, f"the share of systems with a picture ({missing})")
    return {"pictures": len(entries) - len(missing), "without": missing}
