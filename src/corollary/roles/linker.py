"""Link prediction: the probability of an edge between two nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from corollary.data.labels import places_of_pairs
from corollary.validation import finite

__all__ = ["Linker"]


class Linker:
    """Predicts the probability of edges between nodes. Hook: ``_probability(rows, columns)`` of shape (n,), by number."""

    role = "link-predictor"
    shape_: tuple[int, int]

    def link_probability(self, pairs: Any) -> np.ndarray:
        """Return the probability of an edge for pairs (m, 2) of nodes of the fitted graph.

        Nodes are the names that the graph has (``nodes_``), or numbers from 0 in the order of the rows of ``x``.
        """
        check_is_fitted(self)
        names = getattr(self, "nodes_", None)
        ends = places_of_pairs(pairs, (names, names), self.shape_, ("node", "node"), type(self).__name__)
        return np.asarray(finite(self, self._probability(*ends)))  # type: ignore[attr-defined]
