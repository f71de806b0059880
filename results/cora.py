"""Cora, CiteSeer and PubMed: graph convolutions on few labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from corollary import NodeClassifier, data
from results.tables import at_least, page

TEXT = """Test accuracy of a two-layer graph convolutional network, mean of five seeds; CiteSeer and PubMed with the
public Planetoid split, Cora with 20 labels per class."""
FLOORS = {"citeseer": 0.67, "pubmed": 0.76, "cora": 0.77}


def run(out: Path) -> dict[str, Any]:
    """Fit and assert what the literature leads to expect."""
    found = {}
    for name, floor in FLOORS.items():
        graph = data.load(name).X
        mask = np.asarray(graph.test_mask, dtype=bool)
        scores = []
        for seed in range(5):
            predicted = NodeClassifier(random_state=seed).fit(graph).predict(graph)
            scores.append(float(np.mean(np.asarray(predicted)[mask] == np.asarray(graph.y)[mask])))
        found[name] = float(np.mean(scores))
        at_least(found[name], floor, f"accuracy on {name}")
    page(out / "cora.md", "Citation graphs", TEXT, ("data", "`NodeClassifier`"), found.items())
    return found
