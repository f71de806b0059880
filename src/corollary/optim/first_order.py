r"""Two first-order methods that torch does not have: SignSGD and the subgradient method.

*Sign descent* moves every parameter by the same amount,

.. math:: w' = w - \eta\, \mathrm{sign}(g), \tag{1}

whatever the size of the gradient. A *subgradient* :math:`g` of a convex function that has kinks, with
:math:`f(u) \ge f(w) + g^\top (u - w)` for all :math:`u`, need not be a direction of descent, so
:math:`w_{t+1} = w_t - \alpha_t g_t` needs steps that shrink and an average:

.. math:: \alpha_t = \frac{\eta}{\sqrt t}, \qquad \bar w_t = \Bigl(1 - \frac1t\Bigr) \bar w_{t-1} + \frac1t\, w_t, \tag{2}

after which :math:`f(\bar w_t) - f^* = O(1 / \sqrt t)`. Where the least value :math:`f^*` is known, Polyak's step

.. math:: \alpha_t = \frac{f(w_t) - f^*}{\lVert g_t \rVert^2} \tag{3}

brings the point closer to every minimiser each time, and needs no average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from corollary import errors
from corollary.optim.directions import norm, put
from corollary.optim.groups import called, gradients_of
from corollary.optim.schedule import SCHEDULES

__all__ = ["SignSGD", "Subgradient"]

BLOCK = 2**15  # entries whose signs stay in the cache until they are used
OPEN_ENDED = ("1/sqrt", "1/t", "constant")  # schedules that need no last step


class SignSGD(Optimizer):
    """Descent by the signs of the gradients, eq. 1.

    Parameters
    ----------
    params : iterable of Tensor or dict
        What is optimised.
    lr : float, default=1e-3
        How far every parameter moves in a step; it has to shrink for the iterates to converge.
    momentum : float, default=0
        Share of the running mean of gradients that is kept; the sign is then that of the mean.
    weight_decay : float, default=0
        This times the parameters is added to the gradients before the sign is taken.

    References
    ----------
    .. [1] J. Bernstein, Y.-X. Wang, K. Azizzadenesheli and A. Anandkumar (2018). signSGD: compressed optimisation for
       non-convex problems. ICML.

    Examples
    --------
    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.0]))
    >>> optimizer = SignSGD([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([ 0.7500, -1.7500,  0.0000])
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, *, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        if not lr >= 0:
            raise errors.value("SignSGD", "lr must be at least 0", lr)
        if not 0 <= momentum < 1:
            raise errors.value("SignSGD", "momentum must lie in [0, 1)", momentum)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Move every parameter by ``lr``."""
        loss = called(closure)
        for group in self.param_groups:
            params, grads = gradients_of(group)
            if group["momentum"]:
                for p in params:
                    self.state[p].setdefault("mean", torch.zeros_like(p))
                means = [self.state[p]["mean"] for p in params]
                torch._foreach_lerp_(means, grads, 1 - group["momentum"])
                grads = means
            _move_by_signs(params, grads, group["lr"])
        return loss


def _move_by_signs(params: list[Tensor], grads: list[Tensor], lr: float) -> None:
    """Take eq. 1 for small tensors together, and for large ones in blocks that stay in the cache."""
    small = [(p, g) for p, g in zip(params, grads) if p.numel() <= BLOCK or not _plain(p, g)]
    if small:
        some, theirs = zip(*small)
        torch._foreach_add_(some, torch._foreach_sign(theirs), alpha=-lr)
    for p, g in zip(params, grads):
        if p.numel() > BLOCK and _plain(p, g):
            signs = torch.empty(BLOCK, dtype=g.dtype, device=g.device)
            for part, slope in zip(p.view(-1).split(BLOCK), g.view(-1).split(BLOCK)):
                part.add_(torch.sign(slope, out=signs[: len(slope)]), alpha=-lr)


def _plain(p: Tensor, g: Tensor) -> bool:
    return p.is_contiguous() and g.is_contiguous() and p.device.type == "cpu"


class Subgradient(Optimizer):
    """Subgradient descent for functions with kinks: shrinking steps and an average (eq. 2), or Polyak's step (eq. 3).

    Parameters
    ----------
    params : iterable of Tensor or dict
        What is optimised.
    lr : float, default=0.1
        The first step size; the distance to a minimiser over the norm of the subgradients is best. Scales Polyak's step too,
        for which 1 is right and below 2 converges.
    schedule : {"1/sqrt", "1/t", "constant"}, default="1/sqrt"
        How the step size falls; "1/t" is for strongly convex functions.
    least : float, optional
        The least value of the function: steps are then Polyak's, and ``step`` needs a closure that returns the loss.
    average : bool, default=True
        Whether to keep the mean of the iterates; ``with optimizer.averaged():`` puts it into the parameters for a while.

    Examples
    --------
    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    >>> optimizer = Subgradient([w], lr=1.0, least=0.0)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = w[0].abs() + 2 * w[1].abs()
    ...     loss.backward()
    ...     return loss
    >>> for _ in range(100):
    ...     _ = optimizer.step(closure)
    >>> bool(closure() < 1e-6)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.1,
        *,
        schedule: str = "1/sqrt",
        least: float | None = None,
        average: bool = True,
        weight_decay: float = 0.0,
    ) -> None:
        if schedule not in OPEN_ENDED:
            raise errors.unknown("Subgradient", "schedule without an end", schedule, OPEN_ENDED)
        if not lr > 0:
            raise errors.value("Subgradient", "lr must be positive", lr)
        own = {"schedule": schedule, "least": least, "average": average, "weight_decay": weight_decay}
        super().__init__(params, {"lr": lr, **own})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Take one step, and update the mean."""
        loss = called(closure)
        for group in self.param_groups:
            params, grads = gradients_of(group)
            rate = self._rate(group, params, loss)
            for p, g in zip(params, grads):
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.sub_(rate * g)
                if group["average"]:
                    mean = state.setdefault("mean", torch.zeros_like(p))
                    mean.lerp_(p, 1 / state["step"])
        return loss

    def _rate(self, group: dict[str, Any], params: list[Tensor], loss: Any) -> Any:
        if group["least"] is None:
            taken = max((self.state[p].get("step", 0) for p in params), default=0)
            return group["lr"] * SCHEDULES[group["schedule"]](taken, 0)
        if loss is None:
            do = "Call step(closure) with a function that computes gradients and returns the loss."
            raise errors.kind("Subgradient", "Polyak's step needs the loss", "no closure", do)
        every = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        tiny = torch.finfo(every[0].dtype).tiny
        gap = (torch.as_tensor(loss).detach() - group["least"]).clamp_min(0)
        return group["lr"] * gap / norm(every).square().clamp_min(tiny)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Put the mean of the iterates into the parameters while the context lasts."""
        params = [p for group in self.param_groups for p in group["params"] if "mean" in self.state[p]]
        if not params:
            do = "Take a step first, with average=True."
            raise errors.value("Subgradient", "there must be a mean", "none", do)
        before = [p.detach().clone() for p in params]
        put(params, [self.state[p]["mean"] for p in params])
        try:
            yield
        finally:
            put(params, before)
