r"""The linear recurrent unit: a complex diagonal recurrence, run as a scan.

For inputs :math:`u_t \in \mathbb R^d` and a complex state :math:`x_t \in \mathbb C^n`

.. math::
    x_t = \lambda \odot x_{t-1} + \gamma \odot B u_t, \qquad y_t = \mathrm{Re}(C x_t) + D \odot u_t, \tag{1}

.. math::
    \lambda = \exp(-e^\nu + i e^\theta), \qquad \gamma = \sqrt{1 - |\lambda|^2}. \tag{2}

:math:`|\lambda| = \exp(-e^\nu) < 1` whatever :math:`\nu` is, so no training step can make (1) unstable, and
:math:`\gamma` keeps the state's variance that of its input. With :math:`\bar x_t = \partial L/\partial x_t` in full,
the backward pass is the same recurrence run from the end,

.. math::
    \bar x_t = g_t + \lambda^* \odot \bar x_{t+1}, \qquad
    \bar v_t = \bar x_t, \qquad \bar\lambda = \textstyle\sum_t x_{t-1}^* \odot \bar x_t, \tag{3}

with :math:`g_t` the gradient that reaches :math:`x_t` directly and :math:`v_t = \gamma \odot B u_t`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["LRU", "linear_scan", "scan_loop", "scan_parallel"]


def scan_loop(v: Tensor, lam: Tensor) -> Tensor:
    """Return the states of eq. 1 for inputs v (b, t, n) and lam (n,), one step after another."""
    x, states = torch.zeros_like(v[:, 0]), []
    for step in v.unbind(1):
        x = lam * x + step
        states.append(x)
    return torch.stack(states, 1)


def scan_parallel(v: Tensor, lam: Tensor) -> Tensor:
    """Return the same states by doubling: log2(t) sweeps, each over all steps at once."""
    x, power, reach = v, lam, 1
    while reach < v.shape[1]:
        x = torch.cat([x[:, :reach], x[:, reach:] + power * x[:, :-reach]], 1)
        power, reach = power * power, 2 * reach
    return x


class _Scan(torch.autograd.Function):
    """Equations 1 and 3 by a compiled loop over time; real and imaginary parts apart."""

    @staticmethod
    def forward(ctx: Any, vr: Tensor, vi: Tensor, lr: Tensor, li: Tensor) -> Any:
        from corollary.nn.lru_kernels import scan

        xr, xi = torch.empty(vr.shape, dtype=vr.dtype), torch.empty(vr.shape, dtype=vr.dtype)
        scan(*_arrays(vr, vi, lr, li, xr, xi))
        ctx.save_for_backward(lr, li, xr, xi)
        return xr, xi

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        from corollary.nn.lru_kernels import scan_back

        lr, li, xr, xi = ctx.saved_tensors
        dr, di = torch.empty_like(xr), torch.empty_like(xi)
        sums = [xr.new_empty(xr.shape[0], xr.shape[2], dtype=torch.float64) for _ in range(2)]
        scan_back(*_arrays(*grads, lr, li, xr, xi, dr, di, *sums))
        return dr, di, *(part.sum(0).to(xr.dtype) for part in sums)


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def linear_scan(vr: Tensor, vi: Tensor, lr: Tensor, li: Tensor) -> tuple[Tensor, Tensor]:
    """Return real and imaginary states of eq. 1; compiled on the CPU, by doubling elsewhere.

    Parameters
    ----------
    vr, vi : Tensor of shape (b, t, n)
        What enters the state at each step.
    lr, li : Tensor of shape (n,)
        The eigenvalues.
    """
    plain = vr.device.type == "cpu" and vr.dtype in (torch.float32, torch.float64)
    if plain and not torch.compiler.is_compiling() and not torch.onnx.is_in_onnx_export():
        return _Scan.apply(vr, vi, lr, li)
    return _doubled(vr, vi, lr, li)


def _doubled(xr: Tensor, xi: Tensor, lr: Tensor, li: Tensor) -> tuple[Tensor, Tensor]:
    """Doubling on real and imaginary parts, for types and exports that know no complex numbers."""
    reach, steps = 1, xr.shape[1]
    while reach < steps:
        ar, ai = xr[:, :-reach], xi[:, :-reach]
        more_r, more_i = lr * ar - li * ai, lr * ai + li * ar
        xr = torch.cat([xr[:, :reach], xr[:, reach:] + more_r], 1)
        xi = torch.cat([xi[:, :reach], xi[:, reach:] + more_i], 1)
        lr, li, reach = lr * lr - li * li, 2 * lr * li, 2 * reach
    return xr, xi


class LRU(nn.Module):
    r"""Linear recurrent unit: sequences ``(b, t, d)`` to sequences ``(b, t, d)``.

    Parameters
    ----------
    width : int
        Width d of input and output.
    state_size : int, optional
        Number n of complex states, ``width`` by default. More remember more.
    r_min, r_max : float
        Range of :math:`|\lambda|` at the start; closer to 1 remembers longer.
    max_phase : float
        Largest phase of :math:`\lambda` at the start, in radians; small for long, slow sequences.

    Notes
    -----
    O(t n d) for the maps and O(t n) for the scan, against O(t d^2) *one after another* for a recurrent cell. An exported
    graph holds the log2(t) sweeps of its example: export with the longest sequence that will come.

    References
    ----------
    .. [1] A. Orvieto et al. (2023). Resurrecting recurrent neural networks for long sequences. ICML.

    Examples
    --------
    >>> import torch
    >>> LRU(8)(torch.zeros(2, 100, 8)).shape
    torch.Size([2, 100, 8])
    """

    def __init__(
        self,
        width: int,
        state_size: int | None = None,
        *,
        r_min: float = 0.5,
        r_max: float = 0.99,
        max_phase: float = 2 * math.pi,
    ) -> None:
        super().__init__()
        n = state_size or width
        radius = torch.sqrt(torch.rand(n) * (r_max**2 - r_min**2) + r_min**2)  # even over the ring
        self.nu = nn.Parameter(torch.log(-torch.log(radius)))
        self.theta = nn.Parameter(torch.log(max_phase * torch.rand(n).clamp_min(1e-4)))
        self.B = nn.Parameter(torch.randn(2 * n, width) / math.sqrt(2 * width))  # real rows, then imaginary
        self.C = nn.Parameter(torch.randn(width, 2 * n) / math.sqrt(n))
        self.D = nn.Parameter(torch.randn(width))

    def eigenvalues(self) -> tuple[Tensor, Tensor]:
        """Return the real and imaginary parts of lambda, eq. 2."""
        modulus, phase = torch.exp(-torch.exp(self.nu)), torch.exp(self.theta)
        return modulus * torch.cos(phase), modulus * torch.sin(phase)

    def forward(self, u: Tensor) -> Tensor:
        """Run eq. 1 from a zero state."""
        # 1 - e^(-2a) = tanh(a) (1 + e^(-2a)): for small a the difference would lose its digits
        a = torch.exp(self.nu)
        gamma = torch.sqrt(torch.tanh(a) * (1 + torch.exp(-2 * a)))
        v = nn.functional.linear(u, self.B * torch.cat([gamma, gamma])[:, None])
        vr, vi = v.chunk(2, -1)
        xr, xi = linear_scan(vr, vi, *self.eigenvalues())
        Cr, Ci = self.C.chunk(2, -1)
        return nn.functional.linear(xr, Cr) - nn.functional.linear(xi, Ci) + self.D * u
