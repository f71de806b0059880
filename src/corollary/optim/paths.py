"""The path of an optimiser over a function of a few numbers: what :func:`corollary.plot.trajectory` draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors, optim

__all__ = ["Path", "trajectory"]


class Path(NamedTuple):
    """Points (steps + 1, n), the function's values there, and how many gradients had been taken by then."""

    points: np.ndarray
    values: np.ndarray
    gradients: np.ndarray


def trajectory(
    function: Callable[[Tensor], Tensor],
    optimizer: str | Callable[[list[Tensor]], torch.optim.Optimizer],
    start: Sequence[float],
    steps: int = 100,
    *,
    noise: float = 0.0,
    random_state: int = 0,
    **options: Any,
) -> Path:
    """Return the path of an optimiser on a function of a few numbers.

    Parameters
    ----------
    function : callable
        ``function(p)`` of a tensor of shape (n,) returns one number.
    optimizer : str or callable
        A name of ``corollary.optim``, or a factory that is given the parameters: ``lambda p: torch.optim.Adam(p, lr=0.1)``.
    start : sequence of float
        Where it begins.
    steps : int, default=100
        How many it takes; the path ends sooner where the function is no longer finite.
    noise : float, default=0
        Deviation of normal noise on the gradients, which makes them stochastic.
    random_state : int, default=0
        Of the noise.
    **options
        Of an optimiser by name: ``lr=0.1``.

    Examples
    --------
    >>> trajectory(lambda p: (p * p).sum(), "gd", [1.0, 2.0], steps=2, lr=0.25).points
    array([[1.  , 2.  ],
           [0.5 , 1.  ],
           [0.25, 0.5 ]])
    """
    if steps < 1:
        raise errors.value("trajectory", "steps must be at least 1", steps)
    matrix = optimizer == "muon"  # which takes matrices only
    p = nn.Parameter(torch.tensor([list(start)] if matrix else list(start), dtype=torch.float64))
    made = optim.create(optimizer, [p], **options) if isinstance(optimizer, str) else optimizer([p])
    rng, looks = torch.Generator().manual_seed(random_state), 0

    def closure() -> Tensor:
        nonlocal looks
        loss = function(p.reshape(-1))
        if torch.is_grad_enabled():
            looks += 1
        if not isinstance(made, optim.Newton):  # it differentiates itself
            made.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if noise:
                p.grad.add_(noise * torch.randn(p.shape, generator=rng, dtype=p.dtype))  # type: ignore[union-attr]
        return loss

    points, values, gradients = [p.detach().reshape(-1).clone()], [function(p.detach().reshape(-1))], [0]
    for t in range(steps):
        if isinstance(made, optim.SVRG) and t % 10 == 0:
            made.anchor(closure)
        made.step(closure)
        looks += 2 * getattr(made, "products", 0)
        value = function(p.detach().reshape(-1))
        if not torch.isfinite(value):
            break
        points.append(p.detach().reshape(-1).clone())
        values.append(value)
        gradients.append(looks)
    return Path(torch.stack(points).numpy(), torch.stack(values).numpy(), np.array(gradients))
