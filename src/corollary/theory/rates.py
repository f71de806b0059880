r"""Convergence rates: what theorems guarantee for an optimiser on a model and data, beside what is measured.

The loss :math:`f = \frac1n \sum_i f_i` is strongly convex, :math:`\mu \le \nabla^2 f \le L`, between the start :math:`w_0`
and the minimum :math:`w^*`, which are measured; :math:`\kappa = L/\mu` is its condition, :math:`\delta_t = f(w_t) - f^*` the
gap, and :math:`L_{\max}` the largest smoothness of one sample.

*Gradient descent* with :math:`\eta = 1/L`: :math:`\delta_t \le (1 - 1/\kappa)^t \delta_0` (1).

*Heavy ball* with :math:`\eta = 4 / (\sqrt L + \sqrt\mu)^2` and
:math:`\beta = \bigl(\frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\bigr)^2`. On a quadratic :math:`w_t - w^* = p_t(H) (w_0 - w^*)` with

.. math:: p_{t+1}(\lambda) = (1 + \beta - \eta\lambda)\, p_t(\lambda) - \beta\, p_{t-1}(\lambda), \qquad
    \delta_t \le \max_{\mu \le \lambda \le L} p_t(\lambda)^2\, \delta_0, \tag{2}

which falls as :math:`t^2 \beta^t`.

*Nesterov's method* with :math:`\eta = 1/L` and :math:`\beta = \frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}`:

.. math:: \delta_t \le \Bigl(1 - \frac{1}{\sqrt\kappa}\Bigr)^t
    \Bigl( \delta_0 + \frac\mu2 \lVert w_0 - w^* \rVert^2 \Bigr). \tag{3}

*SGD* on single samples with :math:`\eta < 1 / L_{\max}` and noise
:math:`\sigma^2 = \frac1n \sum_i \lVert \nabla f_i(w^*) \rVert^2` goes down to a floor:

.. math:: \mathbb E \lVert w_t - w^* \rVert^2 \le \bigl(1 - 2\eta\mu(1 - \eta L_{\max})\bigr)^t \lVert w_0 - w^* \rVert^2
    + \frac{\eta\,\sigma^2}{\mu (1 - \eta L_{\max})}. \tag{4}

*SVRG* with :math:`m` steps between anchors, each anchor the mean of the iterates:

.. math:: \mathbb E\, \delta_{s+1} \le \Bigl( \frac{1}{\mu\eta(1 - 2\eta L_{\max})\, m}
    + \frac{2\eta L_{\max}}{1 - 2\eta L_{\max}} \Bigr) \mathbb E\, \delta_s. \tag{5}

*Newton's method* with a Hessian that is :math:`M`-Lipschitz:

.. math:: \lVert w_{t+1} - w^* \rVert \le \frac{M}{2\mu} \lVert w_t - w^* \rVert^2. \tag{6}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corollary import errors, optim
from corollary.optim.directions import variance_reduced
from corollary.theory.convergence import minimise
from corollary.theory.hessian import Surface, eigenvalues, lanczos, sample_loss, sample_smoothness, surface_of

__all__ = ["THEOREMS", "Decay", "decay"]

SEGMENT = 5  # points between start and minimum at which the curvature is measured
GRID = 4001  # eigenvalues at which the polynomials of eq. 2 are evaluated
SVRG_STEP = 0.1  # times 1 / L_max
SVRG_LENGTH = 50  # times L_max / mu: the factor of eq. 5 is then one half


class Decay(NamedTuple):
    """An optimiser's measured decay and its bound, entry t after t steps (SVRG: t anchors)."""

    optimizer: str
    quantity: str  # "gap" of the loss, "squared distance" or "distance" to the minimum
    measured: np.ndarray
    bound: np.ndarray
    learning_rate: float
    momentum: float
    smoothness: float
    strong_convexity: float

    @property
    def condition(self) -> float:
        """The ratio of smoothness and strong convexity."""
        return self.smoothness / self.strong_convexity

    @property
    def holds(self) -> bool:
        """Whether the measured decay is below the bound, rounding aside."""
        floor = 1e-13 * max(1.0, float(self.measured[0]))
        return bool((self.measured <= self.bound * (1 + 1e-6) + floor).all())

    @property
    def factor(self) -> float:
        """The factor per step at which the measured quantity falls, over the second half of what is above rounding."""
        seen = self.measured[self.measured > 1e-12 * self.measured[0]]
        half = len(seen) // 2
        return float((seen[-1] / seen[half]) ** (1 / max(1, len(seen) - 1 - half)))


