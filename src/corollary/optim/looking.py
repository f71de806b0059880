r"""Optimisers that evaluate the loss more than once per step: SVRG, Newton's method, the extragradient method.

Each finds a direction :math:`d` and moves by :math:`w' = w - \eta\, d`.

*Variance reduction* (SVRG) keeps an anchor :math:`\tilde w` with its gradient over all data, and corrects the gradient of a
batch :math:`B` by what it is at the anchor, where the mean over batches is known:

.. math:: d = \nabla f_B(w) - \nabla f_B(\tilde w) + \nabla f(\tilde w). \tag{1}

It is unbiased, and its variance vanishes as both points approach the minimum: a constant step then converges linearly.

*Newton's method* solves, by conjugate gradients on products of the Hessian :math:`H` with vectors,

.. math:: (H + \lambda I)\, d = \nabla f(w), \tag{2}

and halves the step until the loss falls by a share of what the slope promises (Armijo). Where the curvature is not positive the
conjugate gradients end early with a direction that still descends, so a loss that is not convex does no harm.

The *extragradient* moves by the gradient found one step ahead,

.. math:: d = \nabla f\bigl(w - \eta \nabla f(w)\bigr), \tag{3}

which converges on saddle-point problems where plain descent circles or diverges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from corollary import errors
from corollary.optim.directions import (
    conjugate_gradient,
    flat_gradient,
    hessian_product,
    put,
    variance_reduced,
    write,
)
from corollary.optim.groups import called, gradients_of

__all__ = ["SVRG", "ExtraGradient", "Newton", "look_ahead"]

ARMIJO = 1e-4  # share of the decrease that the gradient promises which a Newton step must keep
HALVINGS = 30
ROUNDING = 10  # units in the last place that two evaluations of a loss may differ by

Closure = Callable[[], Any]


class Looking(Optimizer):
    """An optimiser whose ``step(closure)`` is ``look(closure)``, which writes a direction into ``grad``, then ``move()``."""

    def __init__(
        self, params: Iterable[Any], lr: float, momentum: float, weight_decay: float, **more: Any
    ) -> None:
        owner = type(self).__name__
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise errors.value(owner, f"{name} must be at least 0", value)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, **more})

    def vectors(self) -> list[Tensor]:
        """Return all parameters, whatever their group."""
        return [p for group in self.param_groups for p in group["params"]]

    def look(self, closure: Closure) -> Any:
        """Write the direction into the gradients of the parameters, which stay where they are; return the loss."""
        raise NotImplementedError

    @torch.no_grad()
    def move(self) -> None:
        """Take the step that the gradients say: plain, or with momentum."""
        for group in self.param_groups:
            params, steps = gradients_of(group)
            if group["momentum"]:
                for p in params:
                    self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buffers = [self.state[p]["momentum_buffer"] for p in params]
                torch._foreach_mul_(buffers, group["momentum"])
                torch._foreach_add_(buffers, steps)
                steps = buffers
            if params:
                torch._foreach_add_(params, steps, alpha=-group["lr"])

    def step(self, closure: Closure | None = None) -> Any:  # type: ignore[override]
        """Look, move, and return the loss that the closure returned."""
        owner = type(self).__name__
        if closure is None:
            do = "Call step(closure) with a function that computes the loss."
            raise errors.kind(owner, "step needs a closure, because it looks more than once", "none", do)
        loss = self.look(closure)
        self.move()
        return loss


class SVRG(Looking):
    """Stochastic gradients with their variance reduced by an anchor, eq. 1.

    Parameters
    ----------
    params : iterable of Tensor or dict
        What is optimised.
    lr : float, default=1e-3
        Step size. A constant one converges, if it is a fraction of the inverse smoothness.
    momentum, weight_decay : float, default=0
        As in torch's SGD.

    Notes
    -----
    ``anchor(closure)`` once an epoch or so, with the gradient over all the data; ``step(closure)`` with that of a batch. A
    step takes two gradients of the batch. Both closures set the gradients to zero, call ``backward`` and return the loss.

    References
    ----------
    .. [1] R. Johnson and T. Zhang (2013). Accelerating stochastic gradient descent using predictive variance reduction. NeurIPS.

    Examples
    --------
    >>> import torch
    >>> A, b, w = torch.eye(2), torch.tensor([1.0, 2.0]), torch.nn.Parameter(torch.zeros(2))
    >>> svrg = SVRG([w], lr=0.5)
    >>> def loss(rows):
    ...     svrg.zero_grad()
    ...     value = (A[rows] @ w - b[rows]).square().mean()
    ...     value.backward()
    ...     return value
    >>> for epoch in range(30):
    ...     _ = svrg.anchor(lambda: loss([0, 1]))
    ...     for i in (0, 1):
    ...         _ = svrg.step(lambda: loss([i]))
    >>> w.detach().round(decimals=3)
    tensor([1., 2.])
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, *, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, momentum, weight_decay)

    def anchor(self, closure: Closure) -> Any:
        """Take the present parameters as the anchor, whose gradient over all the data the closure computes."""
        with torch.enable_grad():
            loss = closure()
        for p in self.vectors():
            self.state[p]["anchor"] = p.detach().clone()
            self.state[p]["full"] = torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()
        return loss

    def look(self, closure: Closure) -> Any:
        """Take the gradients at the anchor and here, and write eq. 1."""
        params = self.vectors()
        if any("anchor" not in self.state[p] for p in params):
            do = "Call anchor(closure) with a closure over all the data, then step."
            raise errors.value("SVRG", "an anchor must be set before the first step", "none", do)
        here = [p.detach().clone() for p in params]
        put(params, [self.state[p]["anchor"] for p in params])
        with torch.enable_grad():
            closure()
        at_anchor = [torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in params]
        put(params, here)
        with torch.enable_grad():
            loss = closure()
        for p, a in zip(params, at_anchor):
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            p.grad.copy_(variance_reduced(p.grad, a, self.state[p]["full"]))
        return loss


