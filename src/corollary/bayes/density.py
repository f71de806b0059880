r"""Log-densities that samplers draw from: one vectorised function (chains, d) -> (chains,), and posteriors of data.

A sampler needs :math:`\log p(\theta)` up to a constant, and its gradient, for all chains at once. One backward pass through the
sum over chains gives the gradients of all, because the value of a chain depends on its own row only. A posterior is

.. math:: \log p(\theta \mid x) = \log p(\theta) + \sum_{i=1}^N \log p(x_i \mid \theta) + \text{const}, \tag{1}

and a batch :math:`b` of :math:`n` rows estimates it without bias by
:math:`\log p(\theta) + \frac Nn \sum_{i \in b} \log p(x_i \mid \theta)` (2). A log-density that has a method
``gradient(theta)``, (chains, d) -> (chains, d), is asked for its gradient there, which is compared with torch's at the start;
a :class:`Posterior` with a ``transition``, as :class:`~corollary.bayes.LogisticPosterior`, makes whole transitions of HMC itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary import errors
from corollary.engine.run import current
from corollary.validation import as_tensor

__all__ = ["Posterior", "Target", "as_start"]

LogDensity = Callable[[Tensor], Tensor]
ROUGHLY = 1e-2  # relative difference of two gradients that is more than rounding in single precision


class Posterior:
    """The log-density of a posterior: a prior, and a likelihood of rows of data.

    Every sampler takes it as a log-density; :class:`~corollary.bayes.SGLD` and :class:`~corollary.bayes.SGHMC` estimate it from
    batches of the rows, equation (2) of :mod:`corollary.bayes.density`.

    Parameters
    ----------
    log_prior : callable
        ``log_prior(theta)``, (chains, d) -> (chains,).
    log_likelihood : callable
        ``log_likelihood(theta, *rows)``, (chains, d) and n rows -> (chains, n): one value per chain and row.
    *data : array-like
        Tensors or arrays of one length, such as X and y; the likelihood is called with rows of them.

    Examples
    --------
    >>> import torch
    >>> from corollary.bayes import Posterior
    >>> mean = Posterior(
    ...     lambda t: -0.5 * t.square().sum(1), lambda t, x: -0.5 * (x - t).square(), torch.tensor([1.0, 3.0])
    ... )
    >>> mean(torch.zeros(2, 1))
    tensor([-5., -5.])
    """

    def __init__(self, log_prior: LogDensity, log_likelihood: Callable[..., Tensor], *data: Any) -> None:
        self.log_prior, self.log_likelihood = log_prior, log_likelihood
        self.data = tuple(
            as_tensor(part) if hasattr(part, "__array__") else torch.as_tensor(part) for part in data
        )
        lengths = {len(part) if part.ndim else 0 for part in self.data}
        if len(lengths) != 1 or 0 in lengths:
            got = [tuple(part.shape) for part in self.data]
            raise errors.value("Posterior", "data must be arrays of one length of at least 1", got)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.data[0])

    def __call__(self, theta: Tensor) -> Tensor:
        """Return eq. 1, (chains, d) -> (chains,)."""
        return self._prior(theta) + self._rows(theta, self.data).sum(1)

    def estimate(self, theta: Tensor, rows: Tensor) -> Tensor:
        """Return eq. 2 for a batch of row numbers."""
        batch = tuple(part[rows] for part in self.data)
        return self._prior(theta) + self._rows(theta, batch).sum(1) * (len(self) / len(rows))

    def _prior(self, theta: Tensor) -> Tensor:
        found = self.log_prior(theta)
        if not isinstance(found, Tensor) or found.shape != theta.shape[:1]:
            must = f"log_prior must return one value per chain, a tensor of shape ({len(theta)},)"
            raise errors.value("Posterior", must, _shape(found), "Sum over the last axis.")
        return found

    def _rows(self, theta: Tensor, rows: tuple[Tensor, ...]) -> Tensor:
        found = self.log_likelihood(theta, *rows)
        if not isinstance(found, Tensor) or found.shape != (len(theta), len(rows[0])):
            must = f"log_likelihood must return one value per chain and row, {(len(theta), len(rows[0]))}"
            do = "Sum over everything but chains and rows."
            raise errors.value("Posterior", must, _shape(found), do)
        return found


class Target:
    """A checked log-density: values and gradients for all chains; what is not a number counts as outside the support.

    Parameters
    ----------
    function : callable
        The log-density, (chains, d) -> (chains,).
    owner : str
        Name of the sampler, used at the start of error messages.
    """

    def __init__(self, function: LogDensity, owner: str) -> None:
        if not callable(function):
            do = "Pass a function of a tensor (chains, d) that returns a tensor (chains,)."
            raise errors.kind(owner, "log_density must be a function", type(function).__name__, do)
        self.function, self.owner = function, owner
        own = getattr(function, "gradient", None)
        self.own: LogDensity | None = own if callable(own) else None  # a gradient that it brings itself
        self.transition = getattr(function, "transition", None) if isinstance(function, Posterior) else None
        self.invalid = 0  # values that were NaN or plus infinity
        self.run = current()
        self.world = self.run.world

    @torch.no_grad()
    def value(self, theta: Tensor) -> Tensor:
        """Return the log-density of each row."""
        (found,) = self._divided(lambda t: (self._checked(self.function(t), t),), theta, 1)
        return self._valid(found, theta)

    def gradient(self, theta: Tensor, function: LogDensity | None = None) -> tuple[Tensor, Tensor]:
        """Return log-densities (chains,) and their gradients (chains, d)."""
        if self.own is not None and function is None:
            return self.value(theta), self.slope(theta)
        found, slopes = self._divided(lambda t: self._recorded(function or self.function, t), theta, 2)
        return self._valid(found, theta), slopes

    def slope(self, theta: Tensor) -> Tensor:
        """Return the gradients (chains, d) alone: what a path needs between its ends."""
        if self.own is None:
            return self.gradient(theta)[1]
        return self._divided(self._brought, theta, 2)[1]

    def _recorded(self, function: LogDensity, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and gradients by torch."""
        with torch.enable_grad():
            theta = theta.detach().requires_grad_()
            found = self._checked(function(theta), theta)
            if not found.requires_grad:
                must, do = "log_density must have a gradient", "Compute it with torch from its argument."
                raise errors.value(
                    self.owner, must, "a value that does not depend on theta differentiably", do
                )
            (gradient,) = torch.autograd.grad(found, theta, torch.ones_like(found))
        return found.detach(), gradient

    def _brought(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return no values, and the gradients that the log-density brings itself."""
        found = self.own(theta)  # type: ignore[misc]
        if not isinstance(found, Tensor) or found.shape != theta.shape:
            must = f"log_density.gradient must return a tensor of the shape of theta, {tuple(theta.shape)}"
            raise errors.value(self.owner, must, _shape(found))
        return theta[:, 0], found.detach()

    def _divided(
        self, call: Callable[[Tensor], tuple[Tensor, ...]], theta: Tensor, parts: int
    ) -> tuple[Tensor, ...]:
        """Return values (chains,) and, of two parts, gradients (chains, d): each process calls for its share of the chains."""
        if self.world == 1:
            return call(theta)
        share = self.run.shard(len(theta))
        full = theta.new_zeros(len(theta), 1 if parts == 1 else 1 + theta.shape[1])
        if share.start < share.stop:
            own = call(theta[share])
            full[share] = torch.cat([part.reshape(len(part), -1) for part in own], 1).to(full.dtype)
        full = self.run.sum(full)
        return (full[:, 0],) if parts == 1 else (full[:, 0], full[:, 1:])

    def _checked(self, found: Any, theta: Tensor) -> Tensor:
        """Return the values of the log-density; raise unless there is one per chain."""
        if (
            not isinstance(found, Tensor)
            or found.shape != theta.shape[:1]
            or not torch.is_floating_point(found)
        ):
            must = f"log_density must return one float per chain, a tensor of shape ({len(theta)},)"
            do = f"Its argument has shape {tuple(theta.shape)}: sum over the last axis, or use torch.func.vmap."
            raise errors.value(self.owner, must, _shape(found), do)
        return found

    def _valid(self, values: Tensor, theta: Tensor) -> Tensor:
        if math.isfinite(float(values.sum())):
            return values
        strange = values.isnan() | values.isposinf()
        # The end of a path that has diverged is not the function's fault.
        self.invalid += int((strange & theta.detach().isfinite().all(1)).sum())
        return values.masked_fill(strange, -torch.inf)

    def check(self, start: Tensor, gradients: bool = True) -> None:
        """Raise unless chains can start here: values and gradients are finite, and rows do not mix."""
        try:
            values = self.value(start)
        except (IndexError, RuntimeError, TypeError) as error:
            must = f"log_density must take a tensor of shape {tuple(start.shape)}, a row per chain"
            do = "Write it for all chains at once, or pass torch.func.vmap(log_density)."
            raise errors.value(self.owner, must, _first_line(error), do) from error
        if not bool(values.isfinite().all()):
            chain = int((~values.isfinite()).nonzero()[0, 0])
            what = "NaN or plus infinity" if self.invalid else "minus infinity"
            got = f"{what} for chain {chain}, at {_few(start[chain])}"
            raise errors.value(
                self.owner, "log_density must be finite at the start", got, "Start inside the support."
            )
        if not gradients:
            return
        if not bool(self.gradient(start)[1].isfinite().all()):
            must, do = (
                "the gradient of log_density must be finite at the start",
                "Start elsewhere, or use Metropolis.",
            )
            raise errors.value(self.owner, must, f"NaN or infinity near {_few(start[0])}", do)
        if self.own is not None:
            self._check_own(start)
        if len(start) > 1 and self._mixes(start):
            do = "Sum over the last axis only."
            raise errors.value(
                self.owner, "the value of a chain must depend on its own row only", "one that mixes rows", do
            )

    def _check_own(self, start: Tensor) -> None:
        """Raise unless the gradient that a log-density brings is its gradient."""
        own, found = self.slope(start), self.gradient(start, self.function)[1]
        gap, size = float((own - found).abs().max()), float(found.abs().max())
        if not gap <= ROUGHLY * max(size, 1.0):
            must = "log_density.gradient must be the gradient of log_density"
            raise errors.value(
                self.owner, must, f"a difference of {gap:.2g} at the start, where it is {size:.2g}"
            )

    def _mixes(self, start: Tensor) -> bool:
        """Whether the value of the first chain depends on another one's position."""
        with torch.enable_grad():
            theta = start.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.function(theta)[0], theta)
        return bool((gradient[1:] != 0).any())


