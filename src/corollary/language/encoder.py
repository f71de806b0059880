r"""The bidirectional transformer encoder, in the layout of BERT, with the heads of its pre-training tasks.

A token, its place and its sentence are embedded, :math:`H^0 = \mathrm{norm}(E_x + P_t + S_s)`; every block computes

.. math::
    A = \mathrm{norm}(H + \mathrm{concat}_h[S_h V_h] W_O), \qquad S_h = \mathrm{softmax}(Q_h K_h^\top / \sqrt{d_h}), \qquad
    H' = \mathrm{norm}(A + \mathrm{gelu}(A W_1) W_2). \tag{1}

Hidden tokens are guessed from :math:`E\,\mathrm{norm}(\mathrm{gelu}(W H_t)) + b` (2), and whether the second sentence follows
the first from :math:`\tanh(W_p H_0)` (3).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.engine.ragged import padding_mask
from corollary.errors import value
from corollary.nn.pretrained import ACTIVATIONS, known_activation

__all__ = ["SIZES", "BertNetwork", "sentence_types", "visible"]

# Published sizes.
SIZES: dict[str, dict[str, int]] = {
    "base": {"n_tokens": 30522, "width": 768, "n_layers": 12, "n_heads": 12, "inner_width": 3072},
    "large": {"n_tokens": 30522, "width": 1024, "n_layers": 24, "n_heads": 16, "inner_width": 4096},
}


def visible(lengths: Tensor | None, steps: int, device: Any) -> Tensor | None:
    """Return (b, steps), True inside each text; ``None`` if all are full: attention without a mask is faster."""
    if lengths is None:
        return None
    if not torch.compiler.is_compiling() and bool((lengths == steps).all()):  # a graph cannot look at values
        return None
    return padding_mask(lengths, steps, device)


def sentence_types(tokens: Tensor, part: int, n_types: int = 2) -> Tensor:
    """Return the number of the sentence that each of tokens (b, t) stands in; ``part`` closes a sentence."""
    closes = (tokens == part).long()
    return (closes.cumsum(1) - closes).clamp_max(n_types - 1)


class Block(nn.Module):
    """Attention and a two-layer network, each added to its input and normalised, eq. 1."""

    def __init__(
        self, width: int, n_heads: int, inner_width: int, dropout: float, activation: str, epsilon: float
    ) -> None:
        super().__init__()
        self.n_heads, self.dropout, self.activation = n_heads, dropout, activation
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=epsilon)
        self.expand = nn.Linear(width, inner_width)
        self.contract = nn.Linear(inner_width, width)
        self.norm2 = nn.LayerNorm(width, eps=epsilon)
        self.drop = nn.Dropout(dropout)

    def forward(self, h: Tensor, mask: Tensor | None) -> Tensor:
        """Map (b, t, d) to (b, t, d); ``mask`` (b, 1, 1, t) is True where there is something to see."""
        b, t, d = h.shape
        # Three slices, whose gradients are joined by one copy; unbinding a permuted view would take two.
        parts = self.qkv(h).split(d, 2)
        q, k, v = (p.view(b, t, self.n_heads, d // self.n_heads).transpose(1, 2) for p in parts)
        p = self.dropout if self.training else 0.0
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
        h = self.norm1(h + self.drop(self.mix(a.transpose(1, 2).reshape(b, t, d))))
        between = ACTIVATIONS[self.activation](self.expand(h))
        return self.norm2(h + self.drop(self.contract(between)))


class BertNetwork(nn.Module):
    """States (b, t, d) of tokens (b, t), and the heads of the two tasks.

    Parameters
    ----------
    n_tokens, max_length : int
        Sizes of the vocabulary and of the longest text.
    width, n_layers, n_heads, inner_width : int
        Width, depth, heads and width of the layers between; ``SIZES`` has the published ones.
    dropout : float
        Share of activations dropped while training.
    activation : str
        Between the two layers.
    epsilon : float
        Of the layer norms.
    n_types : int
        How many kinds of sentences are told apart.
    """

    def __init__(
        self,
        n_tokens: int,
        max_length: int = 512,
        *,
        width: int = 768,
        n_layers: int = 12,
        n_heads: int = 12,
        inner_width: int = 3072,
        dropout: float = 0.1,
        activation: str = "gelu",
        epsilon: float = 1e-12,
        n_types: int = 2,
    ) -> None:
        super().__init__()
        if width % n_heads:
            raise value("BERT", f"width must be a multiple of n_heads={n_heads}", width)
        self.max_length, self.activation = max_length, known_activation(activation, "BERT")
        self.tokens = nn.Embedding(n_tokens, width)
        self.places = nn.Embedding(max_length, width)
        self.types = nn.Embedding(n_types, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(width, n_heads, inner_width, dropout, activation, epsilon) for _ in range(n_layers)
        )
        self.pooler = nn.Linear(width, width)
        self.guess = nn.Linear(width, width)
        self.guess_norm = nn.LayerNorm(width, eps=epsilon)
        self.guess_bias = nn.Parameter(torch.zeros(n_tokens))
        self.follows = nn.Linear(width, 2)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        types: Tensor | None = None,
        chosen: Tensor | None = None,
    ) -> Any:
        """Return the states; with ``chosen`` (b, t), the logits of those tokens and of what follows, instead."""
        h = self.encode(tokens, lengths, types)
        if chosen is None:
            return h
        return self.guesses(h[chosen]), self.follows(self.pooled(h))

    def encode(self, tokens: Tensor, lengths: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """Return the states (b, t, d)."""
        t = tokens.shape[1]
        kind = self.types.weight[0] if types is None else self.types(types)
        h = self.drop(self.norm(self.tokens(tokens) + kind + self.places.weight[:t]))
        seen = visible(lengths, t, tokens.device)
        for block in self.blocks:
            h = block(h, None if seen is None else seen[:, None, None])
        return h

    def pooled(self, h: Tensor) -> Tensor:
        """Return eq. 3, (b, d), from states."""
        return torch.tanh(self.pooler(h[:, 0]))

    def guesses(self, h: Tensor) -> Tensor:
        """Return the logits of eq. 2 for states (..., d)."""
        h = self.guess_norm(ACTIVATIONS[self.activation](self.guess(h)))
        return F.linear(h, self.tokens.weight, self.guess_bias)
