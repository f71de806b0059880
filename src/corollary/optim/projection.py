r"""Projected descent: a step of any optimiser, then the nearest point of a set.

.. math:: w' = \Pi_C\bigl(w - \eta\, g\bigr), \qquad \Pi_C(u) = \arg\min_{v \in C} \lVert v - u \rVert. \tag{1}

With :math:`U \mathrm{diag}(s) V^\top` the singular value decomposition of a matrix :math:`u`:

* *ball*, :math:`\lVert v \rVert_2 \le r`: :math:`u \min(1, r / \lVert u \rVert)`;
* *l1 ball*, :math:`\lVert v \rVert_1 \le r`: the soft threshold at the level that makes the norm :math:`r`;
* *simplex*, :math:`v \ge 0` and :math:`\sum_i v_i = z`: :math:`\max(u - \theta, 0)`, with this sum;
* *box*, :math:`a \le v \le b`: :math:`\min(\max(u, a), b)`;
* *spectral ball*, :math:`\lVert v \rVert_{\mathrm{op}} \le r`: :math:`U \mathrm{diag}(\min(s, r)) V^\top`;
* *low rank*, :math:`\mathrm{rank}\, v \le k`: the :math:`k` largest singular values kept (Eckart and Young).

All but the last are convex, for which (1) converges as plain descent does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from corollary import errors
from corollary.optim.descent import descend
from corollary.optim.directions import SMALLEST, project

# a point shorter than this share of the radius lies in the ball, however its squares were rounded
SURELY = 1 - 1e-5

__all__ = ["SETS", "Projected", "onto_box", "onto_l1_ball", "onto_rank", "onto_simplex", "onto_spectral_ball"]


def onto_simplex(u: Tensor, total: float = 1.0) -> Tensor:
    """Return the nearest points, along the last axis, with non-negative entries that add up to ``total``.

    >>> onto_simplex(torch.tensor([0.5, 0.9, -3.0]))
    tensor([0.3000, 0.7000, 0.0000])
    """
    ordered = u.sort(dim=-1, descending=True).values
    counts = torch.arange(1, u.shape[-1] + 1, dtype=u.dtype, device=u.device)
    levels = (ordered.cumsum(-1) - total) / counts
    kept = (ordered > levels).sum(-1, keepdim=True).clamp_min(1)
    return (u - levels.gather(-1, kept - 1)).clamp_min(0)


def onto_l1_ball(u: Tensor, radius: float = 1.0) -> Tensor:
    """Return the nearest point whose absolute entries add up to ``radius`` or less.

    >>> onto_l1_ball(torch.tensor([3.0, -1.0]), 2.0)
    tensor([2., -0.])
    """
    flat = u.reshape(-1)
    if flat.abs().sum() <= radius:
        return u.clone()
    return (flat.sign() * onto_simplex(flat.abs(), radius)).view_as(u)


def onto_box(u: Tensor, low: float, high: float) -> Tensor:
    """Return the nearest point with entries between ``low`` and ``high``."""
    return u.clamp(low, high)


def onto_spectral_ball(W: Tensor, radius: float = 1.0) -> Tensor:
    """Return the nearest matrix whose largest singular value is ``radius`` or less; later axes are columns.

    >>> onto_spectral_ball(torch.diag(torch.tensor([3.0, 0.5])), 1.0).round(decimals=4)
    tensor([[1.0000, 0.0000],
            [0.0000, 0.5000]])
    """
    U, s, Vh = torch.linalg.svd(W.flatten(1), full_matrices=False)
    return ((U * s.clamp_max(radius)) @ Vh).view_as(W) if s.numel() and s[0] > radius else W.clone()


def onto_rank(W: Tensor, rank: int) -> Tensor:
    """Return the nearest matrix of this rank or less; later axes are columns.

    >>> onto_rank(torch.diag(torch.tensor([3.0, 0.5])), 1).round(decimals=4).abs()
    tensor([[3., 0.],
            [0., 0.]])
    """
    U, s, Vh = torch.linalg.svd(W.flatten(1), full_matrices=False)
    return ((U[:, :rank] * s[:rank]) @ Vh[:rank]).view_as(W)


# The word for the set -> its projection, and whether it takes matrices only.
SETS: dict[str, tuple[Callable[..., Tensor] | None, bool]] = {
    "radius": (None, False),  # all parameters together, in place
    "l1": (onto_l1_ball, False),
    "simplex": (onto_simplex, False),
    "box": (onto_box, False),
    "spectral": (onto_spectral_ball, True),
    "rank": (onto_rank, True),
}


class Projected(Optimizer):
    """Any torch optimiser, followed by a projection of the parameters onto a set, eq. 1.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        What takes the steps.
    radius : float, optional
        The ball of this Euclidean norm, for all parameters together.
    l1 : float, optional
        The ball of this absolute sum, for each parameter.
    simplex : float, optional
        Non-negative entries with this sum, along the last axis of each parameter.
    box : (float, float), optional
        Entries between two numbers.
    spectral : float, optional
        Largest singular value of every matrix; vectors are left alone, later axes of a kernel are columns.
    rank : int, optional
        Largest rank of every matrix. This set is not convex: only a point that no step improves is found.

    Notes
    -----
    Exactly one set is given; wrap twice for two. The parameters are projected once at the start. What the wrapped optimiser
    has (``param_groups``, ``state``, schedules of ``torch.optim.lr_scheduler``) works as before.

    Examples
    --------
    >>> import torch
    >>> w = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = Projected(torch.optim.SGD([w], lr=0.1), radius=1.0)
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     (w - torch.tensor([3.0, 4.0])).square().sum().backward()
    ...     optimizer.step()
    >>> w.detach().round(decimals=3)
    tensor([0.6000, 0.8000])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        radius: float | None = None,
        l1: float | None = None,
        simplex: float | None = None,
        box: Sequence[float] | None = None,
        spectral: float | None = None,
        rank: int | None = None,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            do = "Pass torch.optim.SGD(model.parameters(), lr=0.1), say."
            raise errors.kind("Projected", "optimizer must be a torch optimiser", repr(optimizer), do)
        wanted = {
            "radius": radius,
            "l1": l1,
            "simplex": simplex,
            "box": box,
            "spectral": spectral,
            "rank": rank,
        }
        given = {name: size for name, size in wanted.items() if size is not None}
        if len(given) != 1:
            got = ", ".join(given) or "none"
            raise errors.value("Projected", f"exactly one of {', '.join(SETS)} must be given", got)
        ((self.set, size),) = given.items()
        self.size = _checked(self.set, size)
        self.optimizer = optimizer
        if SETS[self.set][1] and not any(p.ndim >= 2 for p in self._params()):
            got = ", ".join(str(tuple(p.shape)) for p in self._params()) or "no parameters"
            raise errors.value("Projected", f"{self.set} needs a parameter with two axes or more", got)
        self.project()

    # The wrapped optimiser's own, also after it has loaded another state.
    param_groups = property(lambda self: self.optimizer.param_groups)  # type: ignore[assignment]
    state = property(lambda self: self.optimizer.state)  # type: ignore[assignment]
    defaults = property(lambda self: self.optimizer.defaults)  # type: ignore[assignment]

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def project(self) -> None:
        """Move the parameters to the nearest point of the set."""
        onto, matrices = SETS[self.set]
        if onto is None:
            project(self._params(), self.size[0])
            return
        for p in self._params():
            if p.ndim >= (2 if matrices else 1):
                p.copy_(onto(p, *self.size))

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """Take a step of the wrapped optimiser, and project."""
        square = descend(self.optimizer) if closure is None and self.set == "radius" else None
        loss = None
        if square is None:
            loss = self.optimizer.step() if closure is None else self.optimizer.step(closure)
        if square is None or not SMALLEST < square or not math.sqrt(square) < SURELY * self.size[0]:
            self.project()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the wrapped optimiser."""
        self.optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimiser's state; the set is an argument, not a state."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the wrapped optimiser's state."""
        self.optimizer.load_state_dict(state_dict)

    def register_step_pre_hook(self, hook: Any) -> Any:
        """Call a function before each step."""
        return self.optimizer.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Any) -> Any:
        """Call a function after each step of the wrapped optimiser, before the projection."""
        return self.optimizer.register_step_post_hook(hook)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs."""
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a copy."""
        self.__dict__.update(state)

    def __repr__(self) -> str:
        """Return the set and the wrapped optimiser."""
        size = self.size[0] if len(self.size) == 1 else self.size
        return f"Projected({self.set}={size}, {self.optimizer!r})"


def _checked(name: str, size: Any) -> tuple[Any, ...]:
    """Return what the projection is called with; raise if the set is empty."""
    parts = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else (size,)
    if len(parts) != (2 if name == "box" else 1) or not all(_number(part) for part in parts):
        wanted = "two numbers (low, high)" if name == "box" else "a number"
        raise errors.kind("Projected", f"{name} must be {wanted}", repr(size))
    if name == "box":
        if parts[0] > parts[1]:
            raise errors.value(
                "Projected", "the set must not be empty: low <= high", f"box={size!r}", "Swap them."
            )
    elif parts[0] < 0:
        raise errors.value("Projected", f"the set must not be empty: {name} >= 0", f"{name}={size!r}")
    if name == "rank" and parts[0] != int(parts[0]):
        raise errors.value("Projected", "rank must be a whole number", size)
    return (int(parts[0]),) if name == "rank" else tuple(float(part) for part in parts)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
