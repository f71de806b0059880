r"""Hopfield's associative memory.

:math:`P` patterns :math:`\xi^\mu \in \{-1, 1\}^n` are stored in one symmetric matrix with
:math:`W_{ii} = 0`. By Hebb's rule, and by the projection onto the patterns' span,

.. math::
    W = \frac{1}{n} \sum_\mu \xi^\mu (\xi^\mu)^\top, \tag{1}
    \qquad
    W = \Xi^\top (\Xi \Xi^\top)^{+}\, \Xi, \tag{2}

or by the symmetric matrix of least norm that keeps every unit of every pattern stable with margin 1,

.. math::
    \min_{W = W^\top,\, W_{ii} = 0} \tfrac12 \lVert W \rVert_F^2
    \quad\text{s.t.}\quad \xi_i^\mu (W \xi^\mu)_i \ge 1, \tag{3}

whose dual has one multiplier :math:`\alpha_{\mu i} \ge 0` per unit and pattern. With
:math:`D_{\mu i} = \alpha_{\mu i} \xi_i^\mu`,

.. math::
    W = \tfrac12 (D^\top \Xi + \Xi^\top D), \quad W_{ii} \leftarrow 0, \qquad
    \nabla_\alpha = 1 - \Xi \odot (\Xi W). \tag{4}

Recall turns one unit at a time towards its field,

.. math::
    h = W s + b, \qquad s_i \leftarrow \operatorname{sign}(h_i) \text{ (kept if } h_i = 0), \tag{5}

and no such flip can raise the energy

.. math::
    E(s) = -\tfrac12 s^\top W s - b^\top s = -\tfrac12 s^\top (h + b), \tag{6}

so recall halts. All units at once can cycle, with period two.
"""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Data, Estimator, Memory, Transformer
from corollary.compiled import njit
from corollary.engine.learner import Iteration, Metrics, Once
from corollary.engine.run import current
from corollary.linalg.dense import dot
from corollary.linalg.threads import threads
from corollary.shapes import Array, Index, Number

__all__ = ["CapacityCurve", "HopfieldNetwork", "capacity_curve"]

FLIPS = 0.1  # flips of a recall over units, for a guess at its work


# --- storing ---------------------------------------------------------------------------------------------


def hebbian_weights(Xi: np.ndarray) -> np.ndarray:
    """Return the couplings of eq. 1; (P, n) -> (n, n)."""
    run = current()
    mine = Xi[run.shard(len(Xi))]
    return _hollow(run.sum(mine.T @ mine) / Xi.dtype.type(Xi.shape[1]))


def projection_weights(Xi: np.ndarray) -> np.ndarray:
    """Return the couplings of eq. 2, from an orthonormal basis of the patterns' span; (P, n) -> (n, n)."""
    _, s, Vt = np.linalg.svd(Xi, full_matrices=False)
    basis = Vt[s > s[0] * max(Xi.shape) * np.finfo(Xi.dtype).eps]
    return _hollow(basis.T @ basis)


def _hollow(W: np.ndarray) -> np.ndarray:
    np.fill_diagonal(W, 0.0)
    return W


