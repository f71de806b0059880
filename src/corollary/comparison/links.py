r"""Edges held out of a graph: how far a model tells them from pairs that are not joined.

Held-out edges are positives, random pairs that no edge joins, as many and at least a thousand, negatives. Measured are the
areas under the ROC curve and under the curve of precision against recall, and, as in the Open Graph Benchmark,

.. math:: \mathrm{hits}@k = \text{share of held-out edges that score above the } k\text{-th best negative}. \tag{1}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from corollary.comparison.rivals import Rival
from corollary.data.dataset import Dataset

__all__ = ["CommonNeighbours", "edges_held_out", "linked", "of_links"]

LEAST = 1000  # negatives
HITS = (10, 50)


def linked(model: Any, held: Dataset) -> dict[str, float]:
    """Return ROC AUC, average precision and hits of the edges of a held-out graph."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    from corollary.graphs.links import absent_pairs

    n, joined = held.X.num_nodes, held.X.edge_index
    seen = held.extra.get("seen", getattr(model, "edge_index_", joined[:, :0]))
    once = np.unique(np.sort(joined, axis=0), axis=1)
    known = np.concatenate([seen, joined, joined[::-1]], axis=1)
    pairs = absent_pairs(known, n, max(LEAST, once.shape[1]), np.random.default_rng(0)).T
    good, bad = (np.asarray(model._probability(*ends), dtype=np.float64) for ends in (once, pairs))
    truth, scores = np.repeat([1, 0], [len(good), len(bad)]), np.concatenate([good, bad])
    order = np.sort(bad)[::-1]
    hits = {f"hits@{k}": float(np.mean(good > order[min(k, len(order)) - 1])) for k in HITS}
    found = {"ROC AUC": roc_auc_score, "average precision": average_precision_score}
    return {**{name: float(measure(truth, scores)) for name, measure in found.items()}, **hits}


def edges_held_out(dataset: Dataset, n: int, test: float, seed: int) -> Iterator[tuple[Dataset, Dataset]]:
    """Yield a graph without some of its edges, and one with only those, which remembers the others."""
    from corollary.graphs.links import split_links

    for i in range(n):
        kept, held = split_links(dataset.X, test, seed + i)
        yield (
            replace(dataset, X=kept),
            replace(dataset, X=held, extra={**dataset.extra, "seen": kept.edge_index}),
        )


class CommonNeighbours:
    """Score a pair by the neighbours that both have, rare ones more (Adamic and Adar), or by how many each has.

    Parameters
    ----------
    by : {"neighbours", "degrees"}
        Which.
    """

    def __init__(self, by: str = "neighbours") -> None:
        self.by = by

    def fit(self, graph: Any, y: Any = None) -> CommonNeighbours:
        """Keep the edges, without directions."""
        n, (a, b) = graph.num_nodes, graph.edge_index
        ones = np.ones(2 * len(a))
        self.edge_index_ = graph.edge_index
        self.joined_ = csr_matrix((ones, (np.r_[a, b], np.r_[b, a])), shape=(n, n))
        self.joined_.data[:] = 1.0
        self.degrees_ = np.diff(self.joined_.indptr)
        return self

    def _probability(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        if self.by == "degrees":
            return self.degrees_[rows] * self.degrees_[columns].astype(np.float64)
        weight = 1 / np.log(np.maximum(self.degrees_, 2))
        return np.asarray(self.joined_[rows].multiply(self.joined_[columns]) @ weight).ravel()


def of_links(dataset: Dataset) -> list[Rival]:
    """Return common neighbours, and degrees."""
    return [
        Rival(
            "neighbours",
            "common neighbours (Adamic-Adar)",
            "baseline",
            "graph",
            lambda d, s: CommonNeighbours(),
        ),
        Rival(
            "degrees", "many edges find many", "baseline", "graph", lambda d, s: CommonNeighbours("degrees")
        ),
    ]
