"""Recommenders: the best items for each user."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.data.labels import as_names
from corollary.validation import check_count, finite

__all__ = ["Recommender"]


class Recommender:
    """Ranks items for users. Hook: ``_recommend(users, n, seen, items, exclude)``, all by number, as ``recommend`` says."""

    role = "recommender"

    def recommend(
        self, users: Any, n: int = 10, *, seen: Any = "fitted", items: Any = None, exclude: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``n`` best items for each user, and their scores, best first.

        Where fewer are left, the rest are -1 (or the empty name) with the score minus infinity.

        Parameters
        ----------
        users : array-like
            Row numbers of the fitted ratings, or names if the model was fitted to a table of them; users that the table
            did not have get what the average user would.
        n : int, default=10
            How many items each.
        seen : sparse matrix, None or "fitted", default="fitted"
            Ratings, with one row per entry of ``users``, whose items are left out: by default those that the model was
            fitted on. None leaves out none.
        items : array-like, optional
            The only items to choose from.
        exclude : array-like, optional
            Items to leave out.

        Returns
        -------
        items : ndarray of shape (n_users, n)
            Numbers, or names if there are any.
        scores : ndarray of shape (n_users, n)
        """
        check_is_fitted(self)
        check_count(self, "n", n)
        if isinstance(seen, str) and seen != "fitted":
            raise errors.value(type(self).__name__, "seen must be ratings, None or 'fitted'", repr(seen))
        users = self._placed(users)  # type: ignore[attr-defined]
        items, exclude = (
            None if some is None else self._placed(some, 1, False)  # type: ignore[attr-defined]
            for some in (items, exclude)
        )
        found, scores = self._recommend(users, n, seen, items, exclude)  # type: ignore[attr-defined]
        return as_names(found, getattr(self, "items_", None)), finite(self, scores, log=True)
