r"""Exponential smoothing (Holt-Winters): level, trend and season of a series, and its innovations.

With a period of :math:`m` steps, the next value is expected to be

.. math:: \mu^{t+1} = \ell^t + \varphi b^t + s^{t+1-m}, \tag{1}

and what comes instead, :math:`e^{t+1} = x^{t+1} - \mu^{t+1}` (2), the innovation, moves each part by its share,

.. math:: \ell^{t+1} = \ell^t + \varphi b^t + \alpha e^{t+1}, \quad b^{t+1} = \varphi b^t + \beta e^{t+1}, \quad
   s^{t+1} = s^{t+1-m} + \gamma e^{t+1}, \tag{3}

with :math:`0 \le \beta \le \alpha \le 1` and :math:`0 \le \gamma \le 1 - \alpha`. Forecasts go on by (1) and (3) with
:math:`e = 0`: these are Holt's and Winters' methods, on logarithms their multiplicative forms. The shares minimise the
sum of squared innovations. Which parts there are is decided by

.. math:: \mathrm{AICc} = N \log \frac{\sum e^2}{N} + 2 \sum \log |dx/dz| + 2k + \frac{2k(k+1)}{N-k-1} \tag{4}

over :math:`N` steps with :math:`k` shares and initial values, where the series is :math:`z` after the logarithm; another
period, or logarithms, where forecasts from points in the last third of the series are clearly better with them; and so is
decided whether the first season is the mean of the first four of them or of ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corollary.compiled import njit

__all__ = [
    "Smoother",
    "State",
    "acf",
    "candidate_seasons",
    "fit_smoother",
    "is_level_stationary",
    "season_of",
]

STEPS = 6000  # most steps that the choice of a form looks at
START = 10  # steps that the first level and slope are read from
SEASONS = (4, 10)  # first seasons that the first season may be averaged over
LONGEST_SEASON = 400
CLEARLY = 0.9  # of the error that the form of least AICc makes: where another has less, it is taken instead
AHEAD = 24  # steps ahead that those forecasts reach
ORIGINS = 12  # points in time that they start from, in each series
TRENDS = ("none", "damped", "linear")
DAMPING = (0.8, 0.98)  # between which damping is looked for: nearer to 1 cannot be told from a line
KPSS = 0.463  # of a series around one level, the statistic exceeds this in 5 % of cases
TINY = 1e-12


# --- the recursion, compiled -----------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _first(x, m, trend, most, state):  # pragma: no cover - compiled
    """Write the level, slope and season before the first step into ``state`` (2 + m), from ``most`` seasons or fewer."""
    n = len(x)
    state[:] = 0.0
    if m > 1 and n >= 2 * m:
        whole = min(n // m, most)
        first, last = x[:m].mean(), x[(whole - 1) * m : whole * m].mean()
        slope = (last - first) / ((whole - 1) * m)
        middle = x[: whole * m].mean() - slope * (whole * m - 1) / 2
        for t in range(whole * m):
            state[2 + t % m] += (x[t] - middle - slope * t) / whole
        state[0] = middle - slope if trend else first
        state[1] = slope if trend else 0.0
        return
    k = min(n, START)
    mean = x[:k].mean()
    if not trend or k < 3:
        state[0] = mean if not trend else x[0]
        return
    slope, spread = 0.0, 0.0
    for t in range(k):
        slope += (t - (k - 1) / 2) * x[t]
        spread += (t - (k - 1) / 2) ** 2
    state[1] = slope / spread
    state[0] = mean - state[1] * ((k - 1) / 2 + 1)


@njit(cache=True, nogil=True)
def _run(x, m, share, state, errors):  # pragma: no cover - compiled
    """Go through one series by eqs. 1-3 from ``state``, which ends at its end; write the innovations."""
    alpha, beta, gamma, phi = share[0], share[1], share[2], share[3]
    level, slope = state[0], state[1]
    place = 0
    for t in range(len(x)):
        season = state[2 + place]
        e = x[t] - (level + phi * slope + season)
        errors[t] = e
        level += phi * slope + alpha * e
        slope = phi * slope + beta * e
        state[2 + place] = season + gamma * e
        place = place + 1 if place + 1 < m else 0
    state[0], state[1] = level, slope


@njit(cache=True, nogil=True)
def _loss(flat, ends, weights, m, trend, most, share):  # pragma: no cover - compiled
    """Return the weighted sum of squared innovations of all series."""
    state, begin, total = np.empty(2 + m), 0, 0.0
    for i in range(len(ends)):
        x = flat[begin : ends[i]]
        errors = np.empty(len(x))
        _first(x, m, trend, most, state)
        _run(x, m, share, state, errors)
        total += weights[i] * (errors * errors).sum()
        begin = ends[i]
    return total


@njit(cache=True, nogil=True)
def _shares(u, low, high):  # pragma: no cover - compiled
    """Return alpha, beta, gamma, phi for a point of the unit cube, within their bounds."""
    return np.array([u[0], u[0] * u[1], (1 - u[0]) * u[2], low + (high - low) * u[3]])


@njit(cache=True, nogil=True)
def _search(flat, ends, weights, m, trend, most, free, low, high):  # pragma: no cover - compiled
    """Return the best shares, and their loss, by a pattern search from two points over the ``free`` coordinates."""
    best, least = np.zeros(4), np.inf
    for start in (0.1, 0.6):
        u = np.array([start, 0.1, 0.1, 0.9]) * free
        u[3] = 0.9 if free[3] > 0 else 1.0
        loss, step = _loss(flat, ends, weights, m, trend, most, _shares(u, low, high)), 0.25
        while step > 0.004:
            moved = False
            for j in range(4):
                if free[j] == 0:
                    continue
                for sign in (-1.0, 1.0):
                    v = u.copy()
                    v[j] = min(1.0, max(0.0, u[j] + sign * step))
                    found = _loss(flat, ends, weights, m, trend, most, _shares(v, low, high))
                    if found < loss:
                        u, loss, moved = v, found, True
            if not moved:
                step /= 2
        if loss < least:
            best, least = u, loss
    return _shares(best, low, high), least


@njit(cache=True, nogil=True)
def _run_all(flat, ends, m, trend, most, share, states, errors):  # pragma: no cover - compiled
    begin = 0
    for i in range(len(ends)):
        _first(flat[begin : ends[i]], m, trend, most, states[i])
        _run(flat[begin : ends[i]], m, share, states[i], errors[begin : ends[i]])
        begin = ends[i]


# --- what is learned of one feature ----------------------------------------------------------------------


@dataclass
class State:
    """Level, slope and season of n series at their ends; ``place`` is where in its season each stands."""

    level: np.ndarray
    slope: np.ndarray
    season: np.ndarray  # (n, m)
    place: np.ndarray

    def take(self, rows: np.ndarray) -> State:
        """Return the states of some of the series."""
        return State(self.level[rows], self.slope[rows], self.season[rows], self.place[rows])


@dataclass(frozen=True)
class Smoother:
    """One form of exponential smoothing with its shares: what is expected, and how to go on.

    ``mean`` stands for a form without parts, whose level never moves.
    """

    period: int = 1
    trend: str = "none"
    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 0.0
    phi: float = 1.0
    log: bool = False
    mean: float | None = None
    seasons: int = SEASONS[0]  # that the first season is averaged over

    def plain(self) -> dict[str, Any]:
        """Return the values, as a file holds them."""
        return asdict(self)

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return values as they are smoothed."""
        return np.log(x) if self.log else x

    def backward(self, z: np.ndarray) -> np.ndarray:
        """Return smoothed values as they were given; what no float holds becomes the largest that is."""
        return np.exp(np.minimum(z, 700.0)) if self.log else z

    def run(self, flat: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, State]:
        """Return the innovations of series that lie one after another, and the state at each one's end."""
        lengths = np.asarray(lengths, dtype=np.int64)
        if int(lengths.sum()) != len(flat) or (len(lengths) and lengths.min() < 1):
            raise ValueError("lengths must be positive and sum to the number of values")
        flat, m = np.ascontiguousarray(flat, dtype=np.float64), int(self.period)
        errors, states = np.empty(len(flat)), np.zeros((len(lengths), 2 + m))
        share = np.array([self.alpha, self.beta, self.gamma, self.phi])
        if self.mean is not None:
            errors[:], states[:, 0] = flat - self.mean, self.mean
        else:
            most = int(self.seasons)
            _run_all(flat, np.cumsum(lengths), m, self.trend != "none", most, share, states, errors)
        return errors, State(states[:, 0], states[:, 1], states[:, 2:], lengths % m)

    def expect(self, state: State) -> np.ndarray:
        """Return eq. 1 for each series."""
        return state.level + self.phi * state.slope + state.season[np.arange(len(state.level)), state.place]

    def advance(self, state: State, e: np.ndarray) -> State:
        """Return the state one step on, by eq. 3."""
        if self.mean is not None:
            return state
        rows, carried = np.arange(len(state.level)), self.phi * state.slope
        season = state.season.copy()
        season[rows, state.place] += self.gamma * e
        level = state.level + carried + self.alpha * e
        return State(level, carried + self.beta * e, season, (state.place + 1) % int(self.period))


