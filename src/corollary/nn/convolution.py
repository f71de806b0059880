r"""A 3 x 3 convolution whose weights' gradient takes fewer multiplications.

Along one axis, two neighbouring outputs of a filter :math:`w` of three weights read four inputs :math:`d`, and
Winograd's form of them needs four multiplications instead of six,

.. math:: y = A^\top \big( (G w) \odot (B^\top d) \big), \qquad \nabla_w = G^\top \big( (A\, g) \odot (B^\top d) \big), \tag{1}

for a gradient :math:`g` by :math:`y`, with

.. math::
    B^\top d = (d_0 - d_2,\ d_1 + d_2,\ d_2 - d_1,\ d_1 - d_3), \qquad
    A\, g = (g_0,\ g_0 + g_1,\ g_0 - g_1,\ -g_1). \tag{2}

Along both axes it is 16 instead of 36, and over all tiles and channels 16 matrix products. Torch computes the outputs
and the inputs' gradient near the processor's limit, but the weights' at half of it: there (1) pays.

References
----------
.. [1] A. Lavin, S. Gray (2016). Fast algorithms for convolutional neural networks. CVPR.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Conv3x3"]

HELD = 2**25  # entries of the transformed maps that are held at a time
DEEP = 128  # input channels from which on (1) is faster
G = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]])


class _Convolution(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, padding=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        x, w = ctx.saved_tensors
        need_x, need_w = ctx.needs_input_grad
        return (
            F.conv_transpose2d(g, w, padding=1) if need_x else None,
            weight_gradient(x, g) if need_w else None,
        )

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dw: Tensor | None) -> Any:  # type: ignore[override]
        x, w = ctx.saved_tensors
        parts = [F.conv2d(dx, w, padding=1)] if dx is not None else []
        parts += [F.conv2d(x, dw, padding=1)] if dw is not None else []
        return sum(parts)


def weight_gradient(x: Tensor, g: Tensor) -> Tensor:
    """Return eq. 1 over both axes, summed over groups of images: (n, c, h, w), (n, k, h, w) -> (k, c, 3, 3)."""
    (_, c, h, w), k = x.shape, g.shape[1]
    rows, columns = (h + 1) // 2, (w + 1) // 2  # of tiles
    x = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 2 * columns + 1 - w, 1, 2 * rows + 1 - h))
    g = F.pad(g.permute(0, 2, 3, 1), (0, 0, 0, 2 * columns - w, 0, 2 * rows - h))
    group = max(1, HELD // (16 * rows * columns * max(c, k)))
    total: Any = 0
    for maps, slopes in zip(x.split(group), g.split(group)):
        wide, steep = (
            torch.stack(_inputs(maps, 1, rows)),
            torch.stack(_outputs(slopes, 1)),
        )  # (4, n, rows, ..)
        parts = [
            b.reshape(4, -1, k).mT @ a.reshape(4, -1, c)
            for a, b in zip(_inputs(wide, 3, columns), _outputs(steep, 3))
        ]
        total = total + torch.stack(parts)  # (4, 4, k, c): by column and row
    back = torch.kron(G, G).to(total).T  # (9, 16)
    return (back @ total.reshape(16, -1)).view(3, 3, k, c).permute(2, 3, 1, 0)


def _inputs(x: Tensor, axis: int, tiles: int) -> tuple[Tensor, ...]:
    """Return the four parts of Bᵀd along an axis, eq. 2 left; tiles overlap by two."""
    a, b, c, d = (_every_second(x.narrow(axis, i, 2 * tiles - 1), axis, 0) for i in range(4))
    return a - c, b + c, c - b, b - d


def _outputs(g: Tensor, axis: int) -> tuple[Tensor, ...]:
    """Return the four parts of A g along an axis, eq. 2 right."""
    a, b = _every_second(g, axis, 0), _every_second(g, axis, 1)
    return a, a + b, a - b, -b


def _every_second(x: Tensor, axis: int, first: int) -> Tensor:
    return x[(slice(None),) * axis + (slice(first, None, 2),)]


class Conv3x3(nn.Conv2d):
    """A 3 x 3 convolution with padding 1 and no bias; while training on a processor it uses eq. 1 where that pays.

    Parameters
    ----------
    n_in, n_out : int
        Channels.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the maps."""
        own = (
            self.training
            and self.in_channels >= DEEP
            and self.padding == (1, 1)
            and x.device.type == "cpu"
            and x.dtype == self.weight.dtype
            and x.dtype in (torch.float32, torch.float64)
            and self.weight.requires_grad
            and torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
        )
        return _Convolution.apply(x, self.weight) if own else super().forward(x)
