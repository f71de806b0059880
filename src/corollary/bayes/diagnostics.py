r"""Convergence diagnostics of chains: R-hat, effective sample size, Monte-Carlo standard error, energy fraction.

The draws :math:`\theta_{cs}` of one parameter, :math:`C` chains of :math:`S` draws, are cut into halves, so that a trend
within a chain counts as a difference between chains; below, :math:`C` and :math:`S` are those of the halves. With
:math:`B` the variance of the chains' means times :math:`S`, and :math:`W` the mean of their variances,

.. math:: \hat R = \sqrt{\frac{\frac{S-1}{S} W + \frac1S B}{W}}. \tag{1}

It is computed of ranks, turned into normal scores :math:`\Phi^{-1}\big(\frac{r - 3/8}{CS + 1/4}\big)` (2), so that it needs
no finite variance, and of the ranks of :math:`|\theta - \mathrm{median}|`, so that it sees chains which differ in scale; the
larger of both counts. With the autocovariance :math:`\gamma_t` averaged over chains and
:math:`v = W\frac{S-1}{S} + \frac BS`,

.. math::
    \rho_t = 1 - \frac{W - \gamma_t}{v}, \qquad \tau = -1 + 2\sum_{k<K} P_k + \rho_{2K}^+, \qquad
    P_k = \min_{j \le k}(\rho_{2j} + \rho_{2j+1}), \qquad \mathrm{ESS} = \frac{CS}{\tau}, \tag{3}

where the sum ends before the first negative pair :math:`K` (Geyer's initial monotone sequence). *Bulk* ESS is (3) of the normal
scores, *tail* ESS the smaller of those of the indicators of both 5% tails, and the Monte-Carlo standard error of the mean is
:math:`\mathrm{sd} / \sqrt{\mathrm{ESS}}` (4), with the ESS of the draws themselves. For Hamiltonian samplers with energies
:math:`E_s`, the energy fraction :math:`\sum_s (E_s - E_{s-1})^2 / \sum_s (E_s - \bar E)^2` (5) should not be below 0.3.
These are the definitions of [1]_, which Stan and ArviZ use.

References
----------
.. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner (2021). Rank-normalization, folding, and localization: an
   improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2), 667-718.
.. [2] M. Betancourt (2016). Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo. arXiv:1604.00695.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import rankdata

from corollary import errors

__all__ = ["bfmi", "ess", "mcse", "r_hat", "summary", "to_arviz"]

FEWEST = 4  # draws per chain: two halves of two
BLOCK = 2**24  # numbers whose autocovariances are computed at once


def check_draws(draws: Any, owner: str) -> np.ndarray:
    """Return draws as a float64 array of shape (chains, draws, d)."""
    values = np.asarray(draws.detach().cpu() if hasattr(draws, "detach") else draws)
    if values.ndim not in (2, 3) or values.dtype.kind not in "fiub":
        do = "One parameter may have shape (chains, draws)."
        got = f"{values.dtype} of shape {values.shape}"
        raise errors.value(owner, "draws must be numbers of shape (chains, draws, d)", got, do)
    values = values[..., None] if values.ndim == 2 else values
    if values.shape[1] < FEWEST or not values.shape[0]:
        got = f"{values.shape[0]} chains of {values.shape[1]}"
        raise errors.value(
            owner, f"there must be a chain of at least {FEWEST} draws", got, "Draw more of them."
        )
    return values.astype(np.float64, copy=False)


def halves(x: np.ndarray) -> np.ndarray:
    """Cut every chain in two, (C, S, d) -> (2C, S // 2, d); of an odd number the middle draw is left out."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def normal_scores(x: np.ndarray) -> np.ndarray:
    """Return the ranks over all chains as normal scores, eq. 2."""
    C, S, d = x.shape
    ranks = rankdata(x.reshape(C * S, d), axis=0)
    return np.asarray(ndtri((ranks - 0.375) / (C * S + 0.25))).reshape(C, S, d)


def plain_r_hat(x: np.ndarray) -> np.ndarray:
    """Return eq. 1 of chains (C, S, d) as they are; NaN for a parameter that never moves."""
    S = x.shape[1]
    between, within = x.mean(1).var(0, ddof=1), x.var(1, ddof=1).mean(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt((between + within * (S - 1) / S) / within))


def autocovariance(x: np.ndarray) -> np.ndarray:
    """Return the autocovariances (S, d) of chains (C, S, d), averaged over chains, by the Fourier transform."""
    S = x.shape[1]
    length, x = next_fast_len(2 * S, real=True), x - x.mean(1, keepdims=True)
    out = np.empty(x.shape[1:])
    step = max(1, BLOCK // (len(x) * length))
    for i in range(0, x.shape[2], step):
        spectrum = np.abs(rfft(x[:, :, i : i + step], length, axis=1)) ** 2
        out[:, i : i + step] = irfft(spectrum.mean(0), length, axis=0)[:S] / S
    return out


def plain_ess(x: np.ndarray) -> np.ndarray:
    """Return eq. 3 of chains (C, S, d) as they are; a parameter that never moves counts every draw."""
    C, S, d = x.shape
    gamma = autocovariance(x)
    W = gamma[0] * S / (S - 1)
    v = gamma[0] + (x.mean(1).var(0, ddof=1) if C > 1 else 0.0)
    still = np.ptp(x.reshape(C * S, d), axis=0) < np.finfo(np.float64).resolution
    rho = 1 - (W - gamma) / np.where(still, 1.0, v)
    rho[0] = 1.0
    n_pairs = max(1, (S - 3) // 2 + 1 if S > 3 else 1)
    even, odd = rho[: 2 * n_pairs : 2], rho[1 : 2 * n_pairs : 2]
    pair = even + odd
    negative = pair < 0
    K = np.where(negative.any(0), negative.argmax(0), n_pairs - 1)  # the first that is not summed whole
    inside = np.arange(n_pairs)[:, None] < K
    last = np.take_along_axis(even, K[None], 0)[0]
    last = np.where(np.take_along_axis(negative, K[None], 0)[0], last.clip(0), last)
    tau = -1 + 2 * np.where(inside, np.minimum.accumulate(pair, 0), 0.0).sum(0) + last
    out = C * S / np.maximum(tau, 1 / np.log10(C * S))
    return np.where(still, float(C * S), out)


def _both(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return R-hat and bulk ESS, which share the ranks."""
    split = halves(x)
    scores = normal_scores(split)
    folded = np.abs(split - np.median(split.reshape(-1, x.shape[2]), axis=0))
    return np.fmax(plain_r_hat(scores), plain_r_hat(normal_scores(folded))), plain_ess(scores)


def _tail(x: np.ndarray) -> np.ndarray:
    ordered = np.sort(x.reshape(-1, x.shape[2]), axis=0)
    edges = (_quantile(ordered, p) for p in (0.05, 0.95))
    return np.minimum(*(plain_ess(halves((x <= edge).astype(np.float64))) for edge in edges))


def _quantile(ordered: np.ndarray, p: float) -> np.ndarray:
    """Return a quantile of ordered draws (n, d); which of two draws it falls on is rounded as SciPy and ArviZ do."""
    n = len(ordered)
    place = n * p + (1 + p * -1)
    k = min(max(int(place), 1), n - 1)
    share = min(max(place - k, 0.0), 1.0)
    return np.asarray((1 - share) * ordered[k - 1] + share * ordered[k])


def r_hat(draws: Any) -> np.ndarray:
    """Return the rank-normalised split R-hat of every parameter, (d,); above 1.01 the chains have not mixed.

    >>> import numpy as np
    >>> apart = np.random.default_rng(0).normal(size=(4, 500, 2)) + [[[0, 0]], [[0, 0]], [[0, 0]], [[0, 1]]]
    >>> r_hat(apart) > 1.01
    array([False,  True])
    """
    return _both(check_draws(draws, "r_hat"))[0]


def ess(draws: Any, kind: str = "bulk") -> np.ndarray:
    """Return the effective sample size of every parameter, (d,): of its "bulk", its "tail", or its "mean"."""
    x = check_draws(draws, "ess")
    kinds = {"bulk": lambda: _both(x)[1], "tail": lambda: _tail(x), "mean": lambda: plain_ess(halves(x))}
    if kind not in kinds:
        raise errors.unknown("ess", "kind", kind, kinds)
    return kinds[kind]()


def mcse(draws: Any) -> np.ndarray:
    """Return the Monte-Carlo standard error of the mean of every parameter, (d,), eq. 4."""
    x = check_draws(draws, "mcse")
    return np.asarray(x.std((0, 1), ddof=1) / np.sqrt(plain_ess(halves(x))))


def bfmi(energy: Any) -> np.ndarray:
    """Return the energy fraction of every chain, (chains,), eq. 5, of energies (chains, draws)."""
    energy = check_draws(energy, "bfmi")[..., 0]
    return np.asarray(np.square(np.diff(energy)).mean(1) / energy.var(1, ddof=1))


def summary(draws: Any, names: Sequence[str] | None = None) -> Any:
    """Return mean, spread, error and diagnostics of every parameter as a data frame.

    Parameters
    ----------
    draws : array-like of shape (chains, draws, d) or (chains, draws)
        Draws of any sampler.
    names : sequence of str, optional
        Names of the parameters, one each.

    Returns
    -------
    DataFrame
        A row per parameter: ``mean``, ``sd``, ``mcse_mean``, ``ess_bulk``, ``ess_tail``, ``r_hat``.

    Examples
    --------
    >>> import numpy as np
    >>> table = summary(np.random.default_rng(0).normal(size=(4, 1000, 1)), ["x"])
    >>> list(table.columns)
    ['mean', 'sd', 'mcse_mean', 'ess_bulk', 'ess_tail', 'r_hat']
    >>> bool(table.loc["x", "r_hat"] < 1.01)
    True
    """
    import pandas as pd

    x = check_draws(draws, "summary")
    d = x.shape[2]
    names = [f"theta[{i}]" for i in range(d)] if names is None else [str(name) for name in names]
    if len(names) != d:
        raise errors.value("summary", f"there must be a name for each of {d} parameters", len(names))
    rhat, bulk = _both(x)
    columns = {
        "mean": x.mean((0, 1)),
        "sd": x.std((0, 1), ddof=1),
        "mcse_mean": mcse(x),
        "ess_bulk": bulk,
        "ess_tail": _tail(x),
        "r_hat": rhat,
    }
    return pd.DataFrame(columns, index=pd.Index(names, name="parameter"))


# What ArviZ calls the statistics of a draw.
ARVIZ = {"log_density": "lp", "acceptance": "acceptance_rate"}


def to_arviz(
    draws: Any, statistics: Mapping[str, Any] | None = None, names: Sequence[str] | None = None
) -> Any:
    """Return draws (chains, draws, d), and statistics (chains, draws) of each, as ArviZ's ``InferenceData``.

    With ``names`` every parameter is a variable of its own; otherwise they are one variable, ``theta``.
    """
    x = check_draws(draws, "to_arviz")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about ArviZ's own next version
            import arviz
    except ImportError as error:
        raise errors.missing("to_arviz", "arviz", "bayes") from error
    if names is not None and len(names) != x.shape[2]:
        raise errors.value(
            "to_arviz", f"there must be a name for each of {x.shape[2]} parameters", len(names)
        )
    variables = {"theta": x} if names is None else {str(n): x[..., i] for i, n in enumerate(names)}
    stats = {ARVIZ.get(key, key): np.asarray(value) for key, value in (statistics or {}).items()}
    return arviz.from_dict(posterior=variables, sample_stats=stats or None)
