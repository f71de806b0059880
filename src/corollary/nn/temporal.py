r"""Dilated causal convolutions over time.

With kernel :math:`w_0, \dots, w_{k-1}` and dilation :math:`\delta`

.. math:: y_t = \sum_{j=0}^{k-1} w_j\, x_{t - \delta (k - 1 - j)}, \qquad x_s = 0 \text{ for } s < 0, \tag{1}

so that no output sees a later input. Blocks of two such layers with dilations :math:`1, 2, 4, \dots` see

.. math:: r = 1 + 2 (k - 1)(2^L - 1) \tag{2}

steps after L blocks: exponentially many for linearly many layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["CausalConv1d", "TemporalConvNet", "layers_to_see"]

DEEPEST = 12  # blocks: 16,381 steps with three taps


def layers_to_see(steps: int, kernel_size: int = 3) -> int:
    """Return the smallest number of blocks that see so many steps by eq. 2, and at most twelve.

    >>> layers_to_see(13), layers_to_see(14)
    (2, 3)
    """
    reach = lambda n: 1 + 2 * (kernel_size - 1) * (2**n - 1)
    return next((n for n in range(1, DEEPEST) if reach(n) >= steps), DEEPEST)


class CausalConv1d(nn.Conv1d):
    """Convolve ``(b, c, t)`` as in eq. 1: as long out as in, and never ahead."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1, bias: bool = True
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, dilation=dilation, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Pad the past, then convolve."""
        past = self.dilation[0] * (self.kernel_size[0] - 1)
        return super().forward(nn.functional.pad(x, (past, 0)))


class _Block(nn.Module):
    def __init__(self, n_in: int, n_out: int, kernel_size: int, dilation: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in (n_in, n_out):
            layers += [CausalConv1d(width, n_out, kernel_size, dilation), nn.ReLU()]
            layers += [nn.Dropout(dropout)] if dropout else []
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.layers(x) + self.shortcut(x))


class TemporalConvNet(nn.Sequential):
    """Residual blocks of dilated causal convolutions, ``(b, c, t)`` to ``(b, channels[-1], t)``.

    Parameters
    ----------
    in_channels : int
        Width of each step.
    channels : sequence of int
        Widths of the blocks; each further block doubles how far back the net sees.
    kernel_size : int
        Taps of each convolution.
    dropout : float
        Share of activations dropped while training.

    References
    ----------
    .. [1] S. Bai, J. Z. Kolter, V. Koltun (2018). An empirical evaluation of generic convolutional and recurrent
       networks for sequence modeling. arXiv:1803.01271.

    Examples
    --------
    >>> import torch
    >>> net = TemporalConvNet(3, (16, 16))
    >>> net(torch.zeros(2, 3, 50)).shape, net.receptive_field
    (torch.Size([2, 16, 50]), 13)
    """

    def __init__(
        self, in_channels: int, channels: Sequence[int], kernel_size: int = 3, dropout: float = 0.0
    ) -> None:
        widths = [in_channels, *channels]
        super().__init__(
            *(
                _Block(n_in, n_out, kernel_size, 2**i, dropout)
                for i, (n_in, n_out) in enumerate(zip(widths[:-1], widths[1:]))
            )
        )
        self.receptive_field = 1 + 2 * (kernel_size - 1) * (2 ** len(channels) - 1)
