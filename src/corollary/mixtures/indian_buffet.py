r"""The Indian buffet process: binary latent features, whose number is learned.

Row :math:`i` of the data is a sum of features, plus noise:

.. math:: X = Z A + E, \qquad A_{kj} \sim \mathcal N(0, \sigma_a^2), \qquad E_{ij} \sim \mathcal N(0, \sigma_x^2). \tag{1}

Its features are dishes that customer :math:`i` takes from a buffet: each one that :math:`m_k` customers before it took,
with probability :math:`m_k / i`, and :math:`\mathrm{Poisson}(\alpha / i)` new ones. Up to the order of the columns,

.. math::
    P(Z) = \frac{\alpha^K}{\prod_h K_h!}\, e^{-\alpha H_n} \prod_{k=1}^K \frac{(n - m_k)!\, (m_k - 1)!}{n!}, \qquad
    H_n = \sum_{i=1}^n \frac1i, \qquad \mathbb E[K] = \alpha H_n, \tag{2}

with :math:`K_h` the number of columns that equal the :math:`h`-th. Gibbs sampling has the features integrated out. Given the
other rows they are Gaussian with mean :math:`M` and covariance :math:`S`, so that

.. math::
    P(z_{ik} = 1 \mid \cdot) \propto \frac{m_k^{-i}}{n}\, \mathcal N\big(x_i;\, z_i^\top M,\,
    (\sigma_x^2 + z_i^\top S z_i + J \sigma_a^2) I\big), \tag{3}

where :math:`J` is the number of dishes that nobody else took; it is drawn with

.. math:: P(J \mid \cdot) \propto \mathrm{Poisson}(J; \alpha / n)\, \mathcal N\big(x_i;\, z_i^\top M,\,
    (\sigma_x^2 + z_i^\top S z_i + J \sigma_a^2) I\big). \tag{4}

The concentration has the posterior :math:`\mathrm{Gamma}(1 + K, 1 + H_n)`; the variances are drawn from inverse gamma laws given
features drawn from :math:`\mathcal N(M, S)`, which are then forgotten (5).

Row by row such a sampler sticks where two features are explained as three: one alone, the other alone, and both. So whole
columns move too: :math:`z_k \leftarrow z_k \oplus z_l` for a random pair, its own inverse, is accepted with probability
:math:`\min(1, P(Z', X) / P(Z, X))`, columns told apart (6).
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import Interval

from corollary.base import Data, Estimator, Generator, Transformer
from corollary.engine.learner import Iteration, Metrics
from corollary.mixtures import buffet_kernels as kernels
from corollary.shapes import Array, Count, Maybe, Number, Record

__all__ = ["IndianBuffetProcess", "log_buffet", "log_evidence"]

PAIRS = 40  # columns added to others per sweep, eq. 6


# --- equations -------------------------------------------------------------------------------------------


def harmonic(n: int) -> float:
    """Return H_n."""
    return float((1 / np.arange(1, n + 1)).sum())


def log_buffet(Z: np.ndarray, alpha: float) -> float:
    """Return the log-probability of dishes Z (n, K), up to the order of the columns, eq. 2."""
    n, K = Z.shape
    m = Z.sum(axis=0, dtype=np.int64)
    alike = np.unique(Z, axis=1, return_counts=True)[1] if K else np.zeros(0)
    dishes = gammaln(n - m + 1) + gammaln(m) - gammaln(n + 1)
    return float(K * math.log(alpha) - gammaln(alike + 1).sum() - alpha * harmonic(n) + dishes.sum())


def posterior(X: np.ndarray, Z: np.ndarray, noise: float, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (K, d) and covariance (K, K) of the features given all rows and both variances."""
    Z = Z.astype(np.float64)
    S = np.linalg.inv(Z.T @ Z / noise + np.eye(Z.shape[1]) / spread)
    S = (S + S.T) / 2
    return S @ (Z.T @ X) / noise, S


def log_evidence(X: np.ndarray, Z: np.ndarray, noise: float, spread: float) -> float:
    """Return log p(X | Z) with the features integrated out."""
    Z = Z.astype(np.float64)
    return evidence_of_sums(Z.T @ Z, Z.T @ X, len(X), float((X**2).sum()), noise, spread)


