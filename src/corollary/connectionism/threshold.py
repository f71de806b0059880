r"""The threshold unit (neuron) of McCulloch and Pitts.

On :math:`x \in \{0, 1\}^n`, with signs :math:`\sigma \in \{-1, 1\}^n` and an integer threshold :math:`\theta`,

.. math::
    f(x) = 1\big[\textstyle\sum_i \sigma_i x_i \ge \theta\big]
         = \bigvee_{I:\, \sum_{i \in I} \sigma_i \ge \theta}
           \Big(\bigwedge_{i \in I} x_i \wedge \bigwedge_{i \notin I} \bar x_i\Big), \tag{1}

a disjunction of full terms. Where :math:`f` is not constant, every input matters alike, and :math:`f` rises with
:math:`x_i` exactly if :math:`\sigma_i = 1`: so the signs are those of the covariances of :math:`f` with the inputs
(2), the threshold is the smallest sum at which :math:`f = 1`, and whether the unit exists is checked by trying it.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.base import Classifier, Data, Estimator
from corollary.engine.learner import Once
from corollary.shapes import Array, Count, Number

__all__ = ["BaseBinary", "ThresholdUnit", "truth_table"]

MOST_INPUTS = 20  # a truth table has 2^n rows


def truth_table(n: int) -> np.ndarray:
    """Return all inputs of n bits, (2^n, n), counting upwards.

    >>> truth_table(2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if n > MOST_INPUTS:
        raise errors.value("ThresholdUnit", f"a truth table has at most {MOST_INPUTS} inputs", n)
    return (np.arange(2**n)[:, None] >> np.arange(n)[::-1]) & 1


def fit_unit(x: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Return signs, threshold and the number of errors of the unit that eq. 2 gives; (m, n), (m,) in {0, 1}."""
    centred = f - f.mean()
    signs = np.where(centred @ x >= -1e-12, 1, -1)
    sums = x @ signs
    levels = np.arange(sums.min(), sums.max() + 2)
    # errors at threshold t: ones below it and zeros from it on
    ones = np.bincount(sums[f == 1] - levels[0], minlength=len(levels))
    zeros = np.bincount(sums[f == 0] - levels[0], minlength=len(levels))
    wrong = np.cumsum(ones) - ones + zeros.sum() - (np.cumsum(zeros) - zeros)
    best = int(wrong.argmin())
    return signs, int(levels[best]), int(wrong[best])


class BaseBinary(Classifier, Estimator):
    """A classifier of two classes whose answer is one bit."""

    def _check_y(self, X: Any, y: Any) -> Any:
        codes = super()._check_y(X, y)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"{type(self).__name__}: y must have two classes; got {len(self.classes_)}."
            )
        return codes

    def _fires(self, X: np.ndarray) -> np.ndarray:
        """Return the bit of each row."""
        raise NotImplementedError

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        fires = self._fires(X)
        return np.column_stack([~fires, fires]).astype(X.dtype)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that two classes are all there is, and that one bit per input is little."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags


class ThresholdUnit(BaseBinary):
    """Classify binary inputs with a McCulloch-Pitts neuron.

    Fitted on a whole truth table it is exact where such a unit exists, and otherwise the best
    threshold for the signs of the covariances.

    Parameters
    ----------
    cut : float, default=0.5
        An entry of X counts as 1 above it.

    Attributes
    ----------
    signs_ : ndarray of shape (n_features_in_,)
        +1 for inputs that excite, -1 for those that inhibit.
    threshold_ : int
        The sum from which on the unit fires.
    n_errors_ : int
        Training rows that it gets wrong.
    classes_ : ndarray of shape (2,)
        The labels of 0 and of 1: of a unit that does not fire, and of one that does.
    history_ : list of dict
        One row.

    Notes
    -----
    Eq. (1) and (2) of the module's page; O(n) per row.

    References
    ----------
    .. [1] W. McCulloch, W. Pitts (1943). A logical calculus of the ideas immanent in nervous activity.
       Bulletin of Mathematical Biophysics 5, 115-133.

    Examples
    --------
    >>> from corollary import ThresholdUnit
    >>> unit = ThresholdUnit().fit([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 0, 1, 0])
    >>> unit.signs_.tolist(), unit.threshold_, unit.to_dnf().tolist()
    ([1, -1], 1, [[1, 0]])
    """

    _parameter_constraints = {"cut": [Interval(Real, None, None, closed="neither")]}
    _fitted = {
        "signs_": Array("n_features_in_", kind="iu", low=-1, high=1),
        "threshold_": Number(),
        "n_errors_": Count(),
    }

    def __init__(self, cut=0.5):
        self.cut = cut

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_dnf(cls, terms: Any) -> ThresholdUnit:
        """Return the unit that computes a disjunctive normal form, or say that there is none.

        Parameters
        ----------
        terms : array-like of shape (n_terms, n_inputs)
            Conjunctions: 1 for an input, 0 for its negation, -1 where the input is absent.
        """
        must = "terms must be a matrix of 1 (input), 0 (negation) and -1 (absent)"
        try:
            terms = np.asarray(terms)
        except ValueError:
            raise errors.value("ThresholdUnit", must, "rows of different lengths") from None
        if terms.ndim != 2:
            raise errors.value("ThresholdUnit", must, f"shape {terms.shape}")
        if not np.isin(terms, (-1, 0, 1)).all():
            raise errors.value("ThresholdUnit", must, terms[~np.isin(terms, (-1, 0, 1))][0])
        x = truth_table(terms.shape[1])
        f = np.zeros(len(x), int)
        for term in terms:
            f |= ((x == term) | (term == -1)).all(axis=1)
        unit = cls()
        unit.classes_, unit.n_features_in_, unit.history_ = np.array([0, 1]), terms.shape[1], []
        unit.signs_, unit.threshold_, unit.n_errors_ = fit_unit(x, f)
        if unit.n_errors_:
            must = "a unit with weights of +1 and -1 must compute the form"
            got = f"{unit.n_errors_} of {len(x)} inputs wrong at best"
            raise errors.value("ThresholdUnit", must, got, "Use several units.")
        return unit

    def to_dnf(self) -> np.ndarray:
        """Return the full terms of eq. (1) as rows of zeros and ones; none for a unit that never fires."""
        check_is_fitted(self)
        x = truth_table(len(self.signs_))
        return x[x @ self.signs_ >= self.threshold_]

    def _learner(self, data: Data) -> Once:
        x = (data.X > self.cut).astype(int)

        def solve() -> dict[str, Any]:
            signs, threshold, wrong = fit_unit(x, data.y)
            return {"signs": signs, "threshold": threshold, "errors": wrong}

        return Once(solve)

    def _adopt(self, learner: Once) -> None:
        found = learner.results
        self.signs_, self.threshold_, self.n_errors_ = found["signs"], found["threshold"], found["errors"]

    def _fires(self, X: np.ndarray) -> np.ndarray:
        return (X > self.cut).astype(int) @ self.signs_ >= self.threshold_
