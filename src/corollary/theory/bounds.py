r"""Generalisation bounds: Hoeffding, VC, Rademacher, PAC-Bayes; and the double-descent curve.

Each holds with probability at least :math:`1 - \delta` over n independent samples. For one fixed function with losses in [0, 1]

.. math:: |R - \hat R| \le \sqrt{\ln(2/\delta) / 2n}; \tag{1}

for all functions of a class whose labellings of 2n points number at most
:math:`S(2n) \le \sum_{i \le d} \binom{2n}{i}` (VC dimension d)

.. math:: R \le \hat R + 2 \sqrt{2 (\ln S(2n) + \ln(2/\delta)) / n}; \tag{2}

for a class of functions to :math:`\{-1, 1\}` with empirical Rademacher complexity
:math:`\mathfrak R = \mathbb E_\sigma \sup_f \frac1n \sum_i \sigma_i f(x_i)`

.. math:: R \le \hat R + \mathfrak R + 3 \sqrt{\ln(2/\delta) / 2n}; \tag{3}

and for a network with random weights, drawn from Q, whatever Q is, and a prior P chosen before the data are seen

.. math:: \mathrm{kl}(\hat R_Q \,\Vert\, R_Q) \le \frac{\mathrm{KL}(Q \Vert P) + \ln(2 \sqrt n / \delta)}{n}, \tag{4}

where kl is the divergence of two coins; hence
:math:`R_Q \le \hat R_Q + \sqrt{(\mathrm{KL} + \ln(2 \sqrt n/\delta)) / 2n}` (5). Q and P are
Gaussian here: independent weights :math:`\mathcal N(\theta, \sigma^2)` against :math:`\mathcal N(\theta_0, \lambda)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb, log
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from corollary.errors import kind, value
from corollary.validation import as_tensor

__all__ = [
    "Certificate",
    "Complexity",
    "DoubleDescent",
    "StochasticNetwork",
    "certificate",
    "double_descent",
    "growth",
    "hoeffding",
    "pac_bayes",
    "rademacher",
    "rademacher_bound",
    "vc_bound",
]


def _check(owner: str, n: Any, delta: float) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise value(owner, "n must be a number of samples, at least 1", repr(n))
    if not 0 < delta < 1:
        raise value(owner, "delta must lie between 0 and 1", delta)


# --- a fixed function, a finite dimension -------------------------------------------------------------------


def hoeffding(n: int, delta: float = 0.05) -> float:
    """Return how far training and true error of one fixed function can differ, in either direction, eq. 1.

    Examples
    --------
    >>> round(hoeffding(1000), 4)
    0.0429
    """
    _check("hoeffding", n, delta)
    return math.sqrt(log(2 / delta) / (2 * n))


def growth(n: int, vc: int) -> int:
    """Return the most labellings of n points that a class of this VC dimension has (Sauer).

    >>> growth(3, 3), growth(10, 2)
    (8, 56)
    """
    return sum(comb(n, i) for i in range(min(n, vc) + 1))


def vc_bound(n: int, vc: int, delta: float = 0.05) -> float:
    """Return by how much the true error of any function of a class exceeds its training error at most, eq. 2.

    Parameters
    ----------
    n : int
        Samples.
    vc : int
        The VC dimension of the class.
    delta : float, default=0.05
        The probability with which the bound may fail.

    Examples
    --------
    >>> round(vc_bound(10_000, 3), 3)
    0.159
    """
    _check("vc_bound", n, delta)
    if vc < 0:
        raise value("vc_bound", "vc must not be negative", vc)
    return 2 * math.sqrt(2 * (log(growth(2 * int(n), int(vc))) + log(2 / delta)) / n)


# --- Rademacher complexity ----------------------------------------------------------------------------------


class Complexity(NamedTuple):
    """An empirical Rademacher complexity and the standard error of its measurement."""

    value: float
    error: float


def rademacher(model: Any, X: Any = None, *, draws: int = 100, random_state: int | None = None) -> Complexity:
    """Measure the empirical Rademacher complexity of a class of functions.

    Parameters
    ----------
    model : array of shape (functions, n), or classifier
        The values of every function of a finite class on the samples; or a classifier, which is fitted to random labels, and
        the correlation it reaches is the supremum as far as its training finds it.
    X : array of shape (n, ...)
        The samples, for a classifier.
    draws : int, default=100
        Random labellings.
    random_state : int, optional
        Their seed.

    Examples
    --------
    >>> rademacher(np.array([[1.0, 1, 1, 1], [-1, -1, -1, -1]]), draws=2000, random_state=0).value > 0.3
    True
    """
    if draws < 2:
        raise value("rademacher", "draws must be at least 2", draws)
    rng = np.random.default_rng(random_state)
    if hasattr(model, "fit"):
        found = _by_fitting(model, X, draws, rng)
    else:
        outputs = np.asarray(model, np.float64)
        if outputs.ndim != 2 or not outputs.size:
            raise value("rademacher", "a finite class is an array (functions, n)", f"shape {outputs.shape}")
        signs = rng.choice([-1.0, 1.0], size=(outputs.shape[1], draws))
        found = (outputs @ signs).max(0) / outputs.shape[1]
    return Complexity(float(found.mean()), float(found.std(ddof=1) / math.sqrt(draws)))


def _by_fitting(model: Any, X: Any, draws: int, rng: np.random.Generator) -> np.ndarray:
    from sklearn.base import clone

    if X is None:
        raise value("rademacher", "a classifier needs samples", "X=None", "Pass X.")
    found = []
    while len(found) < draws:
        signs = rng.choice([-1, 1], size=len(X))
        if abs(signs.sum()) < len(X):  # classifiers want two classes
            found.append(float(np.mean(signs * clone(model).fit(X, signs).predict(X))))
    return np.array(found)


def rademacher_bound(train_error: float, complexity: float, n: int, delta: float = 0.05) -> float:
    """Return a bound of the true error of any classifier of a class from its complexity, eq. 3.

    >>> round(rademacher_bound(0.1, 0.05, 1000), 3)
    0.279
    """
    _check("rademacher_bound", n, delta)
    return train_error + complexity + 3 * math.sqrt(log(2 / delta) / (2 * n))


# --- PAC-Bayes ----------------------------------------------------------------------------------------------


def _coins(q: float, p: float) -> float:
    """Return the divergence of two coins with heads of probability q and p."""
    heads = q * log(q / p) if q > 0 else 0.0
    return heads + ((1 - q) * log((1 - q) / (1 - p)) if q < 1 else 0.0)


def _inverse(q: float, limit: float) -> float:
    """Return the largest p with kl(q || p) of at most the limit."""
    if q >= 1 or _coins(q, 1 - 1e-15) <= limit:
        return 1.0
    return float(brentq(lambda p: _coins(q, p) - limit, max(q, 1e-300), 1 - 1e-15, xtol=1e-12))


def pac_bayes(error: float, kl: float, n: int, delta: float = 0.05, form: str = "kl") -> float:
    """Return a bound of the true error of a randomised classifier, eq. 4, or eq. 5 for the form "root".

    Parameters
    ----------
    error : float
        Its mean training error.
    kl : float
        The divergence of the posterior from the prior, in nats.
    n : int
        Training samples, none of which the prior has seen.
    delta : float, default=0.05
        The probability with which the bound may fail.
    form : {"kl", "root"}, default="kl"
        The exact inverse, or the square root that is above it.

    Examples
    --------
    >>> round(pac_bayes(0.02, 500.0, 10_000), 3), round(pac_bayes(0.02, 500.0, 10_000, form="root"), 3)
    (0.1, 0.179)
    """
    _check("pac_bayes", n, delta)
    if not 0 <= error <= 1 or not kl >= 0:
        raise value("pac_bayes", "error must lie in [0, 1], and kl must not be negative", f"{error} and {kl}")
    room = (kl + log(2 * math.sqrt(n) / delta)) / n
    if form == "root":
        return error + math.sqrt(room / 2)
    if form != "kl":
        raise value("pac_bayes", "form must be 'kl' or 'root'", repr(form))
    return _inverse(error, room)


class Certificate(NamedTuple):
    """What PAC-Bayes guarantees of a stochastic network."""

    bound: float  # of its true error, with probability 1 - delta
    error: float  # its training error, in the mean over drawn weights
    error_bound: float  # of the training error over all weights, from the draws
    kl: float  # nats between posterior and prior
    n: int
    delta: float


class StochasticNetwork(nn.Module):
    """A network whose weights are drawn anew for every batch, from Gaussians around trained means.

    The prior is centred at the weights that the module has when it is wrapped: random ones, or ones learned from other data.
    ``fit`` minimises the PAC-Bayes bound, and :func:`certificate` evaluates it.

    Parameters
    ----------
    module : torch.nn.Module
        A classifier of logits.
    prior_std : float, default=0.1
        The first spread of the weights, and of the prior; ``fit`` adjusts both.

    References
    ----------
    .. [1] G. Dziugaite, D. Roy (2017). Computing nonvacuous generalization bounds for deep (stochastic) neural networks with
       many more parameters than training data. UAI.
    .. [2] M. Pérez-Ortiz, O. Rivasplata, J. Shawe-Taylor, C. Szepesvári (2021). Tighter risk certificates for neural
       networks. JMLR 22.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(n_class=2, return_X_y=True)
    >>> X = torch.tensor(X / 16, dtype=torch.float32)
    >>> net = StochasticNetwork(nn.Linear(64, 2)).fit(X, y, epochs=100, random_state=0)
    >>> bool(certificate(net, X, y, draws=50, random_state=0).bound < 0.5)
    True
    """

    GRID = 100.0  # prior spreads are exp(-j / GRID), each with its share of delta, so that one can be chosen afterwards

    def __init__(self, module: nn.Module, prior_std: float = 0.1) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise kind("StochasticNetwork", "module must be a torch.nn.Module", type(module).__name__)
        if not 0 < prior_std < 1:
            raise value("StochasticNetwork", "prior_std must lie between 0 and 1", prior_std)
        self._base = [module]
        self.names = [name for name, p in module.named_parameters() if p.requires_grad]
        weights = dict(module.named_parameters())
        start = [weights[name].detach().clone() for name in self.names]
        self.means = nn.ParameterList(start)
        self.log_stds = nn.ParameterList(torch.full_like(w, log(prior_std)) for w in start)
        self.log_prior = nn.Parameter(torch.tensor(log(prior_std)))
        for i, w in enumerate(start):
            self.register_buffer(f"centre_{i}", w.clone())
        self.fitted = False

    @property
    def centres(self) -> list[Tensor]:
        """The weights at the middle of the prior."""
        return [getattr(self, f"centre_{i}") for i in range(len(self.names))]

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the logits of a batch under weights drawn for it."""
        drawn = {
            name: m + s.exp() * torch.randn(m.shape, generator=generator, dtype=m.dtype).to(m.device)
            for name, m, s in zip(self.names, self.means, self.log_stds)
        }
        return functional_call(self._base[0], drawn, (x,))

    def kl(self, log_prior: Tensor | None = None) -> Tensor:
        """Return the divergence of the posterior from the prior, in nats."""
        t = self.log_prior if log_prior is None else log_prior
        total = torch.zeros((), dtype=torch.float64)
        for m, s, c in zip(self.means, self.log_stds, self.centres):
            spread = ((2 * s).exp() + (m - c).square()).double() * (-2 * t).exp()
            total = total + 0.5 * (spread - 1 + 2 * (t - s)).sum()
        return total

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        epochs: int = 100,
        batch_size: int = 250,
        learning_rate: float = 1e-2,
        delta: float = 0.05,
        random_state: int = 0,
    ) -> StochasticNetwork:
        """Minimise the bound (5) of the cross-entropy, in units in which a uniform guess costs 1, by Adam; return self."""
        x, t, k = self._as_data(X, y)
        n, generator = len(x), torch.Generator().manual_seed(random_state)
        optimizer = torch.optim.Adam(self.parameters(), learning_rate)
        for _ in range(epochs):
            for part in torch.randperm(n, generator=generator).split(batch_size):
                logits = self(x[part], generator).log_softmax(1).clamp(min=-4 * log(k))
                loss = F.nll_loss(logits, t[part]) / log(k)
                room = (self.kl() + self._price(self.log_prior, delta) + log(2 * math.sqrt(n) / delta)) / n
                optimizer.zero_grad()
                (loss + (room / 2).sqrt()).backward()
                optimizer.step()
                with torch.no_grad():
                    self.log_prior.clamp_(-10, -1e-3)
        self.fitted = True
        return self

    def _price(self, log_prior: Tensor, delta: float) -> Tensor:
        """Return the cost in the bound of choosing the prior's variance, a union bound: the logarithm of pi^2 j^2 / 6."""
        j = (-self.GRID * log_prior).clamp(min=1)
        return 2 * j.log() + log(math.pi**2 / 6)

    def _as_data(self, X: Any, y: Any) -> tuple[Tensor, Tensor, int]:
        like = self.means[0]
        x = (X if isinstance(X, Tensor) else as_tensor(np.asarray(X))).to(like)
        t = (y if isinstance(y, Tensor) else as_tensor(np.asarray(y))).to(like.device)
        if len(x) != len(t) or t.ndim != 1 or t.is_floating_point():
            got = f"{len(x)} samples and labels of shape {tuple(t.shape)}"
            raise value("StochasticNetwork", "y must have one integer label per sample", got)
        with torch.no_grad():
            k = self._base[0](x[:1]).shape[-1]
        if t.min() < 0 or t.max() >= k:
            raise value("StochasticNetwork", f"labels must be from 0 to {k - 1}", f"{t.min()} to {t.max()}")
        return x, t.long(), k