# --- the choice ------------------------------------------------------------------------------------------


def acf(x: np.ndarray, lags: int) -> np.ndarray:
    """Return the autocorrelations of a centred series at lags 0 to ``lags``."""
    size = 2 ** int(np.ceil(np.log2(2 * len(x))))
    own = np.fft.irfft(np.abs(np.fft.rfft(x, size)) ** 2)[: lags + 1]
    return own / max(own[0], TINY)


def _centred(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the changes from step to step, and what a straight line leaves of the series."""
    d, t = np.diff(x), np.arange(len(x)) - (len(x) - 1) / 2
    return d - d.mean(), x - x.mean() - t * (t @ x) / max(t @ t, TINY)


def candidate_seasons(parts: Sequence[np.ndarray], most: int = 3) -> list[int]:
    """Return lags (2 or more) at which series are most like themselves, best first.

    Autocorrelations are averaged over the series that are long enough for two seasons; peaks count that stand out from
    those of noise, of the changes and of what a line leaves.
    """
    found: dict[int, float] = {}
    usable = [np.asarray(x, dtype=np.float64)[-STEPS:] for x in parts if len(x) >= 8]
    if not usable:
        return []
    shortest = int(np.median([len(x) for x in usable]))
    usable = [x for x in usable if len(x) >= shortest][:50]
    lags = min(shortest // 2, LONGEST_SEASON)
    for kind in (0, 1):
        own = np.mean([acf(_centred(x)[kind], lags + 1) for x in usable], 0)
        noise = 2 / np.sqrt(sum(map(len, usable)))
        inner = np.arange(2, min(lags, len(own) - 2) + 1)
        peak = (own[inner] >= own[inner - 1]) & (own[inner] >= own[inner + 1]) & (own[inner] > noise)
        ranked = sorted(inner[peak].tolist(), key=lambda lag: -own[lag])
        for lag in [lag for lag in ranked if not any(_repeats(lag, r, own) for r in ranked)][:most]:
            found[lag] = max(found.get(lag, 0.0), float(own[lag]))
    return sorted(found, key=lambda lag: -found[lag])[: most + 1]


def _repeats(lag: int, other: int, own: np.ndarray) -> bool:
    """Whether a lag only repeats a shorter one, whose period need not be whole."""
    times = round(lag / other)
    return times > 1 and abs(lag - times * other) <= times / 2 and bool(own[lag] < 1.1 * own[other])


def season_of(x: Any) -> int:
    """Return the lag (2 or more) at which a series is most like itself; 1 if at none.

    >>> season_of(np.sin(2 * np.pi * np.arange(120) / 12))
    12
    """
    return next(iter(candidate_seasons([np.asarray(x, dtype=np.float64).ravel()])), 1)


def is_level_stationary(parts: Sequence[np.ndarray]) -> bool:
    """Whether series stay around one level, by the statistic of Kwiatkowski, Phillips, Schmidt and Shin."""
    found = []
    for x in parts[:50]:
        x = np.asarray(x, dtype=np.float64)[-STEPS:]
        r = x - x.mean()
        lags = min(len(x) - 1, int(4 * (len(x) / 100) ** 0.25) + 1)
        taper = 1 - np.arange(1, lags + 1) / (lags + 1)
        own = np.array([r[k:] @ r[:-k] for k in range(1, lags + 1)])
        spread = (r @ r + 2 * taper @ own) / len(x)
        found.append(np.mean(np.cumsum(r) ** 2) / len(x) / max(spread, TINY))
    return bool(np.median(found) < KPSS)


def fit_smoother(
    parts: Sequence[np.ndarray], period: int | str | None = "auto", log: bool | None = None
) -> Smoother:
    """Return the form that forecasts one feature of some series best, with its shares.

    Parameters
    ----------
    parts : sequence of ndarray of shape (t,)
        The series. What they share is learned; each begins with a level, slope and season of its own.
    period : int, "auto" or None
        Steps in a season; "auto" tries those that the autocorrelation suggests, None has no season.
    log : bool, optional
        Whether to take logarithms; by default where all values are positive and forecasts are better so.
    """
    parts = _few([np.asarray(x, dtype=np.float64) for x in parts])
    positive = min(x.min() for x in parts) > 0
    best: dict[tuple[bool, int], tuple[float, Smoother]] = {}
    for logged in [False, True] if log is None and positive else [bool(log)]:
        z = [np.log(x) for x in parts] if logged else list(parts)
        stretch = 2 * float(sum(x.sum() for x in z)) if logged else 0.0
        for m in _periods(z, period):
            forms = [_fitted(z, m, trend, logged, stretch) for trend in TRENDS]
            forms += [_flat(z, logged, stretch)] if m == 1 else []
            best[logged, m] = _steadier(min(forms, key=lambda form: form[0]), parts, z, stretch)
    ranked = [smoother for _, smoother in sorted(best.values(), key=lambda form: form[0])]
    missed = [_missed(smoother, parts) for smoother in ranked] if len(ranked) > 1 else [0.0]
    best_of_all = int(np.argmin(missed))
    return ranked[best_of_all if missed[best_of_all] < CLEARLY * missed[0] else 0]


def _steadier(
    form: tuple[float, Smoother], parts: list[np.ndarray], z: list[np.ndarray], stretch: float
) -> tuple[float, Smoother]:
    """Return a form with its first season averaged over more of them, if that forecasts better."""
    score, smoother = form
    if smoother.period == 1 or np.median([len(x) for x in z]) < (SEASONS[0] + 1) * smoother.period:
        return form
    other = _fitted(z, smoother.period, smoother.trend, smoother.log, stretch, SEASONS[1])[1]
    return (score, other) if _missed(other, parts) < CLEARLY * _missed(smoother, parts) else form


def _periods(z: list[np.ndarray], period: int | str | None) -> list[int]:
    if period != "auto":
        return [int(period or 1)]
    short = np.quantile([len(x) for x in z], 0.1)  # nearly all series show two seasons or more
    return [1, *(m for m in candidate_seasons(z) if 2 * m <= short)]


def _missed(smoother: Smoother, parts: list[np.ndarray]) -> float:
    """Return the mean absolute error of forecasts from points in the last third of the series, in steps of each series."""
    wrong = []
    for x in parts:
        ahead = max(1, min(AHEAD, len(x) // 6))
        origins = np.unique(np.linspace(max(2, len(x) - len(x) // 3), len(x) - ahead, ORIGINS).astype(int))
        origins = origins[origins >= 2]
        if not len(origins):
            continue
        z = smoother.forward(x)
        _, state = smoother.run(np.concatenate([z[:t] for t in origins]), origins)
        usual = np.abs(np.diff(x)).mean() + TINY
        for k in range(ahead):
            wrong.append(np.abs(smoother.backward(smoother.expect(state)) - x[origins + k]) / usual)
            state = smoother.advance(state, np.zeros(len(origins)))
    return float(np.mean(np.concatenate(wrong))) if wrong else 0.0


def _few(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Return the ends of at most 60 series, of at most ``STEPS`` steps together."""
    some = [parts[i] for i in np.unique(np.linspace(0, len(parts) - 1, 60).astype(int))]
    return [x[-max(2, STEPS // len(some)) :] for x in some]


def _aicc(loss: float, k: int, stretch: float, z: list[np.ndarray], weights: np.ndarray) -> float:
    """Return eq. 4, where the variance of series i is the common one over its weight; without enough steps the worst."""
    n = sum(map(len, z))
    least = TINY * float(sum(w * ((x - x.mean()) ** 2).sum() for w, x in zip(weights, z))) + TINY**2
    own = -float(sum(len(x) * np.log(w) for w, x in zip(weights, z)))
    small = 2 * k * (k + 1) / (n - k - 1) if n - k - 1 > 0 else 1e9 + k
    return n * np.log(max(loss, least) / n) + own + stretch + 2 * k + small


def _fitted(
    z: list[np.ndarray], m: int, trend: str, log: bool, stretch: float, seasons: int = SEASONS[0]
) -> tuple[float, Smoother]:
    """Return eq. 4 and the smoother of one form; series count equally, whatever their scale."""
    flat, ends = np.concatenate(z), np.cumsum([len(x) for x in z])
    weights = _weights(z)
    free = np.array([1.0, trend != "none", m > 1, trend == "damped"])
    low, high = DAMPING if trend == "damped" else (1.0, 1.0)
    share, loss = _search(flat, ends, weights, m, trend != "none", seasons, free, low, high)
    k = int(free.sum()) + len(z) * (1 + (trend != "none") + (m if m > 1 else 0))
    score = _aicc(loss, k, stretch, z, weights)
    alpha, beta, gamma, phi = map(float, share)
    return score, Smoother(m, trend, alpha, beta, gamma, phi, log, None, seasons)


def _flat(z: list[np.ndarray], log: bool, stretch: float) -> tuple[float, Smoother]:
    flat = np.concatenate(z)
    mean = float(flat.mean())
    weights = _weights(z)
    loss = float(sum(w * ((x - mean) ** 2).sum() for w, x in zip(weights, z)))
    return _aicc(loss, 1, stretch, z, weights), Smoother(alpha=0.0, log=log, mean=mean)


def _weights(z: list[np.ndarray]) -> np.ndarray:
    """Return one over the mean squared change of each series, times their mean: all have a like say."""
    change = np.array([np.mean(np.diff(x) ** 2) if len(x) > 1 else 0.0 for x in z])
    usual = change[change > 0].mean() if (change > 0).any() else 1.0
    return usual / np.where(change > 0, change, usual)
