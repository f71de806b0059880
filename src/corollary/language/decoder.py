r"""The decoder-only transformer, in the layout of GPT-2, and generation with a cache.

A token and its place are embedded, :math:`H^0_t = E_{x_t} + P_t`; every block adds to its input

.. math::
    A = H + \mathrm{concat}_h\Big[\mathrm{softmax}\Big(\frac{Q_h K_h^\top}{\sqrt{d_h}} + M\Big) V_h\Big] W_O, \qquad
    H' = A + \mathrm{gelu}(\bar A W_1) W_2, \tag{1}

where queries, keys and values are linear in the layer-normalised :math:`\bar H`, and :math:`M_{ts} = -\infty` for
:math:`s > t`, so that a token sees only those before it. The logits of the next token are
:math:`\bar H^L E^\top` (2): the output matrix is the embedding.

Keys and values of past tokens never change, so a new token costs one row of (1) if they are kept.
Temperature divides the logits; top-k keeps the k largest; top-p keeps the fewest most probable
tokens that together reach probability p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.errors import value
from corollary.nn.pretrained import ACTIVATIONS, known_activation

__all__ = ["SIZES", "Cache", "Decoder", "State", "filtered", "generate", "penalised", "seen_tokens"]

# Published sizes of GPT-2.
SIZES: dict[str, dict[str, int]] = {
    name: {"n_tokens": 50257, "max_length": 1024, "width": d, "n_layers": layers, "n_heads": heads}
    for name, d, layers, heads in (
        ("124M", 768, 12, 12), ("355M", 1024, 24, 16), ("774M", 1280, 36, 20), ("1558M", 1600, 48, 25),
    )
}  # fmt: skip
COMPILED_WIDTH = 512  # wider layers are better multiplied by torch's own kernels


class Cache:
    """Room for the keys and values of ``length`` tokens in every layer; rows may be at different places."""

    def __init__(self, module: Decoder, batch: int, length: int) -> None:
        like = module.tokens.weight
        shape = (len(module.blocks), batch, module.n_heads, length, module.width // module.n_heads)
        self.keys = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.values = torch.zeros_like(self.keys)
        self.length = length


class Block(nn.Module):
    """Attention to the past, then a two-layer network, each added to its input, eq. 1."""

    def __init__(
        self,
        width: int,
        n_heads: int,
        inner_width: int,
        dropout: float,
        activation: str,
        epsilon: float,
        scale: float,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.scale = scale
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(width, eps=epsilon)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=epsilon)
        self.expand = nn.Linear(width, inner_width)
        self.contract = nn.Linear(inner_width, width)
        self.drop = nn.Dropout(dropout)
        self.activation = known_activation(activation, "Decoder")

    def forward(self, h: Tensor) -> Tensor:
        """Map (b, t, d) to (b, t, d)."""
        q, k, v = self.heads(self.norm1(h))
        p = self.dropout if self.training else 0.0
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p, scale=self.scale)
        return self.rest(h, a)

    def heads(self, h: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values, each (b, heads, t, d / heads)."""
        b, t, d = h.shape
        # Three slices, whose gradients are joined by one copy; unbinding a permuted view would take two.
        parts = self.qkv(h).split(d, 2)
        return tuple(p.view(b, t, self.n_heads, d // self.n_heads).transpose(1, 2) for p in parts)

    def rest(self, h: Tensor, a: Tensor) -> Tensor:
        """Return the block's output from its input and the attended values."""
        h = h + self.drop(self.mix(a.transpose(1, 2).reshape(h.shape)))
        between = ACTIVATIONS[self.activation](self.expand(self.norm2(h)))
        return h + self.drop(self.contract(between))


class Decoder(nn.Module):
    """A stack of causal blocks between a token embedding and itself.

    Parameters
    ----------
    n_tokens : int
        Size of the vocabulary.
    max_length : int
        The most tokens it can see.
    width, n_layers, n_heads : int
        Width, depth and heads; the width is a multiple of the heads.
    inner_width : int, optional
        Hidden width of the feed-forward layers; four times the width by default.
    dropout : float, default=0.0
        Dropout of embeddings, attention and residuals.
    activation : str, default="gelu_tanh"
        Between the two layers: one of ``corollary.nn.pretrained.ACTIVATIONS``.
    epsilon : float, default=1e-5
        Of the layer norms.
    tied : bool, default=True
        Whether the output matrix is the embedding.
    scales : sequence of float, optional
        What multiplies the attention scores of each layer; ``1 / sqrt(d_h)`` by default.
    """

    def __init__(
        self,
        n_tokens: int,
        max_length: int,
        width: int,
        n_layers: int,
        n_heads: int,
        *,
        inner_width: int | None = None,
        dropout: float = 0.0,
        activation: str = "gelu_tanh",
        epsilon: float = 1e-5,
        tied: bool = True,
        scales: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if width % n_heads:
            raise value("Decoder", f"width must be a multiple of n_heads={n_heads}", width)
        self.max_length, self.width, self.n_heads = max_length, width, n_heads
        self.tokens = nn.Embedding(n_tokens, width)
        self.places = nn.Embedding(max_length, width)
        self.drop = nn.Dropout(dropout)
        inner_width = 4 * width if inner_width is None else inner_width
        scales = [1 / math.sqrt(width // n_heads)] * n_layers if scales is None else scales
        self.blocks = nn.ModuleList(
            Block(width, n_heads, inner_width, dropout, activation, epsilon, float(s)) for s in scales
        )
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.head = None if tied else nn.Linear(width, n_tokens, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights of deviation 0.02, those that add to the residual stream smaller with depth."""
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif "norm" in name:
                nn.init.ones_(p)
            else:
                deep = name.endswith(("mix.weight", "contract.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * len(self.blocks)) if deep else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next token at every place: (b, t) -> (b, t, n_tokens)."""
        h = self.drop(self.tokens(tokens) + self.places.weight[: tokens.shape[1]])
        for block in self.blocks:
            h = block(h)
        return self.logits(h)

    def logits(self, h: Tensor) -> Tensor:
        """Return eq. 2."""
        return F.linear(self.norm(h), self.tokens.weight if self.head is None else self.head.weight)

    # --- with a cache ------------------------------------------------------------------------------------

    def prefill(self, tokens: Tensor, lengths: Tensor, cache: Cache) -> Tensor:
        """Read prompts (b, t), padded on the right; return the logits (b, n_tokens) after each one's last token.

        What stands after a prompt's end is seen by no token before it, and is overwritten later.
        """
        t = tokens.shape[1]
        h = self.tokens(tokens) + self.places.weight[:t]
        for i, block in enumerate(self.blocks):
            q, k, v = block.heads(block.norm1(h))
            cache.keys[i, :, :, :t], cache.values[i, :, :, :t] = k, v
            h = block.rest(h, F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=block.scale))
        return self.logits(h[torch.arange(len(h), device=h.device), lengths - 1])

    def advance(self, tokens: Tensor, places: Tensor, cache: Cache) -> Tensor:
        """Read one more token (b,) per row, at its own place (b,); return the logits (b, n_tokens) after it."""
        rows = torch.arange(len(tokens), device=tokens.device)
        end = int(places.max()) + 1
        seen = (torch.arange(end, device=tokens.device) <= places[:, None])[:, None, None]  # (b, 1, 1, end)
        mask = None if bool(seen.all()) else seen
        h = (self.tokens(tokens) + self.places(places))[:, None]
        for i, block in enumerate(self.blocks):
            q, k, v = block.heads(block.norm1(h))
            cache.keys[i, rows, :, places], cache.values[i, rows, :, places] = k[:, :, 0], v[:, :, 0]
            keys, values = cache.keys[i, :, :, :end], cache.values[i, :, :, :end]
            h = block.rest(
                h, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=block.scale)
            )
        return self.logits(h[:, 0])


# --- sampling --------------------------------------------------------------------------------------------


def filtered(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Return the logits from which the next token is drawn; what cannot be drawn has minus infinity."""
    if temperature != 1.0:
        logits = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    if top_p is not None and top_p < 1.0:
        ordered, order = logits.sort(dim=-1)
        out = ordered.softmax(-1).cumsum(-1) <= 1 - top_p
        out[..., -1] = False
        logits = logits.masked_fill(out.scatter(-1, order, out), -math.inf)
    return logits


def penalised(scores: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Return scores with those of tokens that were ``seen`` made less: divided by the penalty, or multiplied if negative.

    >>> penalised(torch.tensor([[2.0, -2.0, 2.0]]), torch.tensor([[True, True, False]]), 2.0)
    tensor([[ 1., -4.,  2.]])
    """
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def seen_tokens(rows: Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """Return which tokens each row holds, in the shape (b, n_tokens) of ``like``."""
    seen = torch.zeros_like(like, dtype=torch.bool)
    for row, tokens in zip(seen, rows):
        row[torch.tensor(tokens, device=like.device)] = True
    return seen


def generate(
    module: Decoder,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    ends: frozenset[int] = frozenset(),
    generator: torch.Generator | None = None,
) -> list[list[int]]:
    """Continue prompts of any lengths together; return the new tokens of each, without the end token.

    Parameters
    ----------
    module : Decoder
        What predicts, in evaluation mode.
    prompts : sequence of sequences of int
        At least one token each, at most ``module.max_length``.
    max_new_tokens : int
        How many tokens at most. A row that reaches the end of the context forgets the older half of what it sees.
    temperature : float, default=1.0
        0 always takes the most probable token.
    top_k, top_p : int, float, optional
        See :func:`filtered`.
    repetition_penalty : float, default=1.0
        Above 1, tokens that a row holds already become less probable, see :func:`penalised`.
    ends : set of int
        The tokens that end a row.
    generator : torch.Generator, optional
        Where randomness comes from.
    """
    rows = [list(map(int, prompt)) for prompt in prompts]
    begun = [len(row) for row in rows]
    alive = [True] * len(rows)
    with torch.inference_mode():
        state = State(module, rows, min(module.max_length, max(begun) + max_new_tokens))
        for left in reversed(range(max_new_tokens)):
            logits = state.logits
            if repetition_penalty != 1.0:
                logits = penalised(logits, seen_tokens(rows, logits), repetition_penalty)
            chosen = _choose(logits, temperature, top_k, top_p, generator).tolist()
            for i, token in enumerate(chosen):
                rows[i].append(token)  # rows that have ended go on, unseen, until the last one has
                alive[i] = alive[i] and token not in ends
            if not any(alive) or not left:
                break
            state.read(rows)
    return [_until(row[n:], ends) for row, n in zip(rows, begun)]


def _choose(logits: Tensor, temperature: float, top_k: Any, top_p: Any, generator: Any) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    probabilities = filtered(logits.float(), temperature, top_k, top_p).softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


def _until(tokens: list[int], ends: frozenset[int]) -> list[int]:
    return tokens[: next((i for i, token in enumerate(tokens) if token in ends), len(tokens))]


class State:
    """Where generation stands: a cache that holds all rows so far, and the logits of what comes next."""

    def __init__(self, module: Decoder, rows: list[list[int]], length: int) -> None:
        self.module = module
        self.cache = Cache(module, len(rows), length)
        self.logits, self.places = self._prefill(rows, self.cache)
        self.compiled = None
        if _compilable(module):
            from corollary.language.decoding import Compiled

            self.compiled = Compiled(module, self.cache)

    def _prefill(self, rows: list[list[int]], cache: Cache) -> tuple[Tensor, Tensor]:
        device = self.module.tokens.weight.device
        lengths = torch.tensor([len(row) for row in rows], device=device)
        padded = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long, device=device)
        for i, row in enumerate(rows):
            padded[i, : len(row)] = torch.tensor(row)
        return self.module.prefill(padded, lengths, cache), lengths

    def read(self, rows: list[list[int]]) -> None:
        """Read the last token of every row."""
        full = (self.places >= self.cache.length).nonzero()[:, 0]
        if len(full):
            self._forget(full, rows)
        tokens = torch.tensor([row[-1] for row in rows], device=self.places.device)
        if self.compiled is not None:
            self.logits = self.compiled.advance(tokens, self.places)
        else:
            self.logits = self.module.advance(tokens, self.places, self.cache)
        self.places = self.places + 1

    def keep(self, which: Tensor) -> None:
        """Go on from these rows, in this order; there are as many as before."""
        for kept in (self.cache.keys, self.cache.values):  # in place: the compiled loop holds them too
            kept.copy_(kept[:, which])
        self.places = self.places[which]

    def _forget(self, full: Tensor, rows: list[list[int]]) -> None:
        """Begin full rows anew with the younger half of what they have seen; the last token is still to be read."""
        kept = max(1, self.cache.length // 2 - 1)
        part = Cache(self.module, len(full), kept)
        _, self.places[full] = self._prefill([rows[i][-kept - 1 : -1] for i in full.tolist()], part)
        self.cache.keys[:, full, :, :kept] = part.keys
        self.cache.values[:, full, :, :kept] = part.values


def _compilable(module: Decoder) -> bool:
    like = module.tokens.weight
    activation = module.blocks[0].activation
    narrow = module.width <= COMPILED_WIDTH and activation in ("gelu_tanh", "relu", "silu")
    return like.device.type == "cpu" and like.dtype == torch.float32 and narrow
