r"""SegFormer: a transformer that looks at an image on four scales, and one linear layer that joins them.

Each stage cuts the maps of the one before into overlapping patches of :math:`k \times k` pixels every :math:`s` pixels, which
become tokens. In its blocks a token attends to keys and values on a grid :math:`r` times coarser, :math:`z_r`, which makes
attention :math:`r^2` times cheaper,

.. math:: z' = z + \mathrm{Attention}(\mathrm{LN}(z), \mathrm{LN}(z_r)), \tag{1}

and the perceptron looks at neighbouring tokens, so that no positions need to be learned,

.. math:: z \leftarrow z' + W_2\, \phi(\mathrm{Conv}_{3 \times 3}(W_1\, \mathrm{LN}(z'))). \tag{2}

The maps of all stages, mapped to one width and enlarged to the finest, are mixed pixel by pixel; a 1 x 1 convolution gives the
logits, enlarged to the image.

====== ============ ================== ========
layout blocks       widths             decoder
====== ============ ================== ========
b0     2 2 2 2      32 64 160 256      256
b1     2 2 2 2      64 128 320 512     256
b2     3 4 6 3      64 128 320 512     768
b3     3 4 18 3     64 128 320 512     768
b4     3 8 27 3     64 128 320 512     768
b5     3 6 40 3     64 128 320 512     768
====== ============ ================== ========
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.errors import unknown, value
from corollary.nn.normalisation import BatchNorm2d
from corollary.nn.pretrained import fill_pretrained, read_pretrained
from corollary.vision import checkpoints
from corollary.vision.net import check_size

__all__ = ["SegFormer"]

WIDE = (64, 128, 320, 512)
LAYOUTS: dict[str, tuple[Sequence[int], Sequence[int], int]] = {
    "b0": ((2, 2, 2, 2), (32, 64, 160, 256), 256),
    "b1": ((2, 2, 2, 2), WIDE, 256),
    "b2": ((3, 4, 6, 3), WIDE, 768),
    "b3": ((3, 4, 18, 3), WIDE, 768),
    "b4": ((3, 8, 27, 3), WIDE, 768),
    "b5": ((3, 6, 40, 3), WIDE, 768),
}


def _tokens(maps: Tensor) -> Tensor:
    """Return maps (n, c, h, w) as tokens (n, h w, c)."""
    return maps.flatten(2).transpose(1, 2)


def _maps(tokens: Tensor, h: int, w: int) -> Tensor:
    return tokens.transpose(1, 2).unflatten(2, (h, w))


class Attention(nn.Module):
    """Attention to a grid ``reduction`` times coarser, eq. 1."""

    def __init__(self, width: int, n_heads: int, reduction: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        if reduction > 1:
            self.reduce = nn.Conv2d(width, width, reduction, reduction)
            self.norm = nn.LayerNorm(width)

    def forward(self, z: Tensor, h: int, w: int) -> Tensor:
        """Return the attended values of each token."""
        seen = self.norm(_tokens(self.reduce(_maps(z, h, w)))) if hasattr(self, "reduce") else z
        q, k, v = (
            part.unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for part in (self.q(z), self.k(seen), self.v(seen))
        )
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, and a perceptron that sees neighbours, each added to its input, eqs. 1 and 2."""

    def __init__(self, width: int, n_heads: int, reduction: int, inner_width: int, phi: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, n_heads, reduction)
        self.inner, self.outer = nn.Linear(width, inner_width), nn.Linear(inner_width, width)
        self.near = nn.Conv2d(inner_width, inner_width, 3, padding=1, groups=inner_width)
        self.phi = phi

    def forward(self, z: Tensor, h: int, w: int) -> Tensor:
        """Return the tokens of the next layer."""
        z = z + self.attention(self.norm1(z), h, w)
        inner = _tokens(self.near(_maps(self.inner(self.norm2(z)), h, w)))
        return z + self.outer(self.phi(inner))


