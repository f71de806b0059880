r"""A picture of the loss around the weights.

Two random directions :math:`d, e` are drawn and every filter of each is given the length of the filter of the weights it moves,
:math:`d_f \leftarrow d_f \lVert w_f \rVert / \lVert d_f \rVert` (1), since a net with rectifiers does not change when one layer
is scaled up and the next one down. Drawn is :math:`f(w + a d + b e)` over a grid of :math:`(a, b)` (2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.diagnose.calling import alone
from corollary.diagnose.curvature import surface_of
from corollary.diagnose.subject import quiet
from corollary.diagnose.telling import told

__all__ = ["Landscape", "direction", "loss_surface"]


@told
class Landscape(NamedTuple):
    """The loss over a grid."""

    at: np.ndarray  # (points,), the multiples of either direction
    losses: np.ndarray  # (points, points), rows by the first direction
    loss: float  # in the middle

    def plot(self) -> Any:
        """Return a figure of its level lines."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.2, 3.6), layout="constrained")
        axes = figure.subplots()
        values = np.where(np.isfinite(self.losses), self.losses, np.nan)
        wide = np.nanmin(values) > 0 and np.nanmax(values) > 20 * np.nanmin(values)
        shown = np.log10(values) if wide else values
        drawn = axes.contourf(self.at, self.at, shown.T, 24, cmap="viridis")
        axes.plot(0, 0, "+", color="white", ms=10)
        figure.colorbar(drawn, label="log10 of the loss" if wide else "loss")
        axes.set(xlabel="first direction", ylabel="second direction")
        return figure


def direction(params: list[nn.Parameter], rng: torch.Generator) -> list[Tensor]:
    """Return a random direction whose filters are as long as those of the weights, eq. 1; gains and biases stay."""
    found = []
    for p in params:
        d = torch.randn(p.shape, generator=rng).to(p)
        if p.ndim < 2:
            found.append(torch.zeros_like(p))
            continue
        flat, own = d.reshape(len(d), -1), p.detach().reshape(len(p), -1)
        scale = own.norm(dim=1, keepdim=True) / flat.norm(dim=1, keepdim=True).clamp_min(1e-12)
        found.append((flat * scale).reshape(p.shape))
    return found


@alone
def loss_surface(
    model: Any, data: Any, *, loss: Any = None, span: float = 1.0, points: int = 21, random_state: int = 0
) -> Landscape:
    """Return the loss on a grid around the weights, in two random directions.

    Parameters
    ----------
    model, data, loss
        As :func:`corollary.diagnose` takes them. The model is asked in evaluation mode and not changed.
    span : float, default=1
        The grid goes from minus to plus this multiple of the directions, which are as long as the weights.
    points : int, default=21
        On each axis.
    random_state : int, default=0
        Of the directions.

    Examples
    --------
    >>> import torch
    >>> from corollary.diagnose import loss_surface
    >>> found = loss_surface(torch.nn.Linear(3, 2), (torch.randn(50, 3), torch.arange(50) % 2), points=5)
    >>> found.losses.shape, bool(abs(found.losses[2, 2] - found.loss) < 1e-6)
    ((5, 5), True)
    """
    if span <= 0 or points < 3:
        raise errors.value("loss_surface", "span must be positive and points at least 3", (span, points))
    surface = surface_of("loss_surface", model, data, loss)
    rng = torch.Generator().manual_seed(random_state)
    here = surface.get()
    first, second = (
        torch.cat([part.reshape(-1) for part in direction(surface.params, rng)]) for _ in range(2)
    )
    at = np.linspace(-span, span, points)
    losses = np.empty((points, points))
    with quiet(surface.module):
        middle = surface.value()
        for i, a in enumerate(at):
            for j, b in enumerate(at):
                surface.put(here + float(a) * first + float(b) * second)
                losses[i, j] = surface.value()
    return Landscape(at, losses, middle)