@torch.no_grad()
def certificate(
    model: Any, X: Any, y: Any, *, delta: float = 0.05, draws: int = 1000, random_state: int = 0
) -> Certificate:
    """Return a bound of the true error of a stochastic network, eq. 4, from the data it was trained on.

    Parameters
    ----------
    model : StochasticNetwork
        The network, fitted.
    X, y : array of shape (n, ...) and integer labels (n,)
        The training data; the centre of the prior must not depend on them.
    delta : float, default=0.05
        The probability with which the bound may fail.
    draws : int, default=1000
        Weights that are drawn to measure the training error; a hundredth of delta pays for their number (Hoeffding's
        bound in the form of eq. 4).
    random_state : int, default=0
        Seed of the draws.
    """
    if not isinstance(model, StochasticNetwork):
        do = "Wrap the module in StochasticNetwork and fit that."
        raise kind("certificate", "the model must be trained stochastically", type(model).__name__, do)
    if not model.fitted:
        raise value(
            "certificate", "the stochastic network must be fitted", "one that is not", "Call its fit."
        )
    x, t, _ = model._as_data(X, y)
    n = len(x)
    _check("certificate", n, delta)
    generator = torch.Generator().manual_seed(random_state)
    wrong = [float((model(x, generator).argmax(1) != t).double().mean()) for _ in range(draws)]
    error = float(np.mean(wrong))
    upper = _inverse(error, log(2 / (0.01 * delta)) / draws)
    bounds = []
    near = -model.GRID * float(model.log_prior)
    for j in {max(1, math.floor(near)), max(1, math.ceil(near))}:  # the spread must lie on the grid
        log_prior = torch.tensor(-j / model.GRID, dtype=torch.float64)
        kl = float(model.kl(log_prior))
        share = 0.99 * delta * 6 / (math.pi * j) ** 2
        bounds.append((pac_bayes(upper, max(kl, 0.0), n, share), kl))
    bound, kl = min(bounds)
    return Certificate(bound, error, upper, kl, n, delta)


