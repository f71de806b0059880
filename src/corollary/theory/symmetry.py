r"""Symmetry: groups that act on data, functions that respect them, and a test for any module.

A group acts by :math:`\rho(g)`. A function is invariant if :math:`f(\rho(g) x) = f(x)`, equivariant if
:math:`f(\rho(g) x) = \rho'(g) f(x)`. Any function becomes invariant by averaging,

.. math:: (S_G f)(x) = \frac{1}{|G|} \sum_{g \in G} f(\rho(g) x), \tag{1}

equivariant by :math:`\frac{1}{|G|} \sum_g \rho'(g)^{-1} f(\rho(g) x)` (2), and correlation over the group,

.. math:: (x \star \theta)(g) = \sum_{u \in G} x(u)\, \theta(g^{-1} u), \tag{3}

is equivariant under :math:`(\rho(h) x)(u) = x(h^{-1} u)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from corollary.errors import value

__all__ = [
    "Group",
    "Symmetry",
    "cyclic",
    "equivariance",
    "group_average",
    "group_convolution",
    "invariance",
    "permute_rows",
    "rotations",
    "symmetric",
]

Action = Callable[[Tensor], Tensor]


class Group(NamedTuple):
    """A finite group as tables: elements are 0 (the identity) to n - 1."""

    product: Tensor  # (n, n): number of g h
    inverse: Tensor  # (n,)

    @property
    def order(self) -> int:
        """The number of elements."""
        return len(self.inverse)

    def act(self, h: int, x: Tensor) -> Tensor:
        """Return the signal (..., n) moved by h: at u stands what was at h^-1 u."""
        return x[..., self.product[self.inverse[h]]]


def _from_table(product: Tensor) -> Group:
    return Group(product, (product == 0).int().argmax(1))


def cyclic(n: int) -> Group:
    """Return the rotations of a ring of n.

    >>> cyclic(3).product
    tensor([[0, 1, 2],
            [1, 2, 0],
            [2, 0, 1]])
    """
    if n < 1:
        raise value("cyclic", "n must be at least 1", n)
    i = torch.arange(n)
    return _from_table((i[:, None] + i) % n)


def symmetric(n: int) -> Group:
    """Return all n! permutations of n things, in lexicographic order; (g h)(i) = g(h(i))."""
    if not 1 <= n <= 6:
        raise value("symmetric", "n must lie between 1 and 6 (720 elements)", n)
    elements = list(permutations(range(n)))
    place = {p: k for k, p in enumerate(elements)}
    return _from_table(torch.tensor([[place[tuple(g[i] for i in h)] for h in elements] for g in elements]))


def rotations(k: int = 4) -> list[Action]:
    """Return the quarter turns of images (..., h, w): four for C4, or the first ``k`` of them."""
    return [lambda x, r=r: torch.rot90(x, r, (-2, -1)) for r in range(k)]  # type: ignore[misc]


def permute_rows(n: int, samples: int = 20, seed: int = 0) -> list[Action]:
    """Return the identity and ``samples`` random permutations of the first axis, of length n."""
    g = torch.Generator().manual_seed(seed)
    orders = [torch.arange(n), *(torch.randperm(n, generator=g) for _ in range(samples))]
    return [lambda x, o=o: x[o.to(x.device)] for o in orders]  # type: ignore[misc]


def group_average(
    f: Callable[[Tensor], Tensor], actions: Sequence[Action], inverses: Sequence[Action] | None = None
) -> Callable[[Tensor], Tensor]:
    """Return eq. 1, or eq. 2 where the inverse actions on the output are given.

    >>> f = group_average(lambda x: x[..., 0, 0], rotations())
    >>> f(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    tensor(3.)
    """
    if not actions or (inverses is not None and len(inverses) != len(actions)):
        got = f"{len(actions)} and {len(inverses) if inverses is not None else 'none'}"
        raise value("group_average", "there must be actions, and as many inverses if any", got)
    undo = inverses or [lambda y: y] * len(actions)

    def averaged(x: Tensor) -> Tensor:
        return torch.stack([back(f(act(x))) for act, back in zip(actions, undo)]).mean(0)

    return averaged


def group_convolution(group: Group, x: Tensor, theta: Tensor) -> Tensor:
    """Return eq. 3 for signals (..., n) and a filter (n,) on a group of n elements.

    >>> group_convolution(cyclic(3), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.0, 0.0]))
    tensor([1., 2., 3.])
    """
    if x.shape[-1] != group.order or theta.shape != (group.order,):
        got = f"shapes {tuple(x.shape)} and {tuple(theta.shape)}"
        raise value("group_convolution", f"signal and filter must have {group.order} entries", got)
    return x @ theta[group.product[group.inverse]].T


class Symmetry(NamedTuple):
    """How far a function is from a symmetry."""

    error: float  # the largest relative deviation over the actions
    worst: int  # the action that shows it
    holds: bool  # whether it is within the tolerance


def invariance(f: Callable[..., Any], x: Any, actions: Sequence[Action], tol: float = 1e-4) -> Symmetry:
    """Test whether f(rho(g) x) = f(x).

    Parameters
    ----------
    f : torch.nn.Module or callable
        What is tested; a module is tested in evaluation mode.
    x : tensor
        An input.
    actions : sequence of callables
        What the group's elements do to it.
    tol : float, default=1e-4
        Largest deviation, relative to the largest entry of the output, that counts as rounding.

    Examples
    --------
    >>> invariance(lambda x: x.sum(0), torch.eye(3), permute_rows(3)).holds
    True
    """
    return equivariance(f, x, actions, [lambda y: y] * len(actions), tol)


@torch.no_grad()
def equivariance(
    f: Callable[..., Any],
    x: Any,
    actions: Sequence[Action],
    outputs: Sequence[Action] | None = None,
    tol: float = 1e-4,
) -> Symmetry:
    """Test whether f(rho(g) x) = rho'(g) f(x).

    Parameters
    ----------
    f : torch.nn.Module or callable
        What is tested; a module is tested in evaluation mode.
    x : tensor
        An input.
    actions : sequence of callables
        What the group's elements do to inputs.
    outputs : sequence of callables, optional
        What they do to outputs; by default the same.
    tol : float, default=1e-4
        Largest deviation, relative to the largest entry of the output, that counts as rounding.

    Examples
    --------
    >>> equivariance(lambda x: x - x.mean(0), torch.eye(3), permute_rows(3)).holds
    True
    """
    outputs = actions if outputs is None else outputs
    if not actions or len(outputs) != len(actions):
        raise value(
            "equivariance", "there must be actions, and as many on outputs", f"{len(actions)}, {len(outputs)}"
        )
    training = getattr(f, "training", False)
    if training:
        f.eval()  # type: ignore[attr-defined]
    try:
        base = f(x)
        errors = [float((f(act(x)) - move(base)).abs().max()) for act, move in zip(actions, outputs)]
    finally:
        if training:
            f.train()  # type: ignore[attr-defined]
    scale = max(float(base.abs().max()), torch.finfo(torch.float32).tiny)
    worst = max(range(len(errors)), key=errors.__getitem__)
    return Symmetry(errors[worst] / scale, worst, errors[worst] / scale <= tol)
