r"""The bias baseline: an entry predicted from the means of its row and its column.

From the known entries :math:`\Omega` only, with damping :math:`\beta \ge 0`,

.. math::
    \mu = \frac{1}{|\Omega|} \sum_\Omega a_{ij}, \qquad
    c_j = \frac{\sum_{i \in \Omega^j} (a_{ij} - \mu)}{\beta + |\Omega^j|}, \qquad
    b_i = \frac{\sum_{j \in \Omega_i} (a_{ij} - \mu - c_j)}{\beta + |\Omega_i|}, \tag{1}

the prediction is :math:`\mu + b_i + c_j`; by rows alone it is the row's mean, by columns alone the column's.
A z-score is :math:`(a_{ij} - \mu_i) / \sigma_i` with the mean and the deviation of the row's (column's) known
entries (2). A row without entries has mean :math:`\mu` when it predicts.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Completer, Data, Estimator
from corollary.data.ratings import check_ratings
from corollary.engine.learner import Once
from corollary.shapes import Array, Count, Dtype, List, Number

__all__ = ["BiasBaseline"]


def damped_biases(R: Any, damping: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Return mean, row biases and column biases, eq. 1."""
    mean = float(R.data.mean(dtype=np.float64))
    columns = damped_mean(R.indices, R.data - mean, R.shape[1], damping)
    rows = _row_numbers(R)
    return mean, damped_mean(rows, R.data - mean - columns[R.indices], R.shape[0], damping), columns


def damped_mean(groups: np.ndarray, values: np.ndarray, n: int, damping: float) -> np.ndarray:
    """Return the sum over each group divided by its size plus the damping; 0 for an empty group."""
    sums = np.bincount(groups, values, minlength=n)
    return sums / np.maximum(np.bincount(groups, minlength=n) + damping, 1e-300)


def moments(groups: np.ndarray, values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of each group; 0 and 1 for an empty one, deviation 1 where it is 0 (eq. 2)."""
    mean = damped_mean(groups, values, n, 0.0)
    variance = damped_mean(groups, (values - mean[groups]) ** 2, n, 0.0)
    tiny = (1e-12 * np.abs(mean)) ** 2
    return mean, np.where(variance > tiny, np.sqrt(variance), 1.0)


def _row_numbers(R: Any) -> np.ndarray:
    return np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))


class BiasBaseline(Completer, Estimator):
    """Predict an entry as the overall mean plus a bias of its row and a bias of its column.

    What every other completer has to beat.

    Parameters
    ----------
    by : {"both", "rows", "columns"}, default="both"
        Whose means to use.
    damping : float, default=10.0
        Entries at the mean that each row and column is taken to have besides its own; raising it draws
        rows and columns with few entries to the mean. 0 gives plain means.

    Attributes
    ----------
    mean_ : float
        Mean of the known entries.
    row_bias_, column_bias_ : ndarray of shape (n_rows,), (n_columns,)
        What each row and column adds; zero for those without entries or not asked for.
    shape_ : tuple
        Rows and columns.
    history_ : list of dict
        One row: the root-mean-square error on the known entries.

    Notes
    -----
    Eq. (1) of the module's page; O(number of entries).

    References
    ----------
    .. [1] Y. Koren (2010). Factor in the neighbors: scalable and accurate collaborative filtering.
       ACM Transactions on Knowledge Discovery from Data 4(1), eq. 2-3.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import BiasBaseline
    >>> A = np.array([[1.0, 2.0], [3.0, np.nan]])
    >>> BiasBaseline("columns", damping=0).fit(A).predict([[1, 1]])
    array([2.])
    """

    input = "ratings"
    _parameter_constraints = {
        "by": [StrOptions({"both", "rows", "columns"})],
        "damping": [Interval(Real, 0, None, closed="left")],
    }
    _fitted = {
        "shape_": List([Count(1), Count(1)]),
        "dtype_": Dtype(),
        "mean_": Number(),
        "row_bias_": Array("shape_.0"),
        "column_bias_": Array("shape_.1"),
    }

    def __init__(self, by="both", *, damping=10.0):
        self.by = by
        self.damping = damping

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {}

    def _check(self, X: Any, reset: bool) -> Any:
        return check_ratings(X, "BiasBaseline", shape=None if reset else self.shape_)

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        return {"shape_": data.X.shape, "dtype_": str(data.X.dtype)}

    def _learner(self, data: Data) -> Once:
        R = data.X

        def solve() -> dict[str, Any]:
            mean, rows, columns = damped_biases(R, self.damping)
            if self.by == "rows":
                rows, columns = (
                    damped_mean(_row_numbers(R), R.data - mean, R.shape[0], self.damping),
                    0 * columns,
                )
            elif self.by == "columns":
                rows = 0 * rows
            return {"mean": mean, "rows": rows, "columns": columns}

        return Once(solve)

    def _adopt(self, learner: Once) -> None:
        self.mean_ = learner.results["mean"]
        self.row_bias_, self.column_bias_ = learner.results["rows"], learner.results["columns"]

    def _average(self) -> tuple[float, np.ndarray, np.ndarray]:
        return self.mean_, self.row_bias_, self.column_bias_

    def _predict(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return (self.mean_ + self.row_bias_[rows] + self.column_bias_[columns]).astype(self.dtype_)

    def z_scores(self, X: Any) -> Any:
        """Return the known entries of X as z-scores of their row (or of their column, if ``by="columns"``).

        A sparse matrix of X's pattern, eq. (2). Equal entries have score 0.
        """
        R = check_ratings(X, "BiasBaseline")
        if self.by == "both":
            must = 'z-scores are by="rows" or by="columns"'
            raise errors.value("BiasBaseline", must, 'by="both"', 'Make a BiasBaseline("rows").')
        groups, n = (_row_numbers(R), R.shape[0]) if self.by == "rows" else (R.indices, R.shape[1])
        mean, deviation = moments(groups, R.data, n)
        scores = (R.data - mean[groups]) / deviation[groups]
        return type(R)((scores.astype(R.dtype), R.indices, R.indptr), shape=R.shape)
