"""The two networks of a GAN: a generator, which makes samples of noise, and a critic (discriminator), which scores them.

Sizes follow the shape of a sample: perceptrons for rows, convolutions for images. A label is appended to the noise as
indicators; the critic adds to its score the product of its features with a vector of the label (a projection).
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from corollary.nn.mlp import MLP

__all__ = ["Adversaries", "Critic", "Generator", "Grown", "image_sizes"]

SLOPE = 0.2  # of the leaky rectifiers


def image_sizes(shape: tuple[int, ...], width: int | None, n_layers: int | None) -> tuple[int, int]:
    """Return channels at full resolution and the number of halvings for images of a shape, where they are not given."""
    side = min(shape[1:])
    width = width or (32 if max(shape[1:]) <= 32 else 64)
    return width, n_layers or max(1, min(4, side.bit_length() - 3))


class Grown(nn.Module):
    """Images (n, c, h, w) from vectors: a small map, doubled and convolved until it is large enough, and cropped."""

    def __init__(self, n_in: int, shape: tuple[int, ...], width: int, depth: int) -> None:
        super().__init__()
        c, self.h, self.w = shape
        self.small = (width * 2**depth, -(-self.h // 2**depth), -(-self.w // 2**depth))
        self.inlet = nn.Linear(n_in, self.small[0] * self.small[1] * self.small[2])
        widths = [width * 2**i for i in range(depth, -1, -1)]
        self.norms = nn.ModuleList(nn.GroupNorm(1, n) for n in widths)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:]))
        self.outlet = nn.Conv2d(width, c, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        """Return the images; their numbers are not bounded."""
        x = self.inlet(z).reshape(-1, *self.small)
        for norm, convolution in zip(self.norms, self.convolutions):
            x = convolution(F.interpolate(F.relu(norm(x)), scale_factor=2.0))
        return self.outlet(F.relu(self.norms[-1](x)))[:, :, : self.h, : self.w]  # type: ignore[no-any-return]


class Generator(nn.Module):
    """Samples of a shape from noise (n, latent) and labels."""

    def __init__(
        self, shape: tuple[int, ...], latent: int, n_classes: int, width: int, n_layers: int
    ) -> None:
        super().__init__()
        self.latent, self.n_classes = latent, n_classes
        n_in = latent + n_classes
        if len(shape) == 1:
            self.net: nn.Module = MLP((n_in, *(width,) * n_layers, shape[0]))
        else:
            self.net = Grown(n_in, shape, width, n_layers)

    def forward(self, z: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the samples."""
        if label is not None:
            z = F.pad(z, (0, self.n_classes))
            z[:, self.latent :] = F.one_hot(label, self.n_classes).to(z.dtype)
        out: Tensor = self.net(z)
        return out.tanh() if out.ndim == 4 else out


class Critic(nn.Module):
    """A score (n,) of samples and labels: the log-odds of being real, or a potential."""

    def __init__(
        self, shape: tuple[int, ...], n_classes: int, width: int, n_layers: int, spectral: bool
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if len(shape) == 1:
            widths = [shape[0], *(width,) * n_layers]
            layers = [nn.Linear(a, b) for a, b in zip(widths, widths[1:])]
            n_out = widths[-1]
        else:
            c, h, w = shape
            widths = [c, *(width * 2**i for i in range(n_layers + 1))]
            layers = [
                nn.Conv2d(a, b, 3, 2 if i else 1, 1) for i, (a, b) in enumerate(zip(widths, widths[1:]))
            ]
            n_out = widths[-1] * -(-h // 2**n_layers) * -(-w // 2**n_layers)
        heads: list[nn.Module] = [nn.Linear(n_out, 1)]
        heads += [nn.Embedding(n_classes, n_out)] if n_classes else []
        if spectral:
            layers, heads = ([spectral_norm(part) for part in parts] for parts in (layers, heads))
        self.layers, self.heads = nn.ModuleList(layers), nn.ModuleList(heads)

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the scores."""
        for layer in self.layers:
            x = F.leaky_relu(layer(x), SLOPE)
        x = x.flatten(1)
        score: Tensor = self.heads[0](x)[:, 0]
        return score if label is None else score + (x * self.heads[1](label)).sum(1)


class Adversaries(nn.Module):
    """Both networks.

    Parameters
    ----------
    shape : tuple of int
        Shape of one sample.
    latent : int
        Dimension of the noise.
    n_classes : int, default=0
        Labels to condition on.
    width : int, optional
        Units of a layer of rows, 64 to 512; or channels at full resolution of images, 32 or 64.
    n_layers : int, optional
        Hidden layers of rows, 3; or times that the sides of images are halved, down to 4, at most 4.
    spectral : bool, default=False
        Whether the layers of the critic are divided by their largest singular value.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        latent: int,
        n_classes: int = 0,
        width: int | None = None,
        n_layers: int | None = None,
        spectral: bool = False,
    ) -> None:
        super().__init__()
        if len(shape) == 1:
            width, n_layers = width or min(512, max(64, 8 * shape[0])), n_layers or 3
        else:
            width, n_layers = image_sizes(shape, width, n_layers)
        self.critic = Critic(shape, n_classes, width, n_layers, spectral)
        self.generator = Generator(shape, latent, n_classes, width, n_layers)

    def forward(self, z: Tensor, label: Tensor | None = None) -> Tensor:
        """Return samples of noise."""
        out: Tensor = self.generator(z, label)
        return out
