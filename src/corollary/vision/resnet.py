r"""ResNet: a deep convolutional network of residual blocks.

.. math:: y = \mathrm{ReLU}(S x + F(x)), \tag{1}

where :math:`S` is the identity, or a 1 x 1 convolution with normalisation where the shape changes, and
:math:`F` is two 3 x 3 convolutions (basic) or 1 x 1, 3 x 3, 1 x 1 through a quarter of the channels (bottleneck).

===== ================= ============= ===========
depth block             blocks        parameters
===== ================= ============= ===========
18    basic             2 2 2 2        11,689,512
34    basic             3 4 6 3        21,797,672
50    bottleneck        3 4 6 3        25,557,032
101   bottleneck        3 4 23 3       44,549,160
152   bottleneck        3 8 36 3       60,192,808
===== ================= ============= ===========
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from corollary.errors import unknown, value
from corollary.nn.normalisation import BatchNorm2d
from corollary.nn.pretrained import fill_pretrained, read_pretrained
from corollary.vision import checkpoints
from corollary.vision.net import Conv, ImageNet, Pointwise, check_size, halving, initialise, is_small

__all__ = ["ResNet"]

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
EXPANSION = 4


class Block(nn.Module):
    """A residual block, eq. 1."""

    def __init__(
        self, n_in: int, n_out: int, stride: int, bottleneck: bool, early_stride: bool, activation: nn.Module
    ) -> None:
        super().__init__()
        if bottleneck:
            inner = n_out // EXPANSION
            steps = (stride, 1) if early_stride else (1, stride)
            layers = [Conv(n_in, inner, 1, steps[0]), Conv(inner, inner, 3, steps[1])]
            last = Conv(inner, n_out, 1, activation=nn.Identity())
        else:
            layers, last = [Conv(n_in, n_out, 3, stride)], Conv(n_out, n_out, activation=nn.Identity())
        self.branch = nn.Sequential(*layers, last)
        self.shortcut: nn.Module = nn.Identity()
        if n_in != n_out or stride != 1:
            self.shortcut = nn.Sequential(Pointwise(n_in, n_out, stride), BatchNorm2d(n_out))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return the rectified sum."""
        return self.activation(self.branch(x) + self.shortcut(x))