# --- double descent -----------------------------------------------------------------------------------------


class DoubleDescent(NamedTuple):
    """Errors of minimum-norm fits over the number of random features; medians over the repeats."""

    sizes: np.ndarray
    train: np.ndarray
    test: np.ndarray
    n_train: int

    @property
    def peak(self) -> int:
        """The size with the largest test error."""
        return int(self.sizes[self.test.argmax()])


def double_descent(
    X: Any,
    y: Any,
    sizes: Sequence[int] | None = None,
    *,
    n_train: int | None = None,
    repeats: int = 5,
    random_state: int | None = None,
) -> DoubleDescent:
    """Return the double-descent curve: the test error of least-norm fits on random ReLU features of one's data.

    Parameters
    ----------
    X, y : arrays of shape (n, d) and (n,) or (n, k)
        The data; the targets are numbers, or indicators of classes.
    sizes : sequence of int, optional
        Numbers of features; by default from a tenth to ten times ``n_train``.
    n_train : int, optional
        Training samples; the rest is tested on. Half of them by default.
    repeats : int, default=5
        Divisions and features that are drawn anew.
    random_state : int, optional
        Their seed.

    Returns
    -------
    DoubleDescent
        Mean squared errors; ``peak`` is where the test error is largest, near ``n_train``.

    Notes
    -----
    O(repeats * sizes * n_train² * size) by singular values.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 10))
    >>> found = double_descent(X, X[:, 0] + rng.normal(size=200), [5, 40, 400], n_train=40, random_state=0)
    >>> found.peak
    40
    """
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    n = len(X) // 2 if n_train is None else n_train
    if X.ndim != 2 or len(X) != len(y) or not 1 <= n < len(X):
        got = f"shapes {X.shape} and {y.shape}, n_train {n}"
        raise value("double_descent", "X (n, d) and y (n, ...) must fit, and leave samples to test on", got)
    if sizes is None:
        sizes = sorted(
            {max(1, round(n * ratio)) for ratio in (0.1, 0.3, 0.6, 0.8, 0.9, 1, 1.1, 1.3, 2, 4, 10)}
        )
    y, rng = y.reshape(len(y), -1), np.random.default_rng(random_state)
    X = (X - X.mean(0)) / np.maximum(X.std(), np.finfo(float).tiny)
    table = np.empty((2, repeats, len(sizes)))
    for r in range(repeats):
        order = rng.permutation(len(X))
        W = rng.normal(size=(X.shape[1], max(sizes))) / math.sqrt(X.shape[1])
        features = np.maximum(X[order] @ W + 0.5 * rng.normal(size=max(sizes)), 0)
        for s, size in enumerate(sizes):
            Phi = features[:, :size] / math.sqrt(size)
            weights = np.linalg.lstsq(Phi[:n], y[order[:n]], rcond=1e-12)[0]
            errors = np.square(Phi @ weights - y[order]).sum(1)
            table[:, r, s] = errors[:n].mean(), errors[n:].mean()
    train, test = np.median(table, axis=1)
    return DoubleDescent(np.array(sizes), train, test, n)