class Stage(nn.Module):
    """Overlapping patches, and blocks on them: maps in, coarser maps out."""

    def __init__(self, n_in: int, width: int, patch: int, stride: int, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.patches = nn.Conv2d(n_in, width, patch, stride, patch // 2)
        self.start, self.end = nn.LayerNorm(width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Return the maps."""
        x = self.patches(x)
        h, w = x.shape[2:]
        z = self.start(_tokens(x))
        for block in self.blocks:
            z = block(z, h, w)
        return _maps(self.end(z), h, w)


class SegFormer(nn.Module):
    """A transformer from images to maps of the same size.

    Parameters
    ----------
    layout : {"b0", "b1", "b2", "b3", "b4", "b5"}, default="b0"
        Blocks and widths as published.
    channels : int, default=3
        Channels of the images.
    n_classes : int, default=150
        Channels of the output; 0 for none, so that the output are the mixed maps, a quarter as long and wide.
    size : int or (int, int), default=512
        Sides of the images, 32 or more; any others are taken too.
    depth, widths, n_heads, reductions, ratios, patches, strides : sequence of int, optional
        One number for each stage, instead of the layout's: blocks, widths of tokens, heads, how much coarser keys and values
        are, inner widths of the perceptrons in widths, sides of patches, and pixels from patch to patch.
    width : int, optional
        Width of the decoder.
    dropout : float, default=0.1
        Share of the mixed maps dropped while training.
    activation : nn.Module or str, optional
        Activation of the perceptrons; GELU if not given.

    References
    ----------
    .. [1] E. Xie, W. Wang, Z. Yu, A. Anandkumar, J. M. Alvarez, P. Luo (2021). SegFormer: simple and efficient design for
       semantic segmentation with transformers. NeurIPS, section 3.

    Examples
    --------
    >>> SegFormer(n_classes=3, size=32)(torch.zeros(2, 3, 32, 40)).shape
    torch.Size([2, 3, 32, 40])
    """

    def __init__(
        self,
        layout: str = "b0",
        *,
        channels: int = 3,
        n_classes: int = 150,
        size: int | tuple[int, int] = 512,
        depth: Sequence[int] | None = None,
        widths: Sequence[int] | None = None,
        n_heads: Sequence[int] = (1, 2, 5, 8),
        reductions: Sequence[int] = (8, 4, 2, 1),
        ratios: Sequence[int] = (4, 4, 4, 4),
        patches: Sequence[int] = (7, 3, 3, 3),
        strides: Sequence[int] = (4, 2, 2, 2),
        width: int | None = None,
        dropout: float = 0.1,
        activation: nn.Module | str | None = None,
    ) -> None:
        super().__init__()
        if layout not in LAYOUTS:
            raise unknown("SegFormer", "layout", layout, LAYOUTS)
        depth, widths, width = (
            given or usual for given, usual in zip((depth, widths, width), LAYOUTS[layout])
        )
        stages = [*zip(depth, widths, n_heads, reductions, ratios, patches, strides)]
        check_size("SegFormer", size, max(r * prod(strides[: i + 1]) for i, r in enumerate(reductions)))
        if any(n % h for n, h in zip(widths, n_heads)) or len(stages) != len(widths):
            must = "widths must be multiples of n_heads, one of each for every stage"
            raise value("SegFormer", must, f"{tuple(widths)} and {tuple(n_heads)}")
        phi = checkpoints.activation(activation) if isinstance(activation, str) else activation or nn.GELU()
        self.stages, n_in = nn.ModuleList(), channels
        for count, n_out, heads, reduction, ratio, patch, stride in stages:
            blocks = [Block(n_out, heads, reduction, ratio * n_out, phi) for _ in range(count)]
            self.stages.append(Stage(n_in, n_out, patch, stride, blocks))
            n_in = n_out
        self.project = nn.ModuleList(nn.Linear(n, width) for n in widths)
        self.mix = nn.Sequential(
            nn.Conv2d(len(stages) * width, width, 1, bias=False), BatchNorm2d(width), nn.ReLU()
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Conv2d(width, n_classes, 1) if n_classes else nn.Identity()
        self._draw()

    def _draw(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the mixed maps of all stages, on the finest grid."""
        found: list[Tensor] = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        size = found[0].shape[2:]
        seen = [
            F.interpolate(_maps(layer(_tokens(m)), *m.shape[2:]), size=size, mode="bilinear")
            for layer, m in zip(self.project, found)
        ]
        return self.mix(torch.cat(seen[::-1], 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of every pixel."""
        out = self.head(self.dropout(self.features(x)))
        if isinstance(self.head, nn.Identity):
            return out
        return F.interpolate(out, size=x.shape[2:], mode="bilinear")

    @classmethod
    def from_transformers(cls, source: Any) -> SegFormer:
        """Return the net with the weights of transformers' ``SegformerForSemanticSegmentation``.

        Parameters
        ----------
        source : model or path
            A model object, or a directory with ``config.json`` and ``model.safetensors`` (whole or in shards) or
            ``pytorch_model.bin``.

        Returns
        -------
        SegFormer
            In evaluation mode; ``net(x)`` are transformers' logits, enlarged to the image. Stochastic depth, which only
            training knows, is left out.
        """
        owner = "SegFormer.from_transformers"
        config, weights = read_pretrained(source, "segformer", owner, DEFAULTS)
        weights = own_names(weights)
        n_classes = len(weights["head.bias"]) if "head.bias" in weights else 0
        make = partial(cls, channels=config["num_channels"], n_classes=n_classes, **arguments(config))
        return fill_pretrained(make, weights, owner)


def arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the net that a configuration of transformers describes, but for images and classes."""
    return {
        "depth": list(config["depths"]),
        "widths": list(config["hidden_sizes"]),
        "n_heads": list(config["num_attention_heads"]),
        "reductions": list(config["sr_ratios"]),
        "ratios": list(config["mlp_ratios"]),
        "patches": list(config["patch_sizes"]),
        "strides": list(config["strides"]),
        "width": config["decoder_hidden_size"],
        "dropout": config["classifier_dropout_prob"],
        "activation": config["hidden_act"],
    }


def own_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return transformers' weights by the names here."""
    return checkpoints.renamed(weights, RULES)


# What a configuration file may leave out.
DEFAULTS = {
    "classifier_dropout_prob": 0.1,
    "decoder_hidden_size": 256,
    "depths": (2, 2, 2, 2),
    "hidden_act": "gelu",
    "hidden_sizes": (32, 64, 160, 256),
    "mlp_ratios": (4, 4, 4, 4),
    "num_attention_heads": (1, 2, 5, 8),
    "num_channels": 3,
    "patch_sizes": (7, 3, 3, 3),
    "sr_ratios": (8, 4, 2, 1),
    "strides": (4, 2, 2, 2),
}
# The names that transformers 5 gives the parameters, and those of the files of its earlier versions.
RULES = [
    (r"^segformer\.", ""),
    (r"^encoder\.patch_embeddings\.(\d+)\.", r"stages.\1.patch_embeddings."),
    (r"^encoder\.block\.(\d+)\.", r"stages.\1.blocks."),
    (r"^encoder\.layer_norm\.(\d+)\.", r"stages.\1.layer_norm."),
    (r"\.patch_embeddings\.proj\.", ".patches."),
    (r"\.patch_embeddings\.layer_norm\.", ".start."),
    (r"^(stages\.\d+)\.layer_norm\.", r"\1.end."),
    (r"\.(?:layernorm_before|layer_norm_1)\.", ".norm1."),
    (r"\.(?:layernorm_after|layer_norm_2)\.", ".norm2."),
    (r"\.attention\.(?:self\.query|q_proj)\.", ".attention.q."),
    (r"\.attention\.(?:self\.key|k_proj)\.", ".attention.k."),
    (r"\.attention\.(?:self\.value|v_proj)\.", ".attention.v."),
    (r"\.attention\.(?:output\.dense|o_proj)\.", ".attention.out."),
    (r"\.attention\.(?:self\.sr|sequence_reduction\.sequence_reduction)\.", ".attention.reduce."),
    (r"\.attention\.(?:self|sequence_reduction)\.layer_norm\.", ".attention.norm."),
    (r"\.mlp\.(?:dense1|fc1)\.", ".inner."),
    (r"\.mlp\.(?:dense2|fc2)\.", ".outer."),
    (r"\.mlp\.dwconv\.dwconv\.", ".near."),
    (r"^decode_head\.(?:linear_c|linear_projections)\.(\d+)\.proj\.", r"project.\1."),
    (r"^decode_head\.linear_fuse\.", "mix.0."),
    (r"^decode_head\.batch_norm\.", "mix.1."),
    (r"^decode_head\.classifier\.", "head."),
    (r"^classifier\..*", "unused"),  # of whole images
]