class Setting(NamedTuple):
    """A surface at its start, its minimum, and the curvatures between."""

    surface: Surface
    start: Tensor
    best: Tensor
    least: float
    L: float
    mu: float

    def gap(self) -> float:
        """Return the present loss above the least."""
        return max(0.0, self.surface.value() - self.least)

    def distance(self) -> float:
        """Return the distance to the minimum."""
        return float((self.surface.get() - self.best).norm())


def decay(
    model: Any,
    data: Any = None,
    optimizer: str = "gd",
    *,
    loss: Any = None,
    steps: int = 100,
    repeats: int = 10,
    random_state: int = 0,
) -> Decay:
    """Run an optimiser with the step sizes of its theorem, and return the measured decay beside the promised one.

    Parameters
    ----------
    model, data, loss
        As in :class:`corollary.theory.hessian.Surface`; the loss must be strongly convex between here and the minimum. The model
        is left as it is; computations are in double precision.
    optimizer : {"gd", "heavy-ball", "nesterov", "sgd", "svrg", "newton"}
        Whose theorem, eqs. 1 to 6.
    steps : int, default=100
        How many; for SVRG the anchors, between each of which lie 50 L_max / mu steps.
    repeats : int, default=10
        Runs over which SGD and SVRG are averaged.
    random_state : int, default=0
        Of the samples that are drawn.

    Examples
    --------
    >>> import torch
    >>> X = torch.diag(torch.tensor([1.0, 2.0, 3.0]))
    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> found = decay(model, (X, torch.ones(3, 1)), "nesterov", loss="half_squared", steps=40)
    >>> found.holds, round(found.condition, 3)
    (True, 9.0)
    """
    if optimizer not in THEOREMS:
        raise errors.unknown("decay", "theorem for an optimiser", optimizer, THEOREMS)
    if steps < 1 or repeats < 1:
        raise errors.value("decay", "steps and repeats must be at least 1", f"{steps} and {repeats}")
    setting = _setting(surface_of(model, data, loss).copy(torch.float64))
    rng = np.random.default_rng(random_state)
    quantity, measured, bound, rate, momentum = THEOREMS[optimizer](setting, steps, repeats, rng)
    return Decay(
        optimizer, quantity, np.array(measured), np.array(bound), rate, momentum, setting.L, setting.mu
    )


def _setting(surface: Surface) -> Setting:
    """Find the minimum, and the extreme curvatures on the segment to it."""
    start = surface.get()
    minimise(surface)
    polish = optim.Newton(surface.params, damping=0.0, tol=1e-12, max_iter=10 * min(surface.size, 100))
    for _ in range(3):
        with surface.quiet():
            polish.step(
                lambda: sum(surface.on_batch(x, y) * (len(x) / surface.rows) for x, y in surface.batches)
            )
    best, least = surface.get(), surface.value()
    tops, bottoms = [], []
    for share in np.linspace(0, 1, SEGMENT):
        surface.put(torch.lerp(best, start, float(share)))
        ends = eigenvalues(surface, tol=1e-9, max_iter=400)
        tops.append(float(ends.top[0]))
        bottoms.append(float(ends.bottom[0]))
    surface.put(start)
    L, mu = max(tops), min(bottoms)
    if not mu > 1e-10 * L:
        do = "Add a penalty such as weight decay to the loss, or see constants for the Polyak-Lojasiewicz rate."
        raise errors.value(
            "decay", "the loss must be strongly convex between here and its minimum", f"mu = {mu:.3g}", do
        )
    return Setting(surface, start, best, least, L, mu)