class Newton(Looking):
    """Damped Newton steps, eq. 2, by conjugate gradients on Hessian products, shortened until the loss falls.

    Parameters
    ----------
    params : iterable of Tensor or dict
        What is optimised.
    lr : float, default=1
        The longest step, as a share of Newton's.
    damping : float, default=1e-3
        What is added to every curvature. More makes shorter steps, nearer to the gradient's.
    max_iter : int, default=50
        Most conjugate-gradient iterations, each a product with the Hessian.
    tol : float, default=1e-6
        Residual of eq. 2, relative to the gradient, at which they stop.
    momentum, weight_decay : float, default=0
        As in torch's SGD; put a penalty into the loss instead of ``weight_decay`` if its curvature should count.

    Notes
    -----
    ``step(closure)`` calls the closure with gradients once and, for the line search, a few times without. The closure returns the
    loss; ``loss.backward()`` in it, as other optimisers want it, is passed over, because the graph is needed. A step costs
    up to ``max_iter`` products, each about two gradients; ``products`` says how many the last one took.

    Examples
    --------
    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    >>> newton = Newton([w], damping=0.0)
    >>> _ = newton.step(lambda: (w * w * torch.tensor([1.0, 100.0])).sum())
    >>> w.detach().round(decimals=4).abs()
    tensor([0., 0.])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        *,
        damping: float = 1e-3,
        max_iter: int = 50,
        tol: float = 1e-6,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        if not damping >= 0:
            raise errors.value("Newton", "damping must be at least 0", damping)
        if not max_iter >= 1:
            raise errors.value("Newton", "max_iter must be at least 1", max_iter)
        super().__init__(params, lr, momentum, weight_decay, damping=damping, max_iter=max_iter, tol=tol)
        self.products = 0

    def look(self, closure: Closure) -> Any:
        """Solve eq. 2, search the line, and write the direction."""
        params, group = [p for p in self.vectors() if p.requires_grad], self.param_groups[0]
        with torch.enable_grad():
            with _GraphKept():
                loss = closure()
            flat = _differentiated(loss, params)
        curvature, g, self.products = hessian_product(flat, params), flat.detach(), 0

        def damped(v: Tensor) -> Tensor:
            self.products += 1
            return curvature(v) + group["damping"] * v

        direction = conjugate_gradient(damped, g, max_iter=group["max_iter"], tol=group["tol"])
        step = self._shortened(closure, params, float(loss.detach()), direction, float(g @ direction))
        write(params, direction * step)
        return loss.detach()

    def _shortened(
        self, closure: Closure, params: list[Tensor], loss: float, d: Tensor, slope: float
    ) -> float:
        """Return the largest of 1, 1/2, 1/4, ... with which the loss falls enough (Armijo)."""
        before, rate, step = [p.detach().clone() for p in params], self.param_groups[0]["lr"], 1.0
        loss += ROUNDING * torch.finfo(d.dtype).eps * abs(loss)  # near a minimum the fall is lost in rounding
        parts = [part.view_as(p) for part, p in zip(d.split([p.numel() for p in params]), params)]
        for _ in range(HALVINGS):
            with torch.no_grad():
                for p, part in zip(params, parts):
                    p.sub_(part, alpha=step * rate)
                with _GraphKept():
                    found = float(closure())
            put(params, before)
            if found <= loss - ARMIJO * step * rate * slope:
                break
            step /= 2
        return step


class _GraphKept(TorchFunctionMode):
    """Inside the block ``Tensor.backward`` does nothing, so that the graph of the loss is not used up."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call torch's own function, unless it is ``backward``."""
        return None if func is Tensor.backward else func(*args, **(kwargs or {}))


