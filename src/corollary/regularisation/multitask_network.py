"""The network of several tasks and its loss: a shared trunk, a head for each task, eq. 1 of the multi-task net."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from corollary.losses import Draw, cross_entropy, exchanged, half_squared
from corollary.nn.mlp import MLP

__all__ = ["Tasks", "Trunk", "features"]


class _Head(nn.Module):
    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = MLP(widths)

    def forward(self, h: Tensor) -> Tensor:
        return self.layers(h)  # type: ignore[no-any-return]


class _Heads(nn.Module):
    """All heads as one part, so that the last layer of the network is all of them."""

    def __init__(self, n_features: int, hidden: Sequence[int], outputs: Sequence[int]) -> None:
        super().__init__()
        for t, n_out in enumerate(outputs):
            self.add_module(f"task{t}", _Head((n_features, *hidden, n_out)))

    def forward(self, h: Tensor) -> Tensor:
        return torch.cat([head(h) for head in self.children()], 1)


class Trunk(nn.Module):
    """A trunk and its heads: (n, ...) -> the outputs of all tasks side by side (n, sum of outputs)."""

    def __init__(
        self, trunk: nn.Module, n_features: int, hidden: Sequence[int], outputs: Sequence[int]
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.heads = _Heads(n_features, hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        return self.heads(features(self.trunk, x))  # type: ignore[no-any-return]


def features(trunk: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a trunk, flattened to rows."""
    h = trunk(x)
    return (h[0] if isinstance(h, tuple) else h).flatten(1)  # type: ignore[no-any-return]


class Tasks:
    """Eq. 1 as a criterion: the target (n, sum of outputs) holds indicators or a number for each task, NaN for none.

    Parameters
    ----------
    outputs : sequence of int
        Number of classes of each task; 1 for a number.
    scales : sequence of float
        :math:`w_t n / |S_t|`, so that the mean over all n samples is eq. 1.
    """

    def __init__(self, outputs: Sequence[int], scales: Sequence[float]) -> None:
        self.outputs, self.scales = list(outputs), list(scales)

    def parts(self, output: Tensor, target: Tensor) -> list[Tensor]:
        """Return the scaled losses (n,) of each task; zero for samples without a target."""
        found = []
        for z, y, scale in zip(output.split(self.outputs, 1), target.split(self.outputs, 1), self.scales):
            there = ~y.isnan().any(1)
            known = torch.where(there[:, None], y, torch.zeros((), dtype=y.dtype, device=y.device))
            losses = cross_entropy(z, known) if z.shape[1] > 1 else half_squared(z, known)
            found.append(scale * losses * there)
        return found

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return one loss per sample."""
        return torch.stack(self.parts(output, target)).sum(0)

    def smoothed(self, target: Tensor, share: float) -> Tensor:
        """Return targets with a share of each task's classes spread evenly; numbers stay as they are."""
        tasks = target.split(self.outputs, 1)
        return torch.cat([(1 - share) * y + share / y.shape[1] if y.shape[1] > 1 else y for y in tasks], 1)

    def with_noise(self, target: Tensor, scale: float, draw: Draw) -> Tensor:
        """Return targets with a share ``scale`` of classes exchanged, and normal noise of that deviation on numbers."""
        noisy = []
        for y in target.split(self.outputs, 1):
            other = exchanged(y, scale, draw) if y.shape[1] > 1 else y + scale * draw(torch.randn, y)
            noisy.append(torch.where(y.isnan(), y, other))  # what has no target gets none
        return torch.cat(noisy, 1)
