"""Data sets that scikit-learn and networkx bring, and a few that are drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary import errors
from corollary.data.graphs import from_networkx

Fields = dict[str, Any]


def table(name: str) -> Fields:
    """Return one of scikit-learn's tables."""
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    fields = {"X": bunch.data, "y": bunch.target, "feature_names": [str(n) for n in bunch.feature_names]}
    return fields | {"target_names": [str(n) for n in bunch.get("target_names", [])] or None}


def digits() -> Fields:
    """Return the 8 x 8 digits as images in [0, 1]."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    X = (bunch.images / 16).astype(np.float32)
    return {"X": X, "y": bunch.target, "target_names": [str(n) for n in bunch.target_names]}


def photos() -> Fields:
    """Return scikit-learn's two photographs."""
    from sklearn.datasets import load_sample_images

    try:
        pictures = load_sample_images().images
    except ImportError as error:
        raise errors.missing("load", "pillow", "images") from error
    return {"X": np.stack(pictures).transpose(0, 3, 1, 2), "extra": {"titles": ["china", "flower"]}}


def drawn(name: str, **options: Any) -> Fields:
    """Return 1000 points that scikit-learn draws with seed 0."""
    from sklearn import datasets

    X, y = getattr(datasets, f"make_{name}")(n_samples=1000, random_state=0, **options)
    return {"X": X, "y": y, "feature_names": [f"x{i}" for i in range(X.shape[1])]}


def karate() -> Fields:
    """Return Zachary's karate club with one indicator feature per member."""
    try:
        import networkx as nx
    except ImportError as error:
        raise errors.missing("load", "networkx", "graphs") from error
    G = nx.karate_club_graph()
    names = ["Mr. Hi", "Officer"]
    for node, attributes in G.nodes(data=True):
        attributes["x"] = np.eye(len(G), dtype=np.float32)[node]
        attributes["y"] = names.index(attributes["club"])
    graph = from_networkx(G)
    return {"X": graph, "y": graph.y, "target_names": names}