def symmetric_weights(Xi: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return the couplings of eq. 4 for multipliers alpha; (P, n), (P, n) -> (n, n)."""
    half = (alpha * Xi).T @ Xi
    return _hollow((half + half.T) * Xi.dtype.type(0.5))


class _Stability(Iteration):
    """Solve eq. 3 by accelerated projected ascent on its dual, eq. 4, restarted when it overshoots."""

    saved = ("alpha", "last_alpha", "stability", "last_stability", "momentum", "weight", "W")

    def __init__(self, Xi: np.ndarray, max_iter: int, tol: float) -> None:
        super().__init__(max_iter)
        self.Xi, self.tol = Xi, tol
        # making W symmetric and hollow only shortens it, so this bounds the dual's curvature
        self.step_size = Xi.dtype.type(1.0 / np.linalg.norm(Xi, 2) ** 2)
        self.alpha = self.last_alpha = np.zeros_like(Xi)
        self.stability = self.last_stability = np.zeros_like(Xi)  # Xi * (Xi W), linear in alpha as W is
        self.momentum, self.weight = 1.0, 0.0
        self.W = np.zeros((Xi.shape[1],) * 2, Xi.dtype)

    @property
    def margin(self) -> float:
        return float(self.stability.min())

    def sweep(self) -> Metrics:
        Xi, c = self.Xi, self.Xi.dtype.type(self.weight)
        slope = 1 - (self.stability + c * (self.stability - self.last_stability))
        ahead = self.alpha + c * (self.alpha - self.last_alpha)
        self.last_alpha, self.last_stability = self.alpha, self.stability
        self.alpha = np.maximum(ahead + self.step_size * slope, 0)
        self.W = symmetric_weights(Xi, self.alpha)
        self.stability = Xi * (Xi @ self.W)
        if np.vdot(slope, self.alpha - self.last_alpha) < 0:
            self.momentum = 1.0
        grown = (1 + math.sqrt(1 + 4 * self.momentum**2)) / 2
        self.momentum, self.weight = grown, (self.momentum - 1) / grown
        self.converged = self.margin >= 1 - self.tol
        return {"margin": self.margin}


# --- recalling -------------------------------------------------------------------------------------------


def energy(W: np.ndarray, s: np.ndarray, b: Any = 0.0) -> np.ndarray:
    """Return the energy of each row, eq. 6; (n, n), (m, n) -> (m,)."""
    return -0.5 * np.einsum("mi,mi->m", s @ W, s, dtype=np.float64) - s.astype(np.float64) @ np.broadcast_to(
        b, s.shape[1:]
    )


@njit(cache=True, parallel=True)
def _one_at_a_time(W, b, order, slack, s, h, trace):  # pragma: no cover - compiled
    """Sweep eq. 5 over the rows of s until none changes; their fields h (m, n) are updated per flip."""
    m, n = s.shape
    for q in prange(m):
        x, f = s[q], h[q]
        for sweep in range(trace.shape[1]):
            e = 0.0
            for i in range(n):
                e -= 0.5 * x[i] * (f[i] + b[i])
            trace[q, sweep:] = e
            if sweep + 1 == trace.shape[1]:
                break
            flips = 0
            for k in range(n):
                i = order[k]
                if x[i] * f[i] < -slack:
                    x[i] = -x[i]
                    flips += 1
                    twice, w = 2 * x[i], W[i]
                    for j in range(n):
                        f[j] += twice * w[j]
            if flips == 0:
                break


def _all_at_once(W: np.ndarray, b: np.ndarray, slack: float, s: np.ndarray, trace: np.ndarray) -> np.ndarray:
    """Apply eq. 5 to all units together until the rows stand still or repeat the state before the last."""
    before = s
    h = s @ W + b
    trace[:] = (-0.5 * (s * (h + b)).sum(1))[:, None]
    for sweep in range(1, trace.shape[1]):
        fresh = np.where(s * h < -slack, -s, s)
        if np.array_equal(fresh, s) or (sweep > 1 and np.array_equal(fresh, before)):
            break
        before, s = s, fresh
        h = s @ W + b
        trace[:, sweep:] = (-0.5 * (s * (h + b)).sum(1))[:, None]
    return s


# --- the estimator ---------------------------------------------------------------------------------------

RULES = {"hebb": hebbian_weights, "pseudo-inverse": projection_weights, "optimal": None}


class HopfieldNetwork(Memory, Transformer, Estimator):
    r"""Store binary patterns and recall them from damaged ones.

    Hebb's rule is the fastest and forgets everything beyond about 0.138 patterns per unit; the
    pseudo-inverse rule stores any linearly independent patterns; the optimal rule gives every stored
    unit the largest margin that symmetric couplings allow, and with it the largest basins.

    Parameters
    ----------
    rule : {"hebb", "pseudo-inverse", "optimal"}, default="hebb"
        How the patterns are stored: eq. (1), (2) or (3).
    update : {"asynchronous", "synchronous"}, default="asynchronous"
        Whether recall turns one unit at a time, which always halts, or all at once, which may cycle.
    threshold : float, default=0.0
        An entry of X is +1 from here on, and -1 below. Take 0.5 for patterns of zeros and ones.
    bias : float or array-like of shape (n_features,), default=0.0
        Field on each unit besides that of the others; raising it turns units to +1.
    max_sweeps : int, default=100
        Most sweeps over the units in a recall; it stops sooner at a fixed point.
    max_iter : int, default=1000
        Most steps of the optimal rule.
    tol : float, default=0.05
        The optimal rule stops when every margin is at least ``1 - tol``; a smaller one takes longer.
    random_state : int or RandomState, optional
        Seed for the order in which recall visits the units.

    Attributes
    ----------
    weights_ : ndarray of shape (n_features_in_, n_features_in_)
        The couplings: symmetric, zero on the diagonal.
    bias_ : ndarray of shape (n_features_in_,)
        The field on each unit.
    order_ : ndarray of shape (n_features_in_,)
        The order in which recall visits the units.
    margin_ : float
        Smallest :math:`\xi_i^\mu (W \xi^\mu)_i` over the stored patterns; all of them are
        fixed points (without bias) exactly if it is not negative.
    slack_ : float
        A field no larger than this could be rounding alone, and flips nothing.
    n_iter_ : int
        Steps of the optimal rule; 1 for the others.
    history_ : list of dict
        Step, margin and seconds.

    Notes
    -----
    Storing costs O(P n^2), per step with the optimal rule; a recall costs O(n^2) for the first fields
    and O(n) per visit and per flip. Without the factor 1/2 in eq. (6), which some notes leave out, the
    energy can rise where there is a bias. Random patterns are stable under the optimal rule up to a
    load of about 1.28 [3]_; couplings that need not be symmetric reach 2, but then there is no energy
    and recall need not halt.

    References
    ----------
    .. [1] J. J. Hopfield (1982). Neural networks and physical systems with emergent collective
       computational abilities. PNAS 79(8), 2554-2558.
    .. [2] L. Personnaz, I. Guyon, G. Dreyfus (1985). Information storage and retrieval in spin-glass
       like neural networks. Journal de Physique Lettres 46, 359-365.
    .. [3] E. Gardner, H. Gutfreund, I. Yekutieli (1989). The phase space of interactions in neural
       networks with definite symmetry. Journal of Physics A 22, 1995-2008.

    Examples
    --------
    >>> from corollary import HopfieldNetwork
    >>> memory = HopfieldNetwork(random_state=0).fit([[1, 1, 1, -1, -1, -1]])
    >>> memory.recall([[1, -1, 1, -1, -1, -1]])
    array([[ 1.,  1.,  1., -1., -1., -1.]])
    """

    _parameter_constraints = {
        "rule": [StrOptions(set(RULES))],
        "update": [StrOptions({"asynchronous", "synchronous"})],
        "threshold": [Interval(Real, None, None, closed="neither")],
        "bias": [Interval(Real, None, None, closed="neither"), "array-like"],
        "max_sweeps": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "bias_": Array("n_features_in_"),
        "order_": Index("n_features_in_", below="n_features_in_"),
        "weights_": Array("n_features_in_", "n_features_in_"),
        "margin_": Number(),
        "slack_": Number(0),
    }

    def __init__(
        self,
        rule="hebb",
        *,
        update="asynchronous",
        threshold=0.0,
        bias=0.0,
        max_sweeps=100,
        max_iter=1000,
        tol=0.05,
        random_state=None,
    ):
        self.rule = rule
        self.update = update
        self.threshold = threshold
        self.bias = bias
        self.max_sweeps = max_sweeps
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"max_sweeps": 20}

    def energy(self, X: Any) -> np.ndarray:
        """Return the energy of each row of X, eq. (6)."""
        return energy(self.weights_, self._signs(self._query(X)), self.bias_)

    def energy_trace(self, X: Any) -> np.ndarray:
        """Return the energy of each row before recall and after every sweep; (m, max_sweeps + 1).

        A recall that has ended keeps its last energy.
        """
        return self._run(self._query(X))[1]

    def _learner(self, data: Data) -> Any:
        Xi = self._signs(data.X)
        if (Xi > 0).all():
            text = f"X should have entries below threshold={self.threshold:g}"
            do = "Every unit is +1: pass threshold=0.5 for patterns of zeros and ones."
            warnings.warn(
                errors.wording("HopfieldNetwork", text, f"minimum {data.X.min():g}", do),
                errors.CorollaryWarning,
                stacklevel=2,
            )
        n = Xi.shape[1]
        if np.ndim(self.bias) > 0 and np.shape(self.bias) != (n,):
            got = f"shape {np.shape(self.bias)}"
            raise errors.value("HopfieldNetwork", f"bias must have shape ({n},)", got)
        self.bias_ = np.full(n, self.bias, Xi.dtype)
        self.order_ = self._rng().permutation(n)
        if self.rule == "optimal":
            return _Stability(Xi, self.max_iter, self.tol)

        def solve() -> dict[str, Any]:
            W = RULES[self.rule](Xi)
            return {"W": W, "margin": float((Xi * (Xi @ W)).min())}

        return Once(solve, shares=self.rule == "hebb")

    def _adopt(self, learner: Any) -> None:
        if isinstance(learner, Once):
            self.weights_, self.margin_ = learner.results["W"], learner.results["margin"]
        else:
            self.weights_, self.margin_ = learner.W, learner.margin
        self.n_iter_ = learner.n_iter
        W = self.weights_
        # fields are sums of rounded numbers: one that could be rounding alone counts as zero
        largest = max(W.max(), -W.min()) + np.abs(self.bias_).max()
        self.slack_ = float(len(W) * np.finfo(W.dtype).eps * largest)
        if self.rule == "optimal" and learner.n_iter >= learner.max_iter and not learner.converged:
            must = "every stored unit must have margin 1 under the optimal rule"
            do = f"Raise max_iter (now {self.max_iter}) or store fewer patterns."
            text = errors.wording("HopfieldNetwork", must, f"{self.margin_:.3g}", do)
            warnings.warn(text, ConvergenceWarning, stacklevel=2)

    def _recall(self, X: np.ndarray) -> np.ndarray:
        return self._run(X)[0]

    _transform = _recall

    def _run(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        W, b, s = self.weights_, self.bias_, self._signs(X).astype(self.weights_.dtype)
        trace = np.zeros((len(s), self.max_sweeps + 1))
        if self.update == "synchronous":
            s = _all_at_once(W, b, self.slack_, s, trace)
        else:
            with threads(work=s.size * FLIPS * len(W)):
                h = dot(W, s.T).T.astype(np.float64, order="C") + b
                _one_at_a_time(W, b, self.order_, self.slack_, s, h, trace)
        return s.astype(X.dtype), trace

    def _signs(self, X: np.ndarray) -> np.ndarray:
        return np.where(self.threshold > X, -1, 1).astype(X.dtype)


class CapacityCurve(NamedTuple):
    """How well stored patterns are kept, by load."""

    loads: np.ndarray
    """Patterns per unit, (k,)."""
    overlaps: np.ndarray
    """Mean of :math:`\\xi \\cdot s / n` between a pattern and its recall, (k,)."""
    critical: float
    """Load at which the overlap falls through ``level``; NaN if it never does."""


def capacity_curve(
    rule: str = "hebb",
    *,
    n_units: int = 500,
    loads: Any = (0.05, 0.08, 0.1, 0.12, 0.13, 0.14, 0.15, 0.16, 0.18, 0.2),
    noise: float = 0.0,
    repeats: int = 2,
    level: float = 0.967,
    random_state: Any = None,
    **params: Any,
) -> CapacityCurve:
    """Store more and more random patterns and see when recall loses them.

    Parameters
    ----------
    rule : {"hebb", "pseudo-inverse", "optimal"}, default="hebb"
        How the patterns are stored.
    n_units : int, default=500
        Units; more give a sharper fall and take longer.
    loads : array-like of float
        Numbers of patterns per unit, rising.
    noise : float, default=0.0
        Share of the units that are flipped before recall; more asks for larger basins.
    repeats : int, default=2
        Random networks per load.
    level : float, default=0.967
        Overlap below which the memory counts as lost. The default is Hebb's at the critical load 0.138
        of infinitely many units, where it jumps to 0.35; in few units the jump is a slope.
    random_state : int or RandomState, optional
        Seed for the patterns and the noise.
    **params
        Further parameters of :class:`HopfieldNetwork`.

    Returns
    -------
    CapacityCurve

    References
    ----------
    .. [1] D. Amit, H. Gutfreund, H. Sompolinsky (1985). Storing infinite numbers of patterns in a
       spin-glass model of neural networks. Physical Review Letters 55, 1530-1533.

    Examples
    --------
    >>> from corollary.connectionism import capacity_curve
    >>> capacity_curve(n_units=200, loads=[0.05, 0.4], random_state=0).overlaps.round(1)
    array([1. , 0.4])
    """
    loads = np.asarray(loads, float)
    if loads.ndim != 1 or not len(loads) or loads.min() <= 0 or (np.diff(loads) <= 0).any():
        raise errors.value("capacity_curve", "loads must be positive and rising", loads.tolist())
    if not 0 <= noise <= 1:
        raise errors.value("capacity_curve", "noise must be a share of the units, from 0 to 1", noise)
    for name, value in (("n_units", n_units), ("repeats", repeats)):
        if value < 1:
            raise errors.value("capacity_curve", f"{name} must be at least 1", value)
    network = HopfieldNetwork(rule, random_state=random_state, **params)
    rng = network._rng()
    sizes = [max(1, round(load * n_units)) for load in loads]
    trials = [[_overlap(network, P, n_units, noise, rng) for _ in range(repeats)] for P in sizes]
    overlaps = np.mean(trials, axis=1)
    below = np.flatnonzero(overlaps < level)
    if not len(below):
        return CapacityCurve(loads, overlaps, float("nan"))
    k = below[0]
    high = 1.0 if k == 0 else overlaps[k - 1]
    start = 0.0 if k == 0 else loads[k - 1]
    critical = start + (loads[k] - start) * (high - level) / (high - overlaps[k])
    return CapacityCurve(loads, overlaps, float(critical))


def _overlap(network: HopfieldNetwork, P: int, n: int, noise: float, rng: np.random.Generator) -> float:
    Xi = rng.choice(np.array([-1.0, 1.0], np.float32), (P, n))
    cues = Xi * np.where(rng.random((P, n)) < noise, -1, 1).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # above capacity the rule cannot converge
        network.fit(Xi)
    return float((network.recall(cues) * Xi).mean())
