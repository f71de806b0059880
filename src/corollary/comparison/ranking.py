"""Ratings: errors of predicted ratings, and how good the items at the top of a list are."""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary.data.dataset import Dataset

__all__ = ["Popular", "ratings", "top_lists"]

USERS, K = 300, 10  # users whose lists are looked at, and the length of the lists


def ratings(model: Any, held: Dataset) -> dict[str, float]:
    """Return RMSE and mean absolute error of held-out ratings, and precision, recall and NDCG of the top ten.

    The lists rank all items that the user did not rate in the training part (``extra["seen"]``). An item is relevant
    if its held-out rating is at least the middle one of all (or is there at all, if all ratings are equal).
    """
    coo = held.X.tocoo()
    error = coo.data - _predictor(model)(np.column_stack([coo.row, coo.col]))
    found = {"RMSE": float(np.sqrt(np.mean(error**2))), "mean absolute error": float(np.mean(np.abs(error)))}
    return {**found, **top_lists(model, held.X.tocsr(), held.extra.get("seen"))}


def _predictor(model: Any) -> Any:
    """Return what predicts pairs of row and column numbers, of a model that has names too."""
    return getattr(model, "_by_number", model.predict)


def top_lists(model: Any, held: Any, seen: Any = None, k: int = K, most: int = USERS) -> dict[str, float]:
    r"""Return precision, recall and NDCG at ``k``, means over at most ``most`` users that have relevant held-out items.

    Of a user with m relevant items, the share of the list that is relevant; the share of the relevant ones that the list
    has; and the gain :math:`\sum_i r_i / \log_2(i + 1)` over places i, divided by that of the best list.
    """
    n_items, predict = held.shape[1], _predictor(model)
    middle = float(np.median(held.data))
    good = held.copy()
    good.data = (good.data >= middle).astype(np.float64)
    good.eliminate_zeros()
    users = np.flatnonzero(np.diff(good.indptr))
    users = np.random.default_rng(0).permutation(users)[:most]
    discount = 1 / np.log2(np.arange(2, k + 2))
    found: dict[str, list[float]] = {name: [] for name in (f"precision@{k}", f"recall@{k}", f"NDCG@{k}")}
    for user in users:
        scores = np.array(
            predict(np.column_stack([np.full(n_items, user), np.arange(n_items)])), dtype=np.float64
        )
        if seen is not None:
            scores[seen.indices[seen.indptr[user] : seen.indptr[user + 1]]] = -np.inf
        order = np.argsort(-scores, kind="stable")[:k]
        relevant = np.isin(order, good.indices[good.indptr[user] : good.indptr[user + 1]])
        count = int(good.indptr[user + 1] - good.indptr[user])
        gain = (relevant * discount[: len(order)]).sum() / discount[: min(count, k)].sum()
        for values, value in zip(found.values(), (relevant.mean(), relevant.sum() / count, gain)):
            values.append(float(value))
    return {name: float(np.mean(values)) for name, values in found.items()}


class Popular:
    """Predict the mean of all ratings, and rank items by how many users rated them."""

    def fit(self, X: Any, y: Any = None) -> Popular:
        """Take the mean and the counts."""
        counts = np.diff(X.tocsc().indptr)
        # The counts only break ties: errors are those of the mean.
        self.items_ = float(X.data.mean()) + 1e-6 * counts / counts.max()
        return self

    def predict(self, pairs: Any) -> np.ndarray:
        """Return the value of each (user, item)."""
        return self.items_[np.asarray(pairs)[:, 1]]