# --- descent, equations 1 to 3 ---------------------------------------------------------------------------


def _run(setting: Setting, name: str, steps: int, **options: Any) -> list[float]:
    """Return the gaps along an optimiser; Nesterov's are at the points that its theorem is about."""
    surface = setting.surface
    surface.put(setting.start)
    optimizer = optim.create(name, surface.params, **options)
    gaps = [setting.gap()]
    for _ in range(steps):
        _, g = surface.slope()
        for p, part in zip(surface.params, g.split([p.numel() for p in surface.params])):
            p.grad = part.view_as(p).clone()
        optimizer.step()
        looked = surface.get()
        if name == "nesterov":  # torch keeps the point that looks ahead: x = y + lr * momentum * velocity
            velocity = torch.cat([optimizer.state[p]["momentum_buffer"].reshape(-1) for p in surface.params])
            surface.put(looked + options["lr"] * options["momentum"] * velocity)
        gaps.append(setting.gap())
        surface.put(looked)
    return gaps


def _gd(s: Setting, steps: int, repeats: int, rng: Any) -> tuple[Any, ...]:
    gaps = _run(s, "gd", steps, lr=1 / s.L)
    return "gap", gaps, gaps[0] * (1 - s.mu / s.L) ** np.arange(steps + 1), 1 / s.L, 0.0


def _heavy_ball(s: Setting, steps: int, repeats: int, rng: Any) -> tuple[Any, ...]:
    root = math.sqrt(s.L / s.mu)
    rate, beta = 4 / (math.sqrt(s.L) + math.sqrt(s.mu)) ** 2, ((root - 1) / (root + 1)) ** 2
    gaps = _run(s, "heavy-ball", steps, lr=rate, momentum=beta)
    grid = np.linspace(s.mu, s.L, GRID)
    polynomials = [np.ones(GRID), 1 - rate * grid]
    for _ in range(steps - 1):
        polynomials.append((1 + beta - rate * grid) * polynomials[-1] - beta * polynomials[-2])
    return "gap", gaps, gaps[0] * (np.array(polynomials) ** 2).max(1), rate, beta


def _nesterov(s: Setting, steps: int, repeats: int, rng: Any) -> tuple[Any, ...]:
    root = math.sqrt(s.L / s.mu)
    beta = (root - 1) / (root + 1)
    gaps = _run(s, "nesterov", steps, lr=1 / s.L, momentum=beta)
    energy = gaps[0] + 0.5 * s.mu * float((s.start - s.best).norm()) ** 2
    return "gap", gaps, energy * (1 - 1 / root) ** np.arange(steps + 1), 1 / s.L, beta


# --- single samples, equations 4 and 5 -------------------------------------------------------------------


def _samples(s: Setting) -> tuple[Tensor, Tensor, float]:
    """Return all rows, and the largest smoothness of one of them at the start and at the minimum."""
    x, y = (torch.cat(parts) for parts in zip(*s.surface.batches))
    largest = []
    for point in (s.start, s.best):
        s.surface.put(point)
        largest.append(sample_smoothness(s.surface).max())
    return x, y, float(max(largest))


def _slopes(surface: Surface) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the gradients (k, p) of k samples' losses, each at parameters of its own (k, p)."""
    from torch.func import grad, vmap

    return vmap(grad(sample_loss(surface)))  # type: ignore[no-any-return]


def _squared(W: Tensor, s: Setting) -> float:
    """Return the mean squared distance of several points (k, p) to the minimum."""
    return float((W - s.best).square().sum(1).mean())


