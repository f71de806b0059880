"""A whole deep-learning course as one library.

Any system of it, from the perceptron to the transformer, is fitted, compared, sampled,
saved and resumed in the same way, on your own data. Public names are resolved
from the catalog when they are first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

import os
from typing import Any

__version__ = "0.1.0"

# numba and torch share OpenMP: starting numba's threads sets the number of torch's, and with it the order of
# sums. One variable therefore rules both.
if "OMP_NUM_THREADS" in os.environ:
    os.environ.setdefault("NUMBA_NUM_THREADS", os.environ["OMP_NUM_THREADS"])

_TOOLS = {
    "Bagging": "corollary.regularisation.bagging",
    "Consistency": "corollary.regularisation.semisupervised",
    "EarlyStopping": "corollary.engine.loop",
    "Net": "corollary.networks.net",
    "NetClassifier": "corollary.networks.net",
    "NetRegressor": "corollary.networks.net",
    "Run": "corollary.engine.run",
    "Training": "corollary.engine.training",
    "compare": "corollary.comparison",
    "linear_probe": "corollary.regularisation.tasks",
    "create": "corollary.catalog",
    "find": "corollary.catalog",
    "list": "corollary.catalog",
    "load": "corollary.io",
    "register": "corollary.catalog",
    "report": "corollary.reporting",
    "save": "corollary.io",
}
_MODULES = {
    "attack", "base", "callbacks", "catalog", "data", "diagnose", "errors", "formulas", "io", "linalg", "metrics", "nn", "optim",
    "plot", "roletable", "testing", "theory",
    "bayes", "completion", "connectionism", "embeddings", "generative", "graphs", "language", "linear", "mixtures",
    "networks", "regularisation", "sequences", "sets", "vision",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    # Modules of our own come before the catalog, which imports other people's packages, and those import us.
    if name in _MODULES or (not name.startswith("__") and find_spec(f"corollary.{name}")):
        return import_module(f"corollary.{name}")
    if name in _TOOLS:
        return getattr(import_module(_TOOLS[name]), name)
    # `from corollary import *`: tools and systems, but nothing that hides a word of Python's
    if name == "__all__":
        systems = import_module("corollary.catalog").list()
        return sorted({*_TOOLS, *systems} - {"list"})
    near = ""
    if not name.startswith("__"):
        catalog = import_module("corollary.catalog")
        if catalog.has(name):
            return catalog.resolve(name)
        near = f" Closest: {import_module('corollary.errors').closest(name, __dir__())}."
    raise AttributeError(f"corollary has no {name!r}.{near}")


def __dir__() -> list[str]:
    from importlib import import_module

    return sorted({*_TOOLS, *_MODULES, *import_module("corollary.catalog").list(), "__version__"})