class ResNet(ImageNet):
    """A residual net.

    Parameters
    ----------
    depth : {18, 34, 50, 101, 152} or sequence of int, default=18
        A published depth, or the number of blocks of each stage. More see more, and cost more.
    channels : int, default=3
        Channels of the images.
    n_classes : int, default=1000
        Width of the output; 0 for none, so that the output are the pooled features.
    size : int or (int, int), default=224
        Sides of the images. Up to 64 pixels the stem is one 3 x 3 convolution, which keeps the size up to 24 and
        halves it from there on.
    width : int, optional
        Channels of the stem. 64 as published, 16 for small images.
    widths : sequence of int, optional
        Channels that each stage puts out; by default ``width`` (four times that for bottlenecks), doubled
        from stage to stage.
    bottleneck : bool, optional
        Which blocks; by default basic for depths 18 and 34 and for sequences.
    early_stride : bool, default=False
        Whether a bottleneck's first convolution has the stride (as first published) rather than the second.
    first_stride : int, default=1
        Stride of the first stage.
    stem : {"large", "small"}, optional
        7 x 7 with stride 2 and pooling, or 3 x 3, pooled above 24 pixels; by default from the size.
    activation : nn.Module, optional
        What follows each sum; ReLU if not given.

    References
    ----------
    .. [1] K. He, X. Zhang, S. Ren, J. Sun (2016). Deep residual learning for image recognition. CVPR, table 1.

    Examples
    --------
    >>> import torch
    >>> net = ResNet(18, channels=1, n_classes=10, size=28)
    >>> net(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        depth: int | Sequence[int] = 18,
        *,
        channels: int = 3,
        n_classes: int = 1000,
        size: int | tuple[int, int] = 224,
        width: int | None = None,
        widths: Sequence[int] | None = None,
        bottleneck: bool | None = None,
        early_stride: bool = False,
        first_stride: int = 1,
        stem: str | None = None,
        activation: nn.Module | str | None = None,
    ) -> None:
        super().__init__()
        blocks = _blocks(depth)
        check_size("ResNet", size, 2)
        stem = stem or ("small" if is_small(size) else "large")
        if stem not in ("large", "small"):
            raise unknown("ResNet", "stem", stem, ("large", "small"))
        bottleneck = (isinstance(depth, int) and depth >= 50) if bottleneck is None else bottleneck
        width = width or (16 if is_small(size) else 64)
        if widths is None:
            widths = [width * 2**i * (EXPANSION if bottleneck else 1) for i in range(len(blocks))]
        if len(widths) != len(blocks):
            raise value("ResNet", f"widths must have one entry per stage ({len(blocks)})", len(widths))
        phi = checkpoints.activation(activation) if isinstance(activation, str) else activation
        phi = phi or nn.ReLU(inplace=True)
        first = (
            [Conv(channels, width, 7, 2, activation=phi), nn.MaxPool2d(3, 2, 1)]
            if stem == "large"
            else [Conv(channels, width, activation=phi), *halving(size, width)]
        )
        self.stem = nn.Sequential(*first)
        stages, n_in = [], width
        for i, (count, n_out) in enumerate(zip(blocks, widths)):
            strides = [first_stride if i == 0 else 2] + [1] * (count - 1)
            inputs = [n_in] + [n_out] * (count - 1)
            stage = [Block(n, n_out, s, bottleneck, early_stride, phi) for n, s in zip(inputs, strides)]
            stages.append(nn.Sequential(*stage))
            n_in = n_out
        self.stages = nn.Sequential(*stages)
        output = [nn.Linear(n_in, n_classes)] if n_classes else []
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *output)
        initialise(self)

    def features(self, x: Tensor) -> Tensor:
        """Return the maps before the last pooling."""
        return self.stages(self.stem(x))

    @classmethod
    def from_transformers(cls, source: Any) -> ResNet:
        """Return the net with the weights of transformers' ``ResNetModel`` or ``ResNetForImageClassification``.

        Parameters
        ----------
        source : model or path
            A model object, or a directory with ``config.json`` and ``model.safetensors`` (whole or in shards) or
            ``pytorch_model.bin``.

        Returns
        -------
        ResNet
            In evaluation mode; ``net(x)`` are the logits (pooled features for a bare model) and
            ``net.features(x)`` the last hidden state.
        """
        config, weights = read_pretrained(source, "resnet", "ResNet.from_transformers", DEFAULTS)
        weights = own_names(weights)
        n_classes = len(weights["head.2.bias"]) if "head.2.bias" in weights else 0
        make = partial(cls, channels=config["num_channels"], n_classes=n_classes, **arguments(config))
        return fill_pretrained(make, weights, "ResNet.from_transformers")


def arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the net that a configuration of transformers describes, but for images and classes."""
    return {
        "depth": list(config["depths"]),
        "width": config["embedding_size"],
        "widths": list(config["hidden_sizes"]),
        "bottleneck": config["layer_type"] == "bottleneck",
        "early_stride": config["downsample_in_bottleneck"],
        "first_stride": 2 if config["downsample_in_first_stage"] else 1,
        "stem": "large",
        "activation": config["hidden_act"],
    }


def own_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return transformers' weights by the names here."""
    return checkpoints.renamed(weights, RULES)


def _blocks(depth: int | Sequence[int]) -> tuple[int, ...]:
    if not isinstance(depth, int):
        return tuple(depth)
    if depth not in BLOCKS:
        raise unknown("ResNet", "depth", str(depth), map(str, BLOCKS))
    return BLOCKS[depth]


# What a configuration file may leave out: that of ResNet-50 has no word about the stride.
DEFAULTS = {
    "downsample_in_bottleneck": False,
    "downsample_in_first_stage": False,
    "embedding_size": 64,
    "hidden_act": "relu",
    "layer_type": "bottleneck",
    "num_channels": 3,
}
RULES = [
    (r"^resnet\.", ""),
    (r"^embedder\.embedder\.", "stem.0."),
    (r"^encoder\.stages\.(\d+)\.layers\.(\d+)\.", r"stages.\1.\2."),
    (r"\.layer\.(\d+)\.", r".branch.\1."),
    (r"\.convolution\.", ".0."),
    (r"\.normalization\.", ".1."),
    (r"^classifier\.1\.", "head.2."),
]
