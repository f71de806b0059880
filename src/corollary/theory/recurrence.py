r"""Vanishing and exploding gradients of recurrent networks.

For :math:`z^{k+1} = \phi(U z^k + V x^{k+1})` the chain rule gives

.. math::
    \frac{\partial z^T}{\partial z^t} = \prod_{k=T-1}^{t} \mathrm{diag}\bigl(\dot\phi(U z^k + V x^{k+1})\bigr)\, U, \tag{1}

and with :math:`0 \le \dot\phi \le \alpha` (tanh and ReLU: 1; sigmoid: 1/4) and the largest singular value of U

.. math:: \Bigl\lVert \frac{\partial z^T}{\partial z^t} \Bigr\rVert_2 \le (\alpha\, \sigma_1(U))^{T-t}. \tag{2}

:math:`\sigma_1(U) < 1/\alpha` therefore makes gradients vanish; the converse is false: for
:math:`U = \begin{pmatrix} 0 & 5 \\ 0 & 0 \end{pmatrix}`, :math:`\sigma_1 = 5` and yet :math:`U^2 = 0`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from corollary.errors import kind, value

__all__ = ["SLOPES", "GradientFlow", "gradient_flow", "state_jacobians", "vanishing_bound"]

SLOPES = {"tanh": 1.0, "relu": 1.0, "sigmoid": 0.25, "identity": 1.0}  # the largest derivative


class GradientFlow(NamedTuple):
    """Measured and bounded norms, (T,); entry k is for the state k + 1 steps before the last."""

    measured: np.ndarray
    bound: np.ndarray
    spectral_norm: float
    spectral_radius: float

    @property
    def rate(self) -> float:
        """The factor by which the measured norm changes per step, in the mean."""
        ends = np.maximum(self.measured[[0, -1]], np.finfo(np.float64).tiny)
        return float((ends[1] / ends[0]) ** (1 / max(1, len(self.measured) - 1)))


def vanishing_bound(U: Any, steps: int, slope: float = 1.0) -> np.ndarray:
    """Return the right side of eq. 2 for 1, ..., ``steps`` steps.

    Parameters
    ----------
    U : array of shape (n, n)
        The recurrent weights.
    steps : int
        How many steps back.
    slope : float
        The largest derivative of the activation; ``SLOPES`` has the usual ones.

    Examples
    --------
    >>> vanishing_bound([[0.5, 0.0], [0.0, 0.25]], 3)
    array([0.5  , 0.25 , 0.125])
    """
    sigma = np.linalg.norm(np.asarray(U, dtype=np.float64), 2)
    return (slope * sigma) ** np.arange(1, steps + 1)


def state_jacobians(cell: nn.RNN, x: Tensor) -> list[Tensor]:
    """Return the Jacobians of one step each, diag(phi'(.)) U of eq. 1, for a sequence x (T, d)."""
    U, states = cell.weight_hh_l0.detach().double(), cell(x)[0].detach().double()
    if cell.nonlinearity == "tanh":
        slopes = 1 - states**2
    else:
        slopes = (states > 0).double()
    return [slope[:, None] * U for slope in slopes]


def gradient_flow(cell: nn.Module, x: Any) -> GradientFlow:
    """Measure how much of a gradient reaches earlier states, beside the bound of eq. 2.

    Parameters
    ----------
    cell : torch.nn.RNN
        One layer, one direction.
    x : array or Tensor of shape (T, d)
        The sequence along which to measure, T of at least 2.

    Returns
    -------
    GradientFlow
        ``measured[k]`` is the spectral norm of the Jacobian over k + 1 steps back from the last state.

    Notes
    -----
    O(T n^3) for n units.

    Examples
    --------
    >>> import torch
    >>> cell = torch.nn.RNN(2, 8)
    >>> flow = gradient_flow(cell, torch.zeros(20, 2))
    >>> bool((flow.measured <= flow.bound * (1 + 1e-6)).all())
    True
    """
    if not isinstance(cell, nn.RNN) or cell.num_layers != 1 or cell.bidirectional:
        raise kind("gradient_flow", "cell must be a torch.nn.RNN of one layer and one direction", repr(cell))
    like = cell.weight_hh_l0
    x = torch.as_tensor(x, dtype=like.dtype, device=like.device)
    if x.ndim != 2 or len(x) < 2:
        raise value(
            "gradient_flow", "x must have shape (T, d) with T of at least 2", f"shape {tuple(x.shape)}"
        )
    product, measured = torch.eye(like.shape[1], dtype=torch.float64, device=like.device), []
    for jacobian in reversed(state_jacobians(cell, x)[1:]):
        product = product @ jacobian
        measured.append(float(torch.linalg.matrix_norm(product, 2)))
    U = like.detach().double().cpu().numpy()
    return GradientFlow(
        np.array(measured),
        vanishing_bound(U, len(measured), SLOPES[cell.nonlinearity]),
        float(np.linalg.norm(U, 2)),
        float(np.abs(np.linalg.eigvals(U)).max()),
    )
