r"""The vision transformer: an image as a sequence of patches.

Patches of :math:`p \times p` pixels are mapped linearly to tokens of width :math:`d`, a class token is put in
front, learned positions :math:`P` are added, and blocks of attention and a two-layer perceptron follow:

.. math::
    z_0 &= [\,c;\; E x_1;\; \dots;\; E x_N\,] + P, \qquad N = \lceil h/p \rceil \lceil w/p \rceil, \tag{1} \\
    z' &= z + \mathrm{Attention}(\mathrm{LN}(z)), \qquad z \leftarrow z' + \mathrm{MLP}(\mathrm{LN}(z')). \tag{2}

The class is read off the first token of :math:`\mathrm{LN}(z_L)`. Attention over :math:`H` heads is
:math:`\mathrm{softmax}(q k^\top \sqrt{H / d})\, v` (3).

======= ===== ====== ===== ====== =====================
name    width layers heads mlp    parameters at 224 / 16
======= ===== ====== ===== ====== =====================
tiny    192   12     3     768                 5,717,416
small   384   12     6     1536               22,050,664
base    768   12     12    3072               86,567,656
large   1024  24     16    4096              304,326,632
======= ===== ====== ===== ====== =====================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import gcd, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.errors import unknown, value
from corollary.nn.pretrained import fill_pretrained, read_pretrained
from corollary.vision import checkpoints
from corollary.vision.net import ImageNet, is_small, pair

__all__ = ["ViT"]

# Width, layers, heads; the perceptron is four times as wide.
SIZES = {
    "nano": (64, 6, 4),
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
}
GRID = 7  # patches along the shorter side of a small image, if patches of 2 x 2 or more allow it


class Attention(nn.Module):
    """Self-attention over tokens, eq. 3: (n, t, d) -> (n, t, d)."""

    def __init__(self, width: int, n_heads: int, bias: bool = True) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended values of each token."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and perceptron, each added to its input, eq. 2."""

    def __init__(
        self,
        width: int,
        n_heads: int,
        inner_width: int,
        dropout: float,
        eps: float,
        bias: bool,
        phi: nn.Module,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attention = Attention(width, n_heads, bias)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = nn.Sequential(nn.Linear(width, inner_width), phi, nn.Linear(inner_width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, z: Tensor) -> Tensor:
        """Return the tokens of the next layer."""
        z = z + self.dropout(self.attention(self.norm1(z)))
        return z + self.dropout(self.mlp(self.norm2(z)))


class ViT(ImageNet):
    """A vision transformer.

    Parameters
    ----------
    preset : {"nano", "tiny", "small", "base", "large"}, optional
        Width, depth and heads; by default "base", and "nano" for images up to 64 pixels.
    channels : int, default=3
        Channels of the images.
    n_classes : int, default=1000
        Width of the output; 0 for none, so that the output is the class token.
    size : int or (int, int), default=224
        Sides of the images.
    patch_size : int or (int, int), optional
        Sides of a patch; they must divide the image's. Smaller see finer, and cost with the fourth power.
        By default at most 16, and for small images what leaves 7 patches along the shorter side (at least 2); of
        these down to half as many, the largest that fits with the least of zeros around the image.
    width, n_layers, n_heads, inner_width : int, optional
        Instead of the preset's: width of the tokens, layers, heads, width of the perceptrons.
    dropout : float, default=0.0
        Share of the tokens' entries dropped while training.
    eps, qkv_bias, activation
        Details of normalisation, attention and perceptron.

    References
    ----------
    .. [1] A. Dosovitskiy et al. (2021). An image is worth 16x16 words. ICLR, eqs. (1)-(4), table 1.

    Examples
    --------
    >>> import torch
    >>> net = ViT(channels=1, n_classes=10, size=28)
    >>> net(torch.zeros(2, 1, 28, 28)).shape, net.patch_size
    (torch.Size([2, 10]), (4, 4))
    """

    def __init__(
        self,
        preset: str | None = None,
        *,
        channels: int = 3,
        n_classes: int = 1000,
        size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] | None = None,
        width: int | None = None,
        n_layers: int | None = None,
        n_heads: int | None = None,
        inner_width: int | None = None,
        dropout: float = 0.0,
        eps: float = 1e-6,
        qkv_bias: bool = True,
        activation: nn.Module | str | None = None,
    ) -> None:
        super().__init__()
        preset = preset or ("nano" if is_small(size) else "base")
        if preset not in SIZES:
            raise unknown("ViT", "preset", preset, SIZES)
        d, layers, h = (given or usual for given, usual in zip((width, n_layers, n_heads), SIZES[preset]))
        if d % h:
            raise value("ViT", f"width must be a multiple of n_heads={h}", d, f"Use width={-(-d // h) * h}.")
        self.size = pair(size)
        self.patch_size = _patches(self.size, patch_size)
        self.margin = tuple(-n % p for n, p in zip(self.size, self.patch_size))  # zeros around the image
        n_patches = prod((n + m) // p for n, m, p in zip(self.size, self.margin, self.patch_size))
        self.patches = nn.Conv2d(channels, d, self.patch_size, self.patch_size)
        self.class_token = nn.Parameter(torch.empty(1, 1, d))
        self.positions = nn.Parameter(torch.empty(1, n_patches + 1, d))
        self.dropout = nn.Dropout(dropout)
        phi = checkpoints.activation(activation) if isinstance(activation, str) else activation or nn.GELU()
        blocks = [Block(d, h, inner_width or 4 * d, dropout, eps, qkv_bias, phi) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(d, eps=eps)
        self.head = nn.Linear(d, n_classes) if n_classes else nn.Identity()
        self._draw()

    def _draw(self) -> None:
        nn.init.trunc_normal_(self.class_token, std=0.02)
        # as large as the tokens: else it takes long to tell places apart
        nn.init.normal_(self.positions, std=0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the normalised tokens of the last layer, the class token first: (n, 1 + N, d)."""
        if tuple(x.shape[2:]) != self.size:
            got = f"{x.shape[2]} x {x.shape[3]}"
            raise value("ViT", f"images must be {self.size[0]} x {self.size[1]}", got, "Resize or crop them.")
        if any(self.margin):
            rows, columns = self.margin
            x = F.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), tokens], 1) + self.positions  # eq. 1
        return self.norm(self.blocks(self.dropout(tokens)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, from the class token."""
        return self.head(self.features(x)[:, 0])

    @classmethod
    def from_transformers(cls, source: Any) -> ViT:
        """Return the net with the weights of transformers' ``ViTModel`` or ``ViTForImageClassification``.

        Parameters
        ----------
        source : model or path
            A model object, or a directory with ``config.json`` and ``model.safetensors`` (whole or in shards) or
            ``pytorch_model.bin``.

        Returns
        -------
        ViT
            In evaluation mode; ``net(x)`` are the logits (the class token for a bare model) and
            ``net.features(x)`` the last hidden state. A pooler is left out.
        """
        config, weights = read_pretrained(source, "vit", "ViT.from_transformers", DEFAULTS)
        weights = own_names(weights)
        n_classes = len(weights["head.bias"]) if "head.bias" in weights else 0
        sizes = {"channels": config["num_channels"], "n_classes": n_classes, "size": config["image_size"]}
        return fill_pretrained(lambda: cls(**sizes, **arguments(config)), weights, "ViT.from_transformers")


def arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the net that a configuration of transformers describes, but for images and classes."""
    return {
        "patch_size": config["patch_size"],
        "width": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "inner_width": config["intermediate_size"],
        "dropout": config["hidden_dropout_prob"],
        "eps": config["layer_norm_eps"],
        "qkv_bias": config["qkv_bias"],
        "activation": config["hidden_act"],
    }


def own_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return transformers' weights by the names here."""
    return _fused(checkpoints.renamed(weights, RULES))


def _patches(size: tuple[int, int], patch_size: Any) -> tuple[int, int]:
    """Return the sides of a patch, chosen or checked."""
    if patch_size is None:
        most = 16 if not is_small(size) else max(2, min(size) // GRID)
        fit = range(max(min(2, *size), -(-most // 2)), most + 1)
        best = min(fit, key=lambda p: (prod(n + -n % p for n in size), -p))
        return best, best
    common = gcd(*size)
    patch = pair(patch_size)
    if any(n % p or p > n for n, p in zip(size, patch)):
        p = max(patch)
        divisors = [q for q in range(1, common + 1) if common % q == 0]
        near = min(divisors, key=lambda q: abs(q - p))
        padded = " x ".join(str(-(-n // q) * q) for n, q in zip(size, patch))
        must = f"patch_size must divide the image's sides ({size[0]} x {size[1]})"
        do = f"Use patch_size={near}, or pad the images to {padded}."
        raise value("ViT", must, f"{patch[0]} x {patch[1]}", do)
    return patch


# What a configuration file may leave out.
DEFAULTS = {
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "image_size": 224,
    "layer_norm_eps": 1e-12,
    "num_channels": 3,
    "patch_size": 16,
    "qkv_bias": True,
}
# The names that transformers 5 gives the parameters, and those of the files of its earlier versions.
RULES = [
    (r"^vit\.", ""),
    (r"^embeddings\.cls_token", "class_token"),
    (r"^embeddings\.position_embeddings", "positions"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patches."),
    (r"^embeddings\.mask_token", "unused"),
    (r"^(?:encoder\.layer|layers)\.(\d+)\.", r"blocks.\1."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.(?:attention\.query|q_proj)\.", ".attention.q."),
    (r"\.attention\.(?:attention\.key|k_proj)\.", ".attention.k."),
    (r"\.attention\.(?:attention\.value|v_proj)\.", ".attention.v."),
    (r"\.attention\.(?:output\.dense|o_proj)\.", ".attention.out."),
    (r"\.(?:intermediate\.dense|mlp\.fc1)\.", ".mlp.0."),
    (r"^(blocks\.\d+)\.(?:output\.dense|mlp\.fc2)\.", r"\1.mlp.2."),
    (r"^layernorm\.", "norm."),
    (r"^classifier\.", "head."),
    (r"^(?:pooler|decoder)\..*", "unused"),
]


def _fused(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join queries, keys and values into one matrix."""
    fused = {key: tensor for key, tensor in weights.items() if not re.search(r"\.attention\.[qkv]\.", key)}
    for key in weights:
        if ".attention.q." in key:
            parts = [weights[key.replace(".attention.q.", f".attention.{part}.")] for part in "qkv"]
            fused[key.replace(".attention.q.", ".attention.qkv.")] = torch.cat(parts)
    return fused
