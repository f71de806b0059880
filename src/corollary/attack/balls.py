r"""Norm balls: lengths, steepest ascent, projection and uniform draws, for the norms l1, l2 and l∞.

With :math:`1/p + 1/p^* = 1`, a vector :math:`z` grows fastest, among steps of :math:`\lVert v \rVert_p \le \alpha`, along

.. math::
    v^* = \arg\max_{\lVert v \rVert_p \le \alpha} v^\top z = \alpha\,
    \frac{\mathrm{sgn}(z)\, |z|^{p^*-1}}{\lVert z \rVert_{p^*}^{p^*-1}}, \qquad
    v^{*\top} z = \alpha \lVert z \rVert_{p^*}: \tag{1}

the sign for :math:`p = \infty`, the normalised vector for :math:`p = 2`, and for :math:`p = 1` the whole step along the one
coordinate where :math:`|z|` is largest. Where every coordinate has only some room :math:`m_i` left before it reaches its
bound, the maximiser for :math:`p = 1` fills the coordinates in the order of :math:`|z|` until :math:`\alpha` is used up (2).

The nearest point of the ball :math:`B_\epsilon^p` to :math:`z` is

.. math::
    \Pi_\infty(z) = \mathrm{clip}(z, -\epsilon, \epsilon), \qquad \Pi_2(z) = \min\{1, \epsilon / \lVert z \rVert_2\}\, z, \qquad
    \Pi_1(z) = \mathrm{sgn}(z) \max(|z| - \tau, 0), \tag{3}

where :math:`\tau \ge 0` makes :math:`\lVert \Pi_1(z) \rVert_1 = \epsilon` if :math:`z` lies outside.

References
----------
.. [1] J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra (2008). Efficient projections onto the l1-ball. ICML.
"""

from __future__ import annotations

import torch
from torch import Tensor

from corollary import errors

__all__ = ["NORMS", "check_norm", "column", "lengths", "project", "steepest", "uniform"]

NORMS = {"l1": 1.0, "l2": 2.0, "linf": float("inf")}


def check_norm(norm: str, owner: str, choices: tuple[str, ...] = tuple(NORMS)) -> None:
    """Raise unless the norm is one of the choices."""
    if norm not in choices:
        raise errors.unknown(owner, "norm", str(norm), choices)


def column(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number per sample (n,) in a shape that multiplies samples (n, ...)."""
    return numbers.reshape(-1, *[1] * (like.ndim - 1))


def lengths(z: Tensor, norm: str) -> Tensor:
    """Return the norm of every sample, (n, ...) -> (n,).

    >>> lengths(torch.tensor([[3.0, -4.0]]), "l1"), lengths(torch.tensor([[3.0, -4.0]]), "linf")
    (tensor([7.]), tensor([4.]))
    """
    return torch.linalg.vector_norm(z.flatten(1), NORMS[norm], dim=1)


def steepest(z: Tensor, norm: str, step: float, room: Tensor | None = None) -> Tensor:
    """Return the step of eq. 1 for every sample; for l1 that of eq. 2, where ``room`` (n, ...) is given.

    A sample whose ``z`` is zero does not move.

    >>> steepest(torch.tensor([[3.0, -4.0]]), "l2", 1.0)
    tensor([[ 0.6000, -0.8000]])
    >>> steepest(torch.tensor([[3.0, -4.0]]), "l1", 1.0)
    tensor([[ 0., -1.]])
    >>> steepest(torch.tensor([[3.0, -4.0]]), "l1", 1.0, room=torch.tensor([[9.0, 0.25]]))
    tensor([[ 0.7500, -0.2500]])
    """
    if norm == "linf":
        return step * z.sign()
    if norm == "l2":
        return z * column(step / lengths(z, "l2").clamp_min(torch.finfo(z.dtype).tiny), z)
    flat = z.flatten(1)
    if room is None:
        size, place = flat.abs().max(1, keepdim=True)
        one = torch.zeros_like(flat).scatter_(1, place, step * (size > 0).to(z.dtype))
        return (one * flat.sign()).view_as(z)
    order = flat.abs().argsort(1, descending=True)
    held = torch.where(flat == 0, 0, room.flatten(1)).gather(1, order).clamp(0, step)
    before = held.cumsum(1) - held
    taken = torch.minimum(held, (step - before).clamp_min(0))
    return (torch.zeros_like(flat).scatter_(1, order, taken) * flat.sign()).view_as(z)


def project(z: Tensor, norm: str, radius: float) -> Tensor:
    """Return the nearest point of the ball to every sample, eq. 3.

    >>> project(torch.tensor([[3.0, -4.0], [0.1, 0.2]]), "l2", 1.0)
    tensor([[ 0.6000, -0.8000],
            [ 0.1000,  0.2000]])
    >>> project(torch.tensor([[3.0, -4.0, 0.5]]), "l1", 2.0)
    tensor([[ 0.5000, -1.5000,  0.0000]])
    """
    if norm == "linf":
        return z.clamp(-radius, radius)
    if norm == "l2":
        factor = radius / lengths(z, "l2").clamp_min(torch.finfo(z.dtype).tiny)
        return z * column(factor.clamp_max(1), z)
    size = z.flatten(1).abs()
    outside = size.sum(1) > radius
    if not outside.any():
        return z
    falling = size.sort(1, descending=True).values
    place = torch.arange(1, size.shape[1] + 1, device=z.device, dtype=z.dtype)
    shift = (falling.cumsum(1) - radius) / place  # tau if so many coordinates stay
    count = (falling > shift).sum(1, keepdim=True).clamp_min(1)
    tau = shift.gather(1, count - 1).clamp_min(0)[:, 0] * outside
    return z.sign() * (z.abs() - column(tau, z)).clamp_min(0)


def uniform(like: Tensor, norm: str, radius: float, rng: torch.Generator) -> Tensor:
    """Return points drawn uniformly from the ball, one for every sample.

    A normal direction times :math:`u^{1/d}` is uniform in the l2 ball; :math:`d` of :math:`d + 1` exponential numbers, divided
    by their sum, with random signs, in the l1 ball.
    """

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=rng, device=rng.device, dtype=like.dtype)

    n, d = len(like), like[:1].numel()
    if norm == "linf":
        z = radius * (2 * rand(n, d) - 1)
    elif norm == "l2":
        z = torch.randn(n, d, generator=rng, device=rng.device, dtype=like.dtype)
        z = z / lengths(z, "l2")[:, None] * radius * rand(n, 1) ** (1 / d)
    else:
        tiny = torch.finfo(like.dtype).tiny
        z = -rand(n, d + 1).clamp_min(tiny).log()
        z = radius * (z / z.sum(1, keepdim=True))[:, :d] * (2 * (rand(n, d) < 0.5) - 1).to(like.dtype)
    return z.to(like.device).view_as(like)
