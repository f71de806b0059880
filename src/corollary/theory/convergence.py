r"""Constants of convergence of a model's loss: smoothness, strong convexity, condition number, edge of stability.

At the present parameters the Hessian's extreme eigenvalues are the smoothness :math:`L` and the strong convexity
:math:`\mu` (negative where the loss is not convex); their ratio is the condition :math:`\kappa = L / \mu`. Gradient descent
with step :math:`1/L` on a loss that satisfies the Polyak-Lojasiewicz inequality

.. math:: \tfrac12 \lVert \nabla f(w) \rVert^2 \ge \mu_{\mathrm{PL}}\, \bigl( f(w) - f^* \bigr), \tag{1}

which strong convexity implies with :math:`\mu_{\mathrm{PL}} \ge \mu`, and which many losses satisfy that are not convex, has

.. math:: f(w_t) - f^* \le \Bigl(1 - \frac{\mu_{\mathrm{PL}}}{L}\Bigr)^t \bigl( f(w_0) - f^* \bigr). \tag{2}

*Edge of stability.* On a quadratic a step :math:`\eta` is stable while :math:`L < 2/\eta`. Full-batch descent on a network first
raises its sharpness (the top eigenvalue), up to :math:`2/\eta`, and then stays there while the loss goes on falling unevenly.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from corollary import errors, optim
from corollary.theory.hessian import Surface, eigenvalues, surface_of

__all__ = ["Constants", "Edge", "constants", "edge_of_stability", "minimise"]

VISIBLE = 1e-6  # share of the first gap below which a gap is rounding
HALVINGS = 30


class Constants(NamedTuple):
    """What is measured of a loss: see :func:`constants`."""

    smoothness: float
    strong_convexity: float
    condition: float
    polyak_lojasiewicz: float
    loss: float
    least: float
    gradient_norm: float
    parameters: int

    @property
    def learning_rate(self) -> float:
        """The step 1/L."""
        return 1 / self.smoothness if self.smoothness > 0 else math.inf

    def predicted(self, steps: int) -> np.ndarray:
        """Return the bound of eq. 2 on the gap after 0, ..., ``steps`` steps."""
        factor = min(1.0, max(0.0, 1 - self.polyak_lojasiewicz / self.smoothness))
        return (self.loss - self.least) * factor ** np.arange(steps + 1)


def constants(
    model: Any,
    data: Any = None,
    *,
    loss: Any = None,
    least: float | None = None,
    steps: int = 100,
    tol: float = 1e-6,
    max_iter: int = 300,
    random_state: int = 0,
) -> Constants:
    """Measure smoothness, strong convexity, condition and the Polyak-Lojasiewicz constant of a model's loss.

    Parameters
    ----------
    model, data, loss
        As in :class:`corollary.theory.hessian.Surface`. The model is left as it is.
    least : float, optional
        The least value of the loss. By default the least that L-BFGS finds from the end of the path below.
    steps : int, default=100
        Steps of gradient descent, of size 1/L, along which eq. 1 is measured. 0 leaves the constant out, as NaN.
    tol, max_iter, random_state
        Of :func:`corollary.theory.hessian.eigenvalues`. The condition is only as exact as the smallest eigenvalue:
        ``tol`` times the largest.

    Returns
    -------
    Constants
        ``smoothness`` (L) and ``strong_convexity`` are those at the present parameters. ``condition`` is infinite where the loss
        is not strongly convex there. ``polyak_lojasiewicz`` is the least ratio of eq. 1 on the path: what no constant of eq. 1
        exceeds, and exact for that path.

    Notes
    -----
    Up to ``max_iter`` products with the Hessian and ``steps`` gradients over all data.

    Examples
    --------
    >>> import torch
    >>> X = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> found = constants(model, (X, torch.ones(2, 1)), loss="half_squared")
    >>> round(found.smoothness, 6), round(found.strong_convexity, 6), round(found.condition, 4)
    (2.0, 0.5, 4.0)
    >>> round(found.polyak_lojasiewicz, 3)
    0.5
    """
    surface = surface_of(model, data, loss)
    ends = eigenvalues(surface, tol=tol, max_iter=max_iter, random_state=random_state)
    L, mu = float(ends.top[0]), float(ends.bottom[0])
    value, g = surface.slope()
    certain = mu > 2 * max(float(ends.bottom_errors[0]), torch.finfo(surface.dtype).eps * abs(L))
    ratio, lowest = (
        _along_descent(surface.copy(), L, steps, least) if steps else (math.nan, least or math.nan)
    )
    return Constants(
        L, mu, L / mu if certain else math.inf, ratio, value, lowest, float(g.norm()), surface.size
    )


def _along_descent(surface: Surface, L: float, steps: int, least: float | None) -> tuple[float, float]:
    """Return the least ratio of eq. 1 along gradient descent, and the least loss."""
    rate = 1 / L if L > 0 else 1.0
    found = []
    value, g = surface.slope()
    for _ in range(steps):
        found.append((value, float(g @ g)))
        w = surface.get()
        for _ in range(HALVINGS):  # where the curvature grows on the way, 1/L is too long
            surface.put(w - rate * g)
            after = surface.value()
            if after <= value or not g.any():
                break
            rate /= 2
        else:
            surface.put(w)
            break
        value, g = surface.slope()
    found.append((value, float(g @ g)))
    lowest = min(v for v, _ in found)
    if least is None:
        minimise(surface)
        least = min(lowest, surface.value())
    elif least > lowest:
        raise errors.value(
            "constants", "least must not exceed what descent reaches", f"{least:g} > {lowest:g}"
        )
    first = found[0][0] - least
    ratios = [slope / (2 * (v - least)) for v, slope in found if v - least > VISIBLE * first > 0]
    return min(ratios, default=math.nan), least


def minimise(surface: Surface, max_iter: int = 500) -> None:
    """Move the parameters to a minimum near them, by L-BFGS."""
    options = {"max_iter": max_iter, "tolerance_grad": 1e-12, "tolerance_change": 1e-15}
    optimizer = optim.create("lbfgs", surface.params, **options)

    def closure() -> float:
        value, g = surface.slope()
        for p, part in zip(surface.params, g.split([p.numel() for p in surface.params])):
            p.grad = part.view_as(p).clone()
        return value

    optimizer.step(closure)
    optimizer.zero_grad()


# --- edge of stability -----------------------------------------------------------------------------------


class Edge(NamedTuple):
    """Sharpness and loss along full-batch descent; ``limit`` is 2 over the step size."""

    steps: np.ndarray
    sharpness: np.ndarray
    losses: np.ndarray  # at every step
    limit: float

    @property
    def settled(self) -> float:
        """The median sharpness over the last third, as a share of the limit."""
        return float(np.median(self.sharpness[-max(1, len(self.sharpness) // 3) :]) / self.limit)


def edge_of_stability(
    model: Any,
    data: Any = None,
    *,
    learning_rate: float,
    steps: int = 500,
    every: int = 10,
    loss: Any = None,
    tol: float = 1e-3,
    random_state: int = 0,
) -> Edge:
    r"""Run full-batch gradient descent on a copy of the model, and measure its sharpness on the way.

    Parameters
    ----------
    model, data, loss
        As in :class:`corollary.theory.hessian.Surface`. The model is left as it is.
    learning_rate : float
        The step :math:`\eta`; the sharpness is expected to settle near :math:`2/\eta`.
    steps : int, default=500
        Of descent.
    every : int, default=10
        Steps between measurements.
    tol, random_state
        Of :func:`corollary.theory.hessian.eigenvalues`.
    """
    surface = surface_of(model, data, loss).copy()
    if not learning_rate > 0:
        raise errors.value("edge_of_stability", "learning_rate must be positive", learning_rate)
    if steps < 1 or every < 1:
        raise errors.value("edge_of_stability", "steps and every must be at least 1", f"{steps} and {every}")
    at, sharpness, losses = [], [], []
    for t in range(steps + 1):
        value, g = surface.slope()
        if not math.isfinite(value):
            do = "Lower learning_rate."
            raise errors.Diverged(
                f"edge_of_stability: the loss became {value} at step {t} ({learning_rate=:g}). {do}"
            )
        losses.append(value)
        if t % every == 0:
            ends = eigenvalues(surface, ends="top", tol=tol, max_iter=60, random_state=random_state)
            at.append(t)
            sharpness.append(float(ends.top[0]))
        surface.put(surface.get() - learning_rate * g)
    return Edge(np.array(at), np.array(sharpness), np.array(losses), 2 / learning_rate)
