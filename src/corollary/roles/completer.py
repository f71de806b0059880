"""Matrix completion: the missing entries of a matrix of ratings, by number or by the names of users and items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from corollary.data.dataset import Dataset
from corollary.data.labels import names_to_keep, places, places_of_pairs
from corollary.data.ratings import check_ratings
from corollary.shapes import Labels, Maybe
from corollary.validation import finite

__all__ = ["Completer"]


class Completer:
    """Fills in missing entries. Hooks: ``_predict(users, items)`` of shape (n,); ``_average()``.

    ``_average()`` returns the overall mean and the biases of rows and columns, which are the prediction for users and items
    that the fit did not see. A model fitted to a table of (user, item, value) takes and returns the names of that table.
    """

    role = "completer"
    _fitted: ClassVar[Mapping[str, Any]] = {
        "users_": Maybe(Labels("shape_.0")),
        "items_": Maybe(Labels("shape_.1")),
    }
    shape_: tuple[int, int]

    def predict(self, pairs: Any) -> np.ndarray:
        """Return the value of each (row, column) pair; ``pairs`` has shape (n, 2).

        Rows and columns are numbers, or, where the model was fitted to a table of (user, item, value), the names that it
        has. Users and items that the table did not have are answered as the average one, with a warning.
        """
        check_is_fitted(self)
        owner, what = (
            type(self).__name__,
            ("user", "item") if self._is_named() else ("row", "column"),
        )
        rows, columns = places_of_pairs(pairs, self._names(), self.shape_, what, owner, strangers=True)
        return self._values(rows, columns)

    def _values(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the values of entries by row and column number; -1 stands for an unknown user or item."""
        known = (rows >= 0) & (columns >= 0)
        if known.all():
            return np.asarray(finite(self, self._predict(rows, columns)))  # type: ignore[attr-defined]
        mean, by_row, by_column = self._average()  # type: ignore[attr-defined]
        found = (
            mean + np.where(rows >= 0, by_row[rows], 0.0) + np.where(columns >= 0, by_column[columns], 0.0)
        )
        if known.any():
            found[known] = self._predict(rows[known], columns[known])  # type: ignore[attr-defined]
        return np.asarray(finite(self, found))

    def _by_number(self, pairs: Any) -> np.ndarray:
        """Return the value of each pair of row and column numbers, whatever names there are."""
        return self._values(*np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T)

    def complete(self, X: Any) -> np.ndarray:
        """Return X, of the fitted shape, as a full array: known entries kept, the others predicted."""
        known = self._query(X)  # type: ignore[attr-defined]
        n, m = known.shape
        full = np.empty((n, m), known.dtype)
        every = np.arange(m)
        for i in range(n):
            full[i] = self._predict(np.full(m, i), every)  # type: ignore[attr-defined]
        full[np.repeat(np.arange(n), np.diff(known.indptr)), known.indices] = known.data
        return full

    def score(self, X: Any, y: Any = None) -> float:
        """Return the negative root-mean-square error on the stored entries of a ratings matrix, or on a table of them."""
        check_is_fitted(self)
        table = self._table(X)
        if table is None:
            held = self._query(X).tocoo()  # type: ignore[attr-defined]
            rows, columns, values = held.row, held.col, held.data
        else:
            R, users, items = table
            held = R.tocoo()
            rows, columns = self._placed(users)[held.row], self._placed(items, 1)[held.col]
            values = held.data
        errors_ = values - self._values(rows, columns)
        return -float(np.sqrt(np.mean(errors_.astype(np.float64) ** 2)))

    # --- names -------------------------------------------------------------------------------------------

    def _names(self) -> tuple[Any, Any]:
        return getattr(self, "users_", None), getattr(self, "items_", None)

    def _is_named(self) -> bool:
        return any(names is not None for names in self._names())

    def _placed(self, values: Any, axis: int = 0, strangers: bool = True) -> np.ndarray:
        """Return row (or column) numbers of users (or items), which are given by name where the fit had names."""
        names, what = self._names()[axis], ("user", "item")[axis]
        return places(values, names, self.shape_[axis], what, type(self).__name__, strangers=strangers)

    def _name(self, users: Any, items: Any) -> None:
        """Keep the names of users and items, unless they are just 0, 1, 2, ..."""
        for key, labels in (("users_", users), ("items_", items)):
            self.__dict__.pop(key, None)
            if (names := names_to_keep(labels)) is not None:
                setattr(self, key, names)

    def _table(self, X: Any) -> tuple[Any, Any, Any] | None:
        """Return a table of (user, item, value), or a data set with names, as a matrix with its names; None for others."""
        if not self._is_named():
            return None
        return _triples(X, type(self).__name__)

    def _read(self, X: Any, y: Any) -> tuple[Any, Any]:
        found = _triples(X, type(self).__name__)
        self._name(*(found[1:] if found else (None, None)))
        return super()._read(X if found is None else found[0], y)  # type: ignore[misc, no-any-return]

    def _read_again(self, X: Any) -> Any:
        """Return new ratings in the rows and columns of the fit, found by their names."""
        table = self._table(X)
        if table is None:
            return super()._read_again(X)  # type: ignore[misc]
        from scipy.sparse import csr_matrix

        R = table[0].tocoo()
        rows, columns = (
            self._placed(labels, axis, False)[places_]
            for axis, (labels, places_) in enumerate(zip(table[1:], (R.row, R.col)))
        )
        return csr_matrix((R.data, (rows, columns)), shape=self.shape_)


def _triples(X: Any, owner: str) -> tuple[Any, Any, Any] | None:
    """Return the matrix and the names of a frame of triples, or of a data set of ratings that has names."""
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        return check_ratings(X, owner, labels=True)  # type: ignore[no-any-return]
    if isinstance(X, Dataset) and X.kind == "ratings" and {"users", "items"} <= X.extra.keys():
        return check_ratings(X.X, owner), X.extra["users"], X.extra["items"]
    return None