def evidence_of_sums(
    G: np.ndarray, H: np.ndarray, n: int, squares: float, noise: float, spread: float
) -> float:
    """Return log p(X | Z) from Z'Z (K, K), Z'X (K, d), the number of rows and the sum of squares of X."""
    K, d = H.shape
    L = np.linalg.cholesky(G + noise / spread * np.eye(K))
    determinant = 2 * np.log(L.diagonal()).sum() + K * math.log(spread / noise)
    rest = squares - float((np.linalg.solve(L, H) ** 2).sum())
    return float(-0.5 * d * (determinant + n * math.log(2 * math.pi * noise)) - 0.5 * rest / noise)


# --- learner ---------------------------------------------------------------------------------------------


class Dining(Iteration):
    """Gibbs sweeps, eq. 3 to 6; the most probable dishes are kept."""

    saved = ("Z", "alpha", "noise", "spread", "best", "rng")
    varying = {
        "Z": Array("X", None, kind="iu", low=0, high=1),
        "alpha": Number(0),
        "noise": Number(0),
        "spread": Number(0),
        "best": Record(
            {
                "joint": Maybe(Number(finite=False)),
                "Z": Maybe(Array("X", None, kind="iu", low=0, high=1)),
                "alpha": Maybe(Number(0)),
                "noise": Maybe(Number(0)),
                "spread": Maybe(Number(0)),
            }
        ),
    }

    def __init__(self, model: IndianBuffetProcess, X: np.ndarray) -> None:
        super().__init__(model.max_iter)
        self.X, self.model, self.rng = X, model, model._rng()
        self.size = float((X**2).mean()) or 1.0  # of an entry; the scale of both variances' priors
        self.Z = np.zeros((len(X), 0), np.int8)
        self.alpha = 1.0 if model.concentration is None else float(model.concentration)
        self.noise = self.size / 4 if model.noise_variance is None else float(model.noise_variance)
        self.spread = self.size if model.component_variance is None else float(model.component_variance)
        self.best: dict[str, Any] = {}

    def sweep(self) -> Metrics:
        """Let every row choose anew, add columns to others, then draw what was not given."""
        self._sweep_rows()
        self._add_columns()
        self._draw(*posterior(self.X, self.Z, self.noise, self.spread))
        joint = self.log_joint()
        if not self.best or joint > self.best["joint"]:
            self.best = {"joint": joint, **{name: getattr(self, name) for name in self.saved[:4]}}
        K = self.Z.shape[1]
        return {"log_joint": joint, "components": K, "concentration": self.alpha, "noise": self.noise}

    def _sweep_rows(self) -> None:
        n, here = len(self.X), np.full(len(self.X), self.n_iter > 1)
        K, done = self.Z.shape[1], 0
        state = self._with_spare(self.Z, *posterior(self.X, self.Z, self.noise, self.spread))
        order, u = self.rng.permutation(n), self.rng.random((n, state[0].shape[1] + 1))
        while done < n:
            if K + kernels.MOST > state[0].shape[1]:
                state = self._with_spare(state[0], state[3], state[2])
                more = self.rng.random((n, state[0].shape[1] + 1 - u.shape[1]))
                u = np.hstack([u[:, :-1], more, u[:, -1:]])
            done, K = kernels.sweep_rows(
                self.X, *state, K, here, order, u, done, self.alpha, self.noise, self.spread
            )
        self.Z = state[0][:, :K].copy()

    def _add_columns(self) -> None:
        """Add columns to others, modulo 2, by eq. 6."""
        (n, K), squares = self.Z.shape, float((self.X**2).sum())
        if K < 2:
            return
        Z = self.Z.astype(np.float64)
        G, H = Z.T @ Z, Z.T @ self.X

        def value(G: np.ndarray, H: np.ndarray) -> float:
            m = G.diagonal()
            dishes = float((gammaln(n - m + 1) + gammaln(m)).sum())
            return dishes + evidence_of_sums(G, H, n, squares, self.noise, self.spread)

        current = value(G, H)
        for _ in range(PAIRS):
            k, other = self.rng.choice(K, 2, replace=False)
            column, accept = np.abs(Z[:, k] - Z[:, other]), math.log(1 - self.rng.random())
            if not column.any():
                continue
            fresh_G, fresh_H = G.copy(), H.copy()
            fresh_G[k] = fresh_G[:, k] = column @ Z
            fresh_G[k, k], fresh_H[k] = column.sum(), column @ self.X
            after = value(fresh_G, fresh_H)
            if accept < after - current:
                Z[:, k], G, H, current = column, fresh_G, fresh_H, after
        self.Z = Z.astype(np.int8)

    def _with_spare(self, Z: np.ndarray, M: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return Z, the counts, S and M with columns to spare."""
        K = Z.shape[1]
        C = 2 * K + 2 * kernels.MOST
        grown = np.zeros((len(Z), C), np.int8), np.zeros((C, C)), np.zeros((C, self.X.shape[1]))
        grown[0][:, :K], grown[1][:K, :K], grown[2][:K] = Z, S, M
        return grown[0], grown[0].sum(axis=0, dtype=np.int64), grown[1], grown[2]

    def _draw(self, M: np.ndarray, S: np.ndarray) -> None:
        """Draw concentration and variances, eq. 5."""
        (n, d), K, rng = self.X.shape, len(M), self.rng
        if self.model.concentration is None:
            self.alpha = float(rng.gamma(1 + K, 1 / (1 + harmonic(n))))
        A = M + np.linalg.cholesky(S) @ rng.standard_normal((K, d))
        if self.model.noise_variance is None:
            rest = ((self.X - self.Z @ A) ** 2).sum()
            self.noise = float((self.size + rest) / 2 / rng.gamma(1 + n * d / 2))
        if self.model.component_variance is None:
            self.spread = float((self.size + (A**2).sum()) / 2 / rng.gamma(1 + K * d / 2))

    def log_joint(self) -> float:
        """Return the log-probability of dishes and data, and of what was drawn with them."""
        joint = log_buffet(self.Z, self.alpha) + log_evidence(self.X, self.Z, self.noise, self.spread)
        if self.model.concentration is None:
            joint -= self.alpha
        for given, v in (
            (self.model.noise_variance, self.noise),
            (self.model.component_variance, self.spread),
        ):
            if given is None:
                joint += math.log(self.size / 2) - 2 * math.log(v) - self.size / 2 / v
        return joint


# --- estimator -------------------------------------------------------------------------------------------


class IndianBuffetProcess(ClassNamePrefixFeaturesOutMixin, Transformer, Generator, Estimator):
    """Explain rows as sums of latent features, whose number is learned, by Gibbs sampling (Indian buffet process).

    Use it where a row has several causes at once, and their number is not known. Of all sweeps the most probable one is
    kept; what every sweep had (components, concentration, noise) is in ``history_``.

    Parameters
    ----------
    concentration : float, optional
        Expected features per row; more gives more features. Learned by default.
    noise_variance : float, optional
        Variance of the noise; more leaves more unexplained. Learned by default.
    component_variance : float, optional
        Variance of the features' entries; more makes a new feature dearer. Learned by default.
    max_iter : int, default=200
        Sweeps; more find a more probable explanation.
    random_state : int or RandomState, optional
        Seed of the sampler and of ``sample``.

    Attributes
    ----------
    n_components_ : int
        Features of the kept sweep.
    components_ : ndarray of shape (n_components_, n_features_in_)
        Their expected values, the most frequent first.
    codes_ : ndarray of int8, shape (n_samples, n_components_)
        Which features each row that was fitted has, in the kept sweep.
    counts_ : ndarray of shape (n_components_,)
        How many rows have each.
    concentration_, noise_variance_, component_variance_ : float
        Of that sweep.
    log_joint_ : float
        Log-probability of that sweep with the data.
    n_iter_ : int
        Sweeps done.
    history_ : list of dict
        Log-probability, components, concentration, noise and seconds of every sweep.

    Notes
    -----
    Samples from P(Z | X), equations (3) to (6) above. A sweep costs O(n K (K + d)). The data are not centred: what all
    rows share is a feature like others. ``transform`` finds the most probable features of a new row given the fitted ones,
    by flipping one or two at a time until nothing improves, at O(K²) a flip. Sweeps cannot be shared between
    processes; each does all.

    References
    ----------
    .. [1] T. L. Griffiths, Z. Ghahramani (2005). Infinite latent feature models and the Indian buffet process. NIPS.
    .. [2] F. Doshi-Velez, Z. Ghahramani (2009). Accelerated sampling for the Indian buffet process. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import IndianBuffetProcess
    >>> rng = np.random.default_rng(0)
    >>> X = rng.integers(2, size=(60, 2)) @ [[3, 3, 0, 0], [0, 0, 3, 3]] + 0.1 * rng.normal(size=(60, 4))
    >>> model = IndianBuffetProcess(max_iter=50, random_state=0).fit(X)
    >>> bool(np.abs(model.inverse_transform(model.transform(X)) - X).mean() < 0.2)
    True
    """

    _checks = {"ensure_min_samples": 2}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "concentration": [Interval(Real, 0, None, closed="neither"), None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
        "component_variance": [Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "n_components_": Count(),
        "codes_": Array(None, "n_components_", kind="iu", low=0, high=1),
        "counts_": Array("n_components_", kind="iu", low=0),
        "concentration_": Number(0),
        "log_joint_": Number(finite=False),
        "noise_variance_": Number(0),
        "component_variance_": Number(0),
        "components_": Array("n_components_", "n_features_in_"),
        "_covariance": Array("n_components_", "n_components_"),
    }

    def __init__(
        self,
        concentration=None,
        *,
        noise_variance=None,
        component_variance=None,
        max_iter=200,
        random_state=None,
    ):
        self.concentration = concentration
        self.noise_variance = noise_variance
        self.component_variance = component_variance
        self.max_iter = max_iter
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"max_iter": 10}

    def _learner(self, data: Data) -> Dining:
        return Dining(self, np.ascontiguousarray(data.X, np.float64))

    def _adopt(self, learner: Dining) -> None:
        best = learner.best or {
            "joint": -math.inf,
            **{name: getattr(learner, name) for name in learner.saved[:4]},
        }
        order = np.argsort(-best["Z"].sum(axis=0, dtype=np.int64), kind="stable")
        self.codes_, self.n_components_ = best["Z"][:, order], len(order)
        self.counts_ = self.codes_.sum(axis=0, dtype=np.int64)
        self.concentration_, self.log_joint_ = float(best["alpha"]), float(best["joint"])
        self.noise_variance_, self.component_variance_ = float(best["noise"]), float(best["spread"])
        self.components_, self._covariance = posterior(
            learner.X, self.codes_, self.noise_variance_, self.component_variance_
        )
        self.n_iter_ = learner.n_iter

    # --- using -------------------------------------------------------------------------------------------

    def _transform(self, X: np.ndarray) -> np.ndarray:
        Z = np.zeros((len(X), self.n_components_), np.int8)
        odds = np.log(self.counts_ / (len(self.codes_) + 1 - self.counts_))
        rows = np.ascontiguousarray(X, np.float64)
        kernels.explain(rows, self.components_, self._covariance, odds, self.noise_variance_, Z)
        return Z.astype(X.dtype)

    def _inverse_transform(self, Z: np.ndarray) -> np.ndarray:
        return Z @ self.components_.astype(Z.dtype)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw what the next customers would take, and their rows."""
        count = len(self.codes_) + 1
        Z = (rng.random((n, self.n_components_)) < self.counts_ / count).astype(np.float64)
        new = rng.poisson(self.concentration_ / count, n)
        v = self.noise_variance_ + ((Z @ self._covariance) * Z).sum(axis=1) + new * self.component_variance_
        return Z @ self.components_ + np.sqrt(v)[:, None] * rng.standard_normal((n, self.n_features_in_))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that the precision stays."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