def _differentiated(loss: Any, params: Sequence[Tensor]) -> Tensor:
    """Return the gradient with its graph; say so if the closure has used the graph up."""
    do = "Return the loss from the closure, and differentiate by loss.backward() or not at all."
    if not isinstance(loss, Tensor) or not loss.requires_grad or loss.numel() != 1:
        got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise errors.value(
            "Newton", "the closure must return the loss, one number that depends on params", got, do
        )
    try:
        return flat_gradient(loss, params)
    except RuntimeError as error:
        if "backward through the graph a second time" not in str(error):
            raise
        raise errors.value(
            "Newton", "the closure must leave the graph of the loss", "one that is freed", do
        ) from None


def look_ahead(params: Sequence[Tensor], moves: Sequence[Closure], differentiate: Closure) -> Any:
    """Write into ``grad`` the gradients one step ahead, eq. 3, and come back; return what the first look returned.

    ``differentiate()`` writes gradients, each of ``moves`` takes a plain step by them. Several players are one call.
    """
    loss = differentiate()
    before = [p.detach().clone() for p in params]
    for move in moves:
        move()
    differentiate()
    put(params, before)
    return loss


class ExtraGradient(Looking):
    """Move by the gradient one step ahead, eq. 3: for saddle points, games and variational inequalities.

    Parameters
    ----------
    params : iterable of Tensor or dict
        What is optimised; all players of a game together.
    lr : float, default=1e-3
        Step size; below the inverse smoothness it converges.
    momentum, weight_decay : float, default=0
        As in torch's SGD; momentum counts the look ahead as a step.

    Notes
    -----
    ``step(closure)`` calls the closure twice. The closure computes the gradients: it sets them to zero and calls ``backward``,
    with the sign of each player's own, and may return a loss.

    References
    ----------
    .. [1] G. M. Korpelevich (1976). The extragradient method for finding saddle points and other problems. Matecon 12.

    Examples
    --------
    ``x`` minimises and ``y`` maximises the product ``x y``, on which simultaneous descent spirals out.

    >>> import torch
    >>> x, y = (torch.nn.Parameter(torch.tensor(1.0)) for _ in range(2))
    >>> players = ExtraGradient([x, y], lr=0.5)
    >>> def gradients():
    ...     players.zero_grad()
    ...     (x * y).backward()
    ...     y.grad.neg_()
    >>> for _ in range(100):
    ...     players.step(gradients)
    >>> bool(x.abs() + y.abs() < 1e-4)
    True
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, *, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, momentum, weight_decay)

    def look(self, closure: Closure) -> Any:
        """Take the gradients here, then one step ahead."""
        return look_ahead(self.vectors(), [self.move], partial(called, closure))
