r"""Recommendation, similarity and explanation from factors of users and items.

With the design :math:`\tilde y_i` and the equations :math:`A_u \tilde x_u = t_u = \sum_{j \in \Omega_u} z_{uj} \tilde y_j` of
:mod:`corollary.completion.als` (3), the score of an item is a sum over what the user has rated,

.. math:: \tilde y_i^\top \tilde x_u = \sum_{j \in \Omega_u} z_{uj}\, \tilde y_i^\top A_u^{-1} \tilde y_j, \tag{1}

each term being what rating :math:`j` contributes to recommending :math:`i`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import lstsq
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.base import Recommender, check_count
from corollary.data.labels import as_names
from corollary.data.ratings import check_ratings
from corollary.validation import finite

__all__ = ["Explanation", "FactorRecommender"]


class Explanation(NamedTuple):
    """Why an item is recommended: ``score = baseline + contributions.sum()`` if all are asked for."""

    score: float
    baseline: float  # the mean rating and the item's bias, which are everybody's
    items: np.ndarray  # rated items, by number or name, the one that speaks most for it first
    contributions: np.ndarray  # what each adds, eq. 1


class FactorRecommender(Recommender):
    """Ranks, compares and explains by ``user_factors_`` and ``item_factors_``; ``ratings_`` are those it was fitted on."""

    def _recommend(
        self, users: np.ndarray, n: int, seen: Any, items: Any, exclude: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        self._check_most(n, 1)
        known = users >= 0
        told = not isinstance(seen, str)
        if isinstance(seen, str):
            seen = self.ratings_[users]
        elif seen is not None:
            seen = check_ratings(seen, type(self).__name__, shape=(len(users), self.shape_[1]))
        closed = np.zeros(self.shape_[1], dtype=bool)
        if items is not None:
            closed[:] = True
            closed[items] = False
        if exclude is not None:
            closed[exclude] = True
        mean, _, by_item = self._average()

        def score(rows: slice) -> np.ndarray:
            some = users[rows]
            scores = self.user_factors_[some] @ self.item_factors_.T + self.item_bias_
            scores += (self.user_bias_[some] + self.mean_).astype(scores.dtype)[:, None]
            scores[~known[rows]] = mean + by_item
            finite(self, scores)  # NaN would rank below what is left out
            scores[:, closed] = -np.inf
            if seen is not None:
                part = seen[rows].tocoo()
                own = known[rows][part.row] | told  # the row of a stranger is another user's
                scores[part.row[own], part.col[own]] = -np.inf
            return scores

        return _best(score, len(users), n)

    def similar(self, items: Any, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``n`` items most like each of ``items`` (itself first), and their cosines."""
        return self._similar(items, n, 1)

    def similar_users(self, users: Any, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``n`` users most like each of ``users`` (itself first), and their cosines."""
        return self._similar(users, n, 0)

    def _similar(self, which: Any, n: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        check_count(self, "n", n)
        self._check_most(n, axis)
        which = self._placed(which, axis, False)
        factors = (self.user_factors_, self.item_factors_)[axis]
        norms = np.linalg.norm(factors, axis=1, keepdims=True)
        units = factors / np.where(norms > 0, norms, 1)
        found, cosines = _best(lambda rows: units[which[rows]] @ units.T, len(which), n)
        return as_names(found, self._names()[axis]), cosines

    def explain(self, user: Any, item: Any, n: int = 10, *, ratings: Any = None) -> Explanation:
        """Return what a user's own ratings contribute to the score of an item, eq. 1.

        Parameters
        ----------
        user, item : int or str
            Row and column of the fitted ratings, or their names.
        n : int, default=10
            How many ratings at most, those that speak most for the item first.
        ratings : sparse matrix of shape (1, n_items), optional
            The user's ratings; by default those that were fitted.

        Returns
        -------
        Explanation
            Its score is that of a user whose factors solve the equations exactly; ``fit`` nearly does.

        Notes
        -----
        Costs O(m k^2 + k^3) for m ratings and k components.
        """
        check_is_fitted(self)
        check_count(self, "n", n)
        name = type(self).__name__
        (user,), (item,) = self._placed([user], 0, False), self._placed([item], 1, False)
        own = (
            self.ratings_[[user]]
            if ratings is None
            else check_ratings(ratings, name, shape=(1, self.shape_[1]))
        )
        A, rows, z, baseline = self._equations(own, item)
        contributions = z * (rows @ lstsq(A, self._design()[item].astype(np.float64))[0])
        order = np.argsort(-contributions, kind="stable")
        total = float(baseline + contributions.sum())
        rated = as_names(own.indices[order[:n]], self._names()[1])
        return Explanation(total, float(baseline), rated, contributions[order[:n]])

    def _check_most(self, n: int, axis: int) -> None:
        if n > self.shape_[axis]:
            what = ("users", "items")[axis]
            raise errors.value(
                type(self).__name__, f"n must be at most the number of {what} ({self.shape_[axis]})", n
            )


def stacked(ratings: Any, new: Any, axis: int) -> Any:
    """Return ratings with those of new users below, or of new items beside them."""
    join = sparse.vstack if axis == 0 else sparse.hstack
    return sparse.csr_matrix(join([ratings, new.astype(ratings.dtype)], format="csr"))


def _best(score: Any, count: int, n: int, chunk: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and values of the n largest scores in each row, best first; -1 where all is left out."""
    import torch

    found = []
    for begin in range(0, count, chunk):
        best = torch.topk(torch.from_numpy(score(slice(begin, begin + chunk))), n)
        values, columns = best.values.numpy(), best.indices.numpy()
        found.append((np.where(np.isneginf(values), -1, columns), values))
    return np.vstack([c for c, _ in found]), np.vstack([v for _, v in found])