def _sgd(s: Setting, steps: int, repeats: int, rng: np.random.Generator) -> tuple[Any, ...]:
    x, y, L = _samples(s)
    rate = 1 / (4 * L)
    W, measured = s.start.repeat(repeats, 1), []
    with s.surface.quiet():
        slopes = _slopes(s.surface)
        noise = float(slopes(s.best.repeat(len(x), 1), x, y).square().sum(1).mean())
        for rows in torch.from_numpy(rng.integers(0, len(x), (steps, repeats))):
            measured.append(_squared(W, s))
            W = W - rate * slopes(W, x[rows], y[rows])
    measured.append(_squared(W, s))
    contraction, floor = 1 - 2 * rate * s.mu * (1 - rate * L), rate * noise / (s.mu * (1 - rate * L))
    bound = measured[0] * contraction ** np.arange(steps + 1) + floor
    return "squared distance", measured, bound, rate, 0.0


def _svrg(s: Setting, steps: int, repeats: int, rng: np.random.Generator) -> tuple[Any, ...]:
    x, y, L = _samples(s)
    rate, length = SVRG_STEP / L, math.ceil(SVRG_LENGTH * L / s.mu)
    factor = 1 / (s.mu * rate * (1 - 2 * rate * L) * length) + 2 * rate * L / (1 - 2 * rate * L)
    anchors, measured = s.start.repeat(repeats, 1), []
    with s.surface.quiet():
        slopes = _slopes(s.surface)
        for _ in range(steps):
            measured.append(_gaps(s, anchors))
            full = torch.stack([slopes(w.expand(len(x), -1), x, y).mean(0) for w in anchors])
            W, mean = anchors, torch.zeros_like(anchors)
            for rows in torch.from_numpy(rng.integers(0, len(x), (length, repeats))):
                both = slopes(torch.cat([W, anchors]), torch.cat([x[rows]] * 2), torch.cat([y[rows]] * 2))
                W = W - rate * variance_reduced(both[:repeats], both[repeats:], full)
                mean += W / length
            anchors = mean
    measured.append(_gaps(s, anchors))
    return "gap", measured, measured[0] * factor ** np.arange(steps + 1), rate, 0.0


def _gaps(s: Setting, W: Tensor) -> float:
    """Return the mean gap of several points (k, p)."""
    found = []
    for w in W:
        s.surface.put(w)
        found.append(s.gap())
    return float(np.mean(found))


# --- Newton, equation 6 ----------------------------------------------------------------------------------


def _newton(s: Setting, steps: int, repeats: int, rng: Any) -> tuple[Any, ...]:
    surface = s.surface
    surface.put(s.start)
    optimizer = optim.Newton(surface.params, damping=0.0, tol=1e-14, max_iter=10 * surface.size)
    measured, bound = [s.distance()], [s.distance()]
    for _ in range(steps):
        here, M = surface.get(), _lipschitz(s)
        with surface.quiet():
            optimizer.step(
                lambda: sum(surface.on_batch(x, y) * (len(x) / surface.rows) for x, y in surface.batches)
            )
        bound.append(M / (2 * s.mu) * float((here - s.best).norm()) ** 2)
        measured.append(s.distance())
        if measured[-1] <= 1e-8 * max(1.0, measured[0]):  # what is left is rounding
            break
    return "distance", measured, bound, 1.0, 0.0


def _lipschitz(s: Setting) -> float:
    """Return how fast the Hessian changes between here and the minimum, at most, per unit of distance."""
    here, found = s.surface.get(), []
    v = torch.randn(s.surface.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(here)
    s.surface.put(s.best)
    base = s.surface.copy().curvature()
    for share in np.linspace(0, 1, SEGMENT)[1:]:
        point = torch.lerp(s.best, here, float(share))
        s.surface.put(point)
        there = s.surface.curvature()
        change = np.abs(lanczos(lambda u, there=there: there(u) - base(u), v, 100).ritz()[0]).max()
        found.append(float(change) / max(float((point - s.best).norm()), 1e-300))
    s.surface.put(here)
    return max(found)


THEOREMS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "gd": _gd,
    "heavy-ball": _heavy_ball,
    "nesterov": _nesterov,
    "newton": _newton,
    "sgd": _sgd,
    "svrg": _svrg,
}