def as_start(start: Any, n_chains: int, owner: str, device: Any = "cpu") -> Tensor:
    """Return where each chain starts, (n_chains, d), from one point for all or one row each."""
    # a copy: a data frame's values may be read-only
    given = start if isinstance(start, Tensor) else np.array(start)
    if not isinstance(given, Tensor) and given.dtype.kind not in "fiub":
        raise errors.kind(owner, "start must hold numbers", f"{given.dtype} of shape {given.shape}")
    theta = torch.as_tensor(given)
    theta = theta.to(device if not isinstance(start, Tensor) else theta.device).detach()
    theta = theta if theta.dtype in (torch.float32, torch.float64) else theta.double()
    if theta.ndim == 1:
        theta = theta.expand(n_chains, -1)
    if theta.ndim != 2 or len(theta) != n_chains or not theta.shape[1]:
        must = f"start must have shape (d,), or ({n_chains}, d) with a row per chain"
        raise errors.value(owner, must, f"shape {tuple(given.shape)}", "Set n_chains to the number of rows.")
    if not bool(theta.isfinite().all()):
        raise errors.value(owner, "start must be finite", "NaN or infinity")
    return theta.contiguous().clone()


def _shape(found: Any) -> str:
    if isinstance(found, Tensor):
        return f"{str(found.dtype).removeprefix('torch.')} of shape {tuple(found.shape)}"
    return type(found).__name__


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}".rstrip(".")


def _few(point: Tensor) -> str:
    text = ", ".join(f"{x:.3g}" for x in point[:5].tolist())
    return f"({text}{', …' if len(point) > 5 else ''})"
