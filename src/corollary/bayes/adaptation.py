r"""Warm-up of the samplers: step size by dual averaging, mass matrix from the covariance of the draws, in windows.

**Step size.** With :math:`\alpha_t` the acceptance probability of step :math:`t`, averaged over chains, and :math:`\delta` the
one that is wanted, :math:`\log\epsilon` follows

.. math::
    \bar h_t = \Big(1 - \frac{1}{t + t_0}\Big)\bar h_{t-1} + \frac{\delta - \alpha_t}{t + t_0}, \qquad
    \log\epsilon_t = \mu - \frac{\sqrt t}{\gamma}\bar h_t, \qquad
    \overline{\log\epsilon}_t = t^{-\kappa}\log\epsilon_t + (1 - t^{-\kappa})\overline{\log\epsilon}_{t-1}, \tag{1}

with :math:`\gamma = 0.05`, :math:`t_0 = 10`, :math:`\kappa = 0.75` and :math:`\mu = \log 10\epsilon_0`; sampling uses
:math:`\bar\epsilon` [1]_.

**Covariance.** After a fast phase of 75 steps come windows of 25, 50, 100, ... steps, and a last fast phase of 50. At the
end of each window the covariance of its draws, over all chains, becomes
:math:`\Sigma \leftarrow \frac{n}{n+5}\Sigma + 10^{-3}\frac{5}{n+5} I` (2), and the step size is found anew, as Stan does.
Stan adapts every chain alone; here the chains of a batch share both, so that a window has n_chains times the draws. A
warm-up of fewer than 150 steps has one window, after 15% of them and until 60%: the step size has the rest to settle (Stan
leaves it 10%).

References
----------
.. [1] M. D. Hoffman, A. Gelman (2014). The No-U-Turn sampler: adaptively setting path lengths in Hamiltonian Monte Carlo.
   JMLR 15, 1593-1623; equations 6 and 7.
.. [2] Stan Development Team. Stan reference manual, HMC algorithm parameters: automatic parameter tuning.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["COVARIANCES", "DualAveraging", "Spread", "windows"]

FAST, WINDOW, LAST = 75, 25, 50
GAMMA, T0, KAPPA = 0.05, 10.0, 0.75
COVARIANCES = ("identity", "diagonal", "dense")


def windows(warmup: int) -> tuple[int, list[int]]:
    """Return after how many steps the covariance begins to be learned, and the steps after which windows end.

    >>> windows(1000)
    (75, [100, 150, 250, 450, 950])
    >>> windows(100), windows(10)
    ((15, [60]), (10, []))
    """
    if warmup < 20:
        return warmup, []
    first, last, width = FAST, LAST, WINDOW
    if warmup < FAST + WINDOW + LAST:
        first, last = int(0.15 * warmup), int(0.4 * warmup)  # a step size takes dozens of steps to settle
        width = warmup - first - last
    ends, begin = [], first
    while begin < warmup - last:
        # a window that would leave no room for one twice as long takes the rest
        end = begin + width if begin + 3 * width <= warmup - last else warmup - last
        ends.append(end)
        begin, width = end, 2 * width
    return first, ends


class DualAveraging:
    """Dual averaging of the step size, eq. 1; ``state`` is all that it remembers."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.state = {"log_step": 0.0, "average": 0.0, "h": 0.0, "t": 0.0, "mu": 0.0}

    def restart(self, step: float) -> None:
        """Begin anew around a step size."""
        self.state = {
            "log_step": math.log(step),
            "average": 0.0,
            "h": 0.0,
            "t": 0.0,
            "mu": math.log(10 * step),
        }

    def update(self, acceptance: float) -> float:
        """Update with an acceptance probability; return the next step size."""
        s = self.state
        t = s["t"] + 1
        h = (1 - 1 / (t + T0)) * s["h"] + (self.target - acceptance) / (t + T0)
        log_step = s["mu"] - math.sqrt(t) / GAMMA * h
        share = t**-KAPPA
        average = share * log_step + (1 - share) * s["average"]
        self.state = {"log_step": log_step, "average": average, "h": h, "t": t, "mu": s["mu"]}
        return math.exp(log_step)

    def final(self) -> float:
        """Return the averaged step size; while it has hardly begun to settle, the smaller of first and last."""
        s = self.state
        start = math.exp(s["mu"]) / 10
        return math.exp(s["average"]) if s["t"] >= T0 else min(start, math.exp(s["log_step"]))


