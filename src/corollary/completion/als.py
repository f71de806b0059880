r"""Alternating least squares for ratings.

User :math:`u` and item :math:`i` have factors :math:`x_u, y_i \in \mathbb R^k`. For explicit feedback, with
:math:`\Omega` the known entries, the mean :math:`\mu` and biases :math:`b_u, c_i`,

.. math::
    \ell = \sum_{(u,i) \in \Omega} (r_{ui} - \mu - b_u - c_i - x_u^\top y_i)^2
      + \sum_u (\lambda \lVert x_u \rVert^2 + \beta b_u^2) + \sum_i (\lambda \lVert y_i \rVert^2 + \beta c_i^2), \tag{1}

and for implicit feedback, where :math:`r_{ui} \ge 0` counts and an entry that is not stored is a weak zero,
with confidence :math:`w_{ui} = 1 + \alpha r_{ui}` and preference :math:`p_{ui} = 1` on
:math:`\Omega`, else 1 and 0,

.. math::
    \ell = \sum_{u,i} w_{ui} (p_{ui} - x_u^\top y_i)^2
      + \lambda \sum_u \lVert x_u \rVert^2 + \lambda \sum_i \lVert y_i \rVert^2. \tag{2}

With one side fixed both are ridge regressions, one per row: :math:`A_u x_u = t_u` with

.. math::
    A_u = G + \sum_{i \in \Omega_u} v_{ui}\, y_i y_i^\top, \qquad
    t_u = \sum_{i \in \Omega_u} z_{ui}\, y_i, \tag{3}

where explicitly :math:`G = \lambda I`, :math:`v = 1`, :math:`z = r - \mu - c_i`, a bias being one more
coordinate with :math:`y = 1` and the ridge :math:`\beta`; and implicitly :math:`G = \sum_i y_i y_i^\top + \lambda I`,
:math:`v = \alpha r`, :math:`z = 1 + \alpha r`. A few steps of conjugate gradients from the last solution
nearly solve (3), at :math:`O(k)` per rating and step instead of :math:`O(k^2)`. With the residual
:math:`\rho = t - A x` the row's share of the loss is :math:`\sum v z'^2 - x^\top (t + \rho)`, where the
constant is the loss at :math:`x = 0`: the objective costs nothing more.

How good implicit feedback is predicted has no squared error, for no rating was to be predicted. What counts is that
items a user turns to stand high on the user's list. With :math:`\operatorname{rank}_{ui}` from 0 (first of all items) to 1
(last), the expected percentile rank

.. math:: \overline{\operatorname{rank}} = \frac{\sum_{ui} r_{ui} \operatorname{rank}_{ui}}{\sum_{ui} r_{ui}} \tag{4}

over the counts :math:`r_{ui}` of a test is 0 at best, and one half for a list in any order.

Which :math:`\lambda` is best depends on the unit of the ratings (a rating doubled doubles it) and on how much noise they hold.
Unless it is given, explicit feedback tries some multiples of the ratings' standard deviation, from the smallest on and each from
where the last one ended, and takes the one that best predicts a tenth of the ratings, which is kept aside for that.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.base import Completer, Data, Estimator
from corollary.completion.als_kernels import percentile_ranks, solve
from corollary.completion.recommending import FactorRecommender, stacked
from corollary.data.ratings import check_ratings
from corollary.engine.learner import Iteration, Metrics
from corollary.shapes import Array, Count, List, Number, Sparse

__all__ = ["ALS"]

USUAL = 0.1  # the regularisation where none is given and nothing can be learned about it
SHARES = (0.06, 0.09, 0.13, 0.2, 0.3, 0.45)  # of the ratings' standard deviation, tried for it
FEW, MANY = 1000, 200_000  # ratings that are too few to keep some aside, and about the most that are tried on
TRIAL_SWEEPS = 5


class _Alternation(Iteration):
    """One sweep: all users, then all items."""

    shares = True
    saved = ("U", "V", "loss")

    def __init__(self, R: Any, model: ALS, U: np.ndarray, V: np.ndarray) -> None:
        super().__init__(model.max_iter)
        self.users, self.items = R, R.T.tocsr()
        self.U, self.V, self.tol = U, V, model.tol
        self.ridges = model._ridge(self.users), model._ridge(self.items)
        self.options = {"alpha": model._alpha(), "damping": model._bias_ridge(), "steps": model.cg_steps}
        self.loss = np.inf

    def penalty(self, U: np.ndarray) -> float:
        """Return the penalty on the factors of the users."""
        damping = self.options["damping"]
        F = U if damping is None else U[:, :-1]
        cost = float(self.ridges[0].astype(np.float64) @ np.einsum("uk,uk->u", F, F, dtype=np.float64))
        return (
            cost if damping is None else cost + damping * float(np.square(U[:, -1], dtype=np.float64).sum())
        )

    def sweep(self) -> Metrics:
        solve(self.users, self.U, self.V, ridge=self.ridges[0], **self.options)
        loss = solve(self.items, self.V, self.U, ridge=self.ridges[1], **self.options)
        loss += self.penalty(self.U)
        self.converged = abs(self.loss - loss) <= self.tol * abs(loss)
        self.loss = loss
        return {"loss": loss}


class ALS(Completer, FactorRecommender, Estimator):
    """Predict ratings and recommend items by alternating least squares.

    Takes explicit ratings (stars; what is not stored is unknown) or implicit feedback (counts; what is
    not stored is a weak no). Rows are users, columns are items. A mapped matrix with NaN, or a
    ``corollary.data.ParquetTable`` of (user, item, value), is read block by block; only its ratings are kept in memory.

    Parameters
    ----------
    n_components : int, optional
        Factors per user and item. More fit finer tastes, and need more data or regularisation. By default 16 for explicit
        feedback, and 64 for implicit, where every missing entry says something too.
    feedback : {"explicit", "implicit"}, default="explicit"
        What an entry is: a rating to be predicted, or a count that says how sure a preference is.
    regularization : float, optional
        Penalty on the squared norm of the factors; raising it shrinks them. By default it is chosen by held-out ratings for
        explicit feedback, and 0.1 for implicit.
    scale_by_count : bool, default=True
        Whether the penalty of a user or item is multiplied with the number of its ratings, so that one
        value suits rare and frequent ones.
    alpha : float, default=1.0
        Implicit only: confidence gained per unit of the count. Raising it trusts the stored entries more.
    bias : bool, default=True
        Explicit only: whether users and items have a bias each, besides the mean.
    damping : float, default=5.0
        Penalty on the squared biases: that many ratings at the mean are added to those of each user and item.
    cg_steps : int, default=3
        Conjugate gradient steps per row and sweep. Raising it makes a sweep dearer and sweeps fewer.
    max_iter : int, default=15
        Most sweeps over users and items.
    tol : float, default=1e-4
        Stop when a sweep changes the loss relatively by no more than this.
    random_state : int or RandomState, optional
        Seed for the first item factors.

    Attributes
    ----------
    user_factors_ : ndarray of shape (n_users, n_components)
        Factors of the users; zero for those without ratings.
    item_factors_ : ndarray of shape (n_items, n_components)
        Factors of the items; zero for those without ratings.
    user_bias_, item_bias_ : ndarray of shape (n_users,), (n_items,)
        Their biases; zero where ``bias`` does not apply.
    mean_ : float
        Mean rating; 0 for implicit feedback.
    regularization_ : float
        The penalty, given or chosen.
    shape_ : tuple
        Numbers of users and items.
    users_, items_ : ndarray
        Names of users and items, if it was fitted to a table that has them; all methods then take and return names.
    ratings_ : sparse matrix of shape (n_users, n_items)
        What it was fitted on, so that ``recommend`` leaves out what a user knows and ``explain`` has reasons.
    n_iter_ : int
        Sweeps done.
    history_ : list of dict
        Step, loss and seconds of every sweep.

    Notes
    -----
    Minimises eq. (1) or (2) of the module's page. A sweep costs O(k per rating and step) and, for implicit
    feedback, O(k^2) per row and step; the notes' O((n + m) k^3) leaves out the O(k^2) per rating of forming
    the normal equations, which conjugate gradients avoid. Rows are solved independently, so the result does
    not depend on the number of threads.

    References
    ----------
    .. [1] Y. Hu, Y. Koren, C. Volinsky (2008). Collaborative filtering for implicit feedback datasets. ICDM.
    .. [2] Y. Zhou, D. Wilkinson, R. Schreiber, R. Pan (2008). Large-scale parallel collaborative filtering
       for the Netflix prize. AAIM.
    .. [3] G. Takács, I. Pilászy, D. Tikk (2011). Applications of the conjugate gradient method for implicit
       feedback collaborative filtering. RecSys.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import ALS
    >>> R = np.array([[5, 4, np.nan, 1], [4, 5, 1, np.nan], [1, np.nan, 5, 4], [np.nan, 1, 4, 5]])
    >>> model = ALS(2, regularization=1.0, random_state=0).fit(R)
    >>> bool(model.predict([[0, 2]])[0] < 3 < model.predict([[2, 2]])[0])
    True
    """

    input = "ratings"
    _parameter_constraints = {
        "n_components": [None, Interval(Integral, 1, None, closed="left")],
        "feedback": [StrOptions({"explicit", "implicit"})],
        "regularization": [None, Interval(Real, 0, None, closed="left")],
        "scale_by_count": ["boolean"],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "bias": ["boolean"],
        "damping": [Interval(Real, 0, None, closed="left")],
        "cg_steps": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "shape_": List([Count(1), Count(1)]),
        "mean_": Number(),
        "regularization_": Number(0),
        "user_factors_": Array("shape_.0", "factors"),
        "user_bias_": Array("shape_.0"),
        "item_factors_": Array("shape_.1", "factors"),
        "item_bias_": Array("shape_.1"),
        "ratings_": Sparse("shape_.0", "shape_.1"),
    }

    def __init__(
        self,
        n_components=None,
        *,
        feedback="explicit",
        regularization=None,
        scale_by_count=True,
        alpha=1.0,
        bias=True,
        damping=5.0,
        cg_steps=3,
        max_iter=15,
        tol=1e-4,
        random_state=None,
    ):
        self.n_components = n_components
        self.feedback = feedback
        self.regularization = regularization
        self.scale_by_count = scale_by_count
        self.alpha = alpha
        self.bias = bias
        self.damping = damping
        self.cg_steps = cg_steps
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @classmethod
    def _compare_params(cls, dataset: Any) -> dict[str, Any]:
        """Return what suits a board: ratings that are all equal say who turned to what, and nothing more."""
        return {} if np.ptp(dataset.X.data) > 0 else {"feedback": "implicit"}

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 2, "max_iter": 5}

    # --- fitting -----------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> Any:
        return check_ratings(X, "ALS", shape=None if reset else self.shape_)

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        return {"shape_": data.X.shape, "ratings_": data.X}

    def _learner(self, data: Data) -> _Alternation:
        R = data.X
        self._check_counts(R)
        self.mean_ = float(R.data.mean(dtype=np.float64)) if self.feedback == "explicit" else 0.0
        R = self._centred(R)
        self.regularization_ = self._penalty(R)
        return self._from(R, self._rng())

    def _from(self, R: Any, rng: Any) -> _Alternation:
        """Return a learner of centred ratings."""
        U = np.zeros((R.shape[0], self._width()), R.dtype)
        V = rng.standard_normal((R.shape[1], self._width())).astype(R.dtype)
        # implicit solutions have entries of about 1 / sqrt(k); explicit ones grow from little, strong directions first
        V *= R.dtype.type(0.1 if self.feedback == "implicit" else 0.03)
        if self._has_bias():
            V[:, -1] = 0
        return _Alternation(R, self, U, V)

    def _penalty(self, R: Any) -> float:
        """Return the regularisation: as given, or the one that predicts a tenth of the centred ratings best."""
        if self.regularization is not None:
            return float(self.regularization)
        if self.feedback == "implicit" or R.nnz < FEW:
            return USUAL
        rng = np.random.default_rng(0)
        known, held = _divided(R, rng)
        trial = clone(self)
        best, chosen, learner = np.inf, USUAL, None
        for share in SHARES:
            trial.regularization_ = share * float(R.data.std(dtype=np.float64))
            learner = learner or trial._from(known, rng)
            learner.ridges = trial._ridge(learner.users), trial._ridge(learner.items)
            for _ in range(TRIAL_SWEEPS):
                learner.sweep()
            error = _error(learner.U, learner.V, held, self._has_bias())
            if error >= best:
                break
            best, chosen = error, trial.regularization_
        return chosen

    def _adopt(self, learner: _Alternation) -> None:
        self.user_factors_, self.user_bias_ = self._split(learner.U)
        self.item_factors_, self.item_bias_ = self._split(learner.V)
        self.n_iter_ = learner.n_iter

    def _check_counts(self, R: Any) -> None:
        if self.feedback == "implicit" and R.data.min(initial=0) < 0:
            do = 'Take feedback="explicit", or leave them out.'
            raise errors.value(
                "ALS", "implicit feedback must be non-negative", f"minimum {R.data.min():g}", do
            )

    def _centred(self, R: Any) -> Any:
        return type(R)((R.data - R.dtype.type(self.mean_), R.indices, R.indptr), shape=R.shape)

    def _has_bias(self) -> bool:
        return bool(self.bias) and self.feedback == "explicit"

    def _bias_ridge(self) -> float | None:
        return float(self.damping) if self._has_bias() else None

    def _alpha(self) -> float:
        return float(self.alpha) if self.feedback == "implicit" else -1.0

    def _width(self) -> int:
        usual = 64 if self.feedback == "implicit" else 16
        return (self.n_components or usual) + self._has_bias()

    def _ridge(self, R: Any) -> np.ndarray:
        counts = np.diff(R.indptr) if self.scale_by_count else np.ones(R.shape[0])
        return (self.regularization_ * counts).astype(R.dtype)

    def _split(self, F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._has_bias():
            return F[:, :-1].copy(), F[:, -1].copy()
        return F, np.zeros(len(F), F.dtype)

    # --- new users and items -----------------------------------------------------------------------------

    def fold_in(self, X: Any, *, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return factors and biases of new users (or items) from their ratings, all else fixed.

        Parameters
        ----------
        X : ratings
            With ``axis=0`` one row per new user and one column per known item; with ``axis=1`` one row
            per known user and one column per new item.
        axis : {0, 1}, default=0
            Whether the rows or the columns are new.

        Returns
        -------
        factors : ndarray of shape (n_new, n_components)
        biases : ndarray of shape (n_new,)
        """
        return self._folded(self._new(X, axis), axis)

    def _new(self, X: Any, axis: int) -> Any:
        """Return ratings of new users or items, checked; a table's other side is found by its names."""
        check_is_fitted(self)
        if axis not in (0, 1):
            raise errors.value("ALS", "axis must be 0 (new users) or 1 (new items)", repr(axis))
        other, table = 1 - axis, self._table(X)
        if table is None:
            R = check_ratings(X, "ALS")
        else:
            R = table[0].tocoo()
            ends, size = [R.row, R.col], [*R.shape]
            ends[other], size[other] = (
                self._placed(table[1 + other], other, False)[ends[other]],
                self.shape_[other],
            )
            R = sparse.csr_matrix((R.data, tuple(ends)), shape=tuple(size))
        if R.shape[other] != self.shape_[other]:
            must = f"X must have one {('row per user', 'column per item')[other]} ({self.shape_[other]})"
            do = "Pass X.T if rows are items." if R.shape[axis] == self.shape_[other] else ""
            raise errors.value("ALS", must, f"shape {R.shape}", do)
        self._check_counts(R)
        return R

    def _folded(self, R: Any, axis: int) -> tuple[np.ndarray, np.ndarray]:
        R = self._centred(R).astype(self.item_factors_.dtype)
        R = R if axis == 0 else R.T.tocsr()
        known = (self.item_factors_, self.item_bias_) if axis == 0 else (self.user_factors_, self.user_bias_)
        Y = np.column_stack(known) if self._has_bias() else known[0]
        F = np.zeros((R.shape[0], Y.shape[1]), Y.dtype)
        options = {"alpha": self._alpha(), "damping": self._bias_ridge(), "steps": 2 * Y.shape[1]}
        solve(R, F, Y, ridge=self._ridge(R), **options)
        return self._split(F)

    def add_users(self, X: Any, names: Any = None) -> np.ndarray:
        """Fold new users into the model, one per row of X; return their numbers, or names where the model has them.

        ``names`` are theirs, one per row; by default those that a table X has.
        """
        return self._grow(X, 0, names)

    def add_items(self, X: Any, names: Any = None) -> np.ndarray:
        """Fold new items into the model, one per column of X (one row per user); return their numbers or names.

        ``names`` are theirs, one per column; by default those that a table X has.
        """
        return self._grow(X, 1, names)

    def _grow(self, X: Any, axis: int, names: Any) -> np.ndarray:
        R, side, known = self._new(X, axis), ("user", "item")[axis], self._names()[axis]
        table = self._table(X)
        names = table[1 + axis] if names is None and table is not None else names
        if known is not None:
            _check_new(names, known, R.shape[axis], side)
        factors, biases = self._folded(R, axis)
        setattr(self, f"{side}_factors_", np.vstack([getattr(self, f"{side}_factors_"), factors]))
        setattr(self, f"{side}_bias_", np.append(getattr(self, f"{side}_bias_"), biases))
        first, self.ratings_ = self.shape_[axis], stacked(self.ratings_, R, axis)
        self.shape_ = (len(self.user_factors_), len(self.item_factors_))
        if known is None:
            return np.arange(first, first + len(factors))
        setattr(self, f"{side}s_", np.append(known, np.asarray(names)))
        return np.asarray(names)

    def update_users(self, users: Any, X: Any) -> None:
        """Compute known users anew from all of their ratings, one row of X each, everything else fixed.

        Parameters
        ----------
        users : array-like
            Row numbers of the fitted ratings, or their names, all different.
        X : ratings of shape (len(users), n_items)
            What takes the place of their ratings.
        """
        R = self._new(X, 0)
        users = self._placed(users, 0, False)
        if len(users) != R.shape[0] or len(np.unique(users)) != len(users):
            must = f"X must have one row for each of {len(np.unique(users))} different users"
            raise errors.value("ALS", must, f"{R.shape[0]} rows for {len(users)} users")
        self.user_factors_[users], self.user_bias_[users] = self._folded(R, 0)
        order = np.arange(self.shape_[0])
        order[users] = self.shape_[0] + np.arange(len(users))
        self.ratings_ = stacked(self.ratings_, R, 0)[order]

    # --- using -------------------------------------------------------------------------------------------

    def _predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        products = np.einsum("nk,nk->n", self.user_factors_[users], self.item_factors_[items])
        return products + self.user_bias_[users] + self.item_bias_[items] + products.dtype.type(self.mean_)

    def _average(self) -> tuple[float, np.ndarray, np.ndarray]:
        if self.feedback == "explicit":
            return self.mean_, self.user_bias_, self.item_bias_
        user, item = self.user_factors_.mean(0), self.item_factors_.mean(0)
        mean = float(user @ item)
        return mean, self.user_factors_ @ item - mean, self.item_factors_ @ user - mean

    def score(self, X: Any, y: Any = None) -> float:
        """Return how well the stored entries of X are predicted; more is better.

        Explicit: the negative root-mean-square error. Implicit: one minus the expected percentile rank of eq. (4),
        which is 1 if every user's items stand first on the user's list of all items, and 1/2 for lists in any order.
        """
        if self.feedback == "explicit":
            return super().score(X)
        held = self._query(X)
        self._check_counts(held)
        total = held.data.sum(dtype=np.float64)
        if total == 0:
            raise errors.value("ALS", "X must have a count above 0 to be scored", "none")
        ranks = np.zeros(held.nnz)
        percentile_ranks(held.indptr, held.indices, self.user_factors_, self.item_factors_, ranks)
        return float(1 - ranks @ held.data / total)

    # --- the equations of one user, for explanations -----------------------------------------------------

    def _design(self) -> np.ndarray:
        """Return the rows y of eq. 3: with a bias, a one is their last coordinate."""
        Y = self.item_factors_
        return np.column_stack([Y, np.ones(len(Y), Y.dtype)]) if self._has_bias() else Y

    def _equations(self, own: Any, item: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Return A of eq. 3, the rows and the z of the rated items, and what an item's score begins with."""
        Y, ratings = self._design().astype(np.float64), own.data.astype(np.float64)
        rows, ridge = Y[own.indices], float(self._ridge(own.astype(np.float64))[0])
        if self.feedback == "explicit":
            z, A = ratings - self.mean_ - self.item_bias_[own.indices], rows.T @ rows
        else:
            z, A = 1 + self.alpha * ratings, Y.T @ Y + (rows.T * (self.alpha * ratings)) @ rows
        ridges = np.full(len(A), ridge)
        if self._has_bias():
            ridges[-1] = self.damping
        return A + np.diag(ridges), rows, z, float(self.mean_ + self.item_bias_[item])


def _divided(R: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return nine tenths of the ratings, as a matrix, and one tenth as users, items and ratings; of a part of many users."""
    if R.nnz > MANY:
        R = R[np.sort(rng.permutation(R.shape[0])[: max(1, int(R.shape[0] * MANY / R.nnz))])]
    part = R.tocoo()
    aside = rng.random(part.nnz) < 0.1
    entries = lambda rows: (part.row[rows], part.col[rows], part.data[rows])
    users, items, values = entries(~aside)
    return sparse.csr_matrix((values, (users, items)), shape=R.shape), entries(aside)


def _error(U: np.ndarray, V: np.ndarray, held: Any, bias: bool) -> float:
    """Return the mean squared error on centred ratings."""
    users, items, values = held
    left, right = U[users], V[items]
    if bias:
        found = np.einsum("nk,nk->n", left[:, :-1], right[:, :-1]) + left[:, -1] + right[:, -1]
    else:
        found = np.einsum("nk,nk->n", left, right)
    return float(np.mean((values - found) ** 2, dtype=np.float64))


def _check_new(names: Any, known: np.ndarray, count: int, side: str) -> None:
    """Raise unless there is a new name for each new user or item."""
    if names is None or len(names) != count:
        do = f"Pass names=[...], or a table of (user, item, value) that has the new {side}s."
        raise errors.value(
            "ALS",
            f"new {side}s of a model with names must have names",
            "none" if names is None else len(names),
            do,
        )
    again = [str(name) for name in names if str(name) in set(map(str, known))]
    if again:
        raise errors.value(
            "ALS", f"names of new {side}s must be new", repr(again[0]), "Use update_users for those known."
        )