class Spread:
    """The estimated covariance of the target (the inverse mass matrix): its products with vectors, and draws from it.

    Parameters
    ----------
    kind : {"identity", "diagonal", "dense"}
        What is learned of it: nothing, the variances, or all of it.
    like : Tensor of shape (chains, d)
        Positions, for size, type and device.
    """

    def __init__(self, kind: str, like: Tensor) -> None:
        d = like.shape[1]
        self.kind = kind
        dense = kind == "dense"
        self.matrix = torch.eye(d, dtype=like.dtype, device=like.device) if dense else like.new_ones(d)
        self.factor = self.matrix.clone()  # its Cholesky factor, or square root
        self.forget()

    def forget(self) -> None:
        """Begin a window."""
        self.n = 0
        self.mean = torch.zeros_like(self.matrix[0] if self.kind == "dense" else self.matrix).double()
        self.squares = torch.zeros_like(self.matrix).double()

    @property
    def state(self) -> dict[str, Any]:
        """All that it remembers."""
        return {name: getattr(self, name) for name in ("matrix", "factor", "n", "mean", "squares")}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def update(self, theta: Tensor) -> None:
        """Update the running covariance (Welford) with the positions of all chains (chains, d)."""
        if self.kind == "identity":
            return
        theta = theta.double()
        count = len(theta)
        mean = theta.mean(0)
        centred, shift = theta - mean, mean - self.mean
        total = self.n + count
        weight = self.n * count / total
        if self.kind == "dense":
            self.squares = self.squares + centred.T @ centred + weight * torch.outer(shift, shift)
        else:
            self.squares = self.squares + centred.square().sum(0) + weight * shift.square()
        self.mean, self.n = self.mean + shift * (count / total), total

    def renew(self) -> None:
        """Use the covariance of the window, eq. 2, from now on, and begin another window."""
        if self.kind != "identity" and self.n > 1:
            n = self.n
            found = self.squares / (n - 1) * (n / (n + 5))
            ridge = 1e-3 * 5 / (n + 5)
            if self.kind == "dense":
                found.diagonal().add_(ridge)
                matrix = found.to(self.matrix.dtype)
                factor, failed = torch.linalg.cholesky_ex(matrix)
                if not int(failed):
                    self.matrix, self.factor = matrix, factor
            else:
                self.matrix = (found + ridge).to(self.matrix.dtype)
                self.factor = self.matrix.sqrt()
        self.forget()

    def apply(self, vectors: Tensor) -> Tensor:
        """Return the covariance times each row: a velocity from a momentum."""
        if self.kind == "identity":
            return vectors
        return vectors @ self.matrix if self.kind == "dense" else vectors * self.matrix

    def scale(self, noise: Tensor) -> Tensor:
        """Return rows with this covariance from rows of standard normal numbers."""
        return noise @ self.factor.T if self.kind == "dense" else noise * self.factor

    def unscale(self, noise: Tensor) -> Tensor:
        """Return rows whose covariance is the inverse: momenta."""
        if self.kind == "dense":
            return torch.linalg.solve_triangular(self.factor.T, noise.T, upper=True).T
        return noise / self.factor

    def whiten(self, vectors: Tensor) -> Tensor:
        """Return the transposed factor times each row: a gradient, in the units of the noise."""
        return vectors @ self.factor if self.kind == "dense" else vectors * self.factor
