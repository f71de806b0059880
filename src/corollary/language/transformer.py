r"""The encoder-decoder transformer, for texts from texts.

Symbols are embedded, scaled by :math:`\sqrt d`, and told their place by

.. math:: p_{t,2i} = \sin(t\,\omega_i), \qquad p_{t,2i+1} = \cos(t\,\omega_i), \qquad \omega_i = 10^{-8i/d}, \tag{1}

so that :math:`p_{t+\Delta}` is a fixed rotation of :math:`p_t`. The blocks between are torch's own
``torch.nn.Transformer``: attention :math:`\mathrm{softmax}(QK^\top/\sqrt{d_h})V` of the source to itself, of the target to
its own past, and of the target to the source; :math:`p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x)` (2).

Keys and values of the source, and of what has been said, do not change while an answer grows. They are kept, so that
one more symbol costs one row of every block instead of all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from corollary.base import Data
from corollary.engine.training import Training
from corollary.errors import value
from corollary.language.encoder import visible
from corollary.sequences import words
from corollary.sequences.pairs import BaseTranslator
from corollary.sequences.search import beam_search

__all__ = ["Said", "Transformer", "TransformerNetwork", "sinusoids"]


def sinusoids(steps: int, width: int) -> Tensor:
    """Return the places p (steps, width) of eq. 1, in double precision."""
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(steps, dtype=torch.float64)[:, None] * rates
    return torch.stack([torch.sin(angles), torch.cos(angles)], 2).flatten(1)[:, :width]


@dataclass
class Said:
    """Cache of decoding: for every layer, keys and values (b, heads, t, d_h) of the source and of the symbols so far."""

    source: list[tuple[Tensor, Tensor]]
    past: list[tuple[Tensor, Tensor]]
    seen: Tensor | None  # (b, 1, 1, s), which of the source are no padding; None: all

    @property
    def length(self) -> int:
        """The number of symbols decoded so far."""
        return self.past[0][0].shape[2]

    def take(self, rows: Tensor) -> Said:
        """Return the rows in another order, or more of them; those that share an input share its source."""
        same = len(rows) == len(self.source[0][0])
        past = [(k[rows], v[rows]) for k, v in self.past]
        if same:  # beams of one input changed places among themselves
            return Said(self.source, past, self.seen)
        source = [(k[rows], v[rows]) for k, v in self.source]
        return Said(source, past, self.seen if self.seen is None else self.seen[rows])


def _project(attention: nn.MultiheadAttention, h: Tensor, first: int, last: int) -> list[Tensor]:
    """Return queries (0), keys (1) and values (2) from ``first`` to before ``last``, each (b, heads, t, d_h)."""
    d, rows = attention.embed_dim, slice(first * attention.embed_dim, last * attention.embed_dim)
    joined = F.linear(h, attention.in_proj_weight[rows], attention.in_proj_bias[rows])
    return [part.unflatten(2, (attention.num_heads, -1)).transpose(1, 2) for part in joined.split(d, 2)]


def _attend(attention: nn.MultiheadAttention, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    found = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return attention.out_proj(found.transpose(1, 2).flatten(2))


class TransformerNetwork(nn.Module):
    """Embeddings and output around ``torch.nn.Transformer``, whose weights are under ``core``.

    Parameters
    ----------
    n_in, n_out : int
        Sizes of the two vocabularies.
    width, n_heads, n_layers, inner_width : int
        Width, heads, depth of both halves, and width of the layers between; the base size is 512, 8, 6, 2048.
    dropout : float
        Share of activations dropped while training.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        width: int = 512,
        n_heads: int = 8,
        n_layers: int = 6,
        inner_width: int = 2048,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.width = width
        self.source = nn.Embedding(n_in, width, padding_idx=words.PAD)
        self.target = nn.Embedding(n_out, width, padding_idx=words.PAD)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=width**-0.5)
        layer = nn.TransformerEncoderLayer(width, n_heads, inner_width, dropout, batch_first=True)
        encoder = nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(width), enable_nested_tensor=False)
        sizes = (width, n_heads, n_layers, n_layers, inner_width, dropout)
        self.core = nn.Transformer(*sizes, custom_encoder=encoder, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(width, n_out)

    def forward(self, x: Tensor, lengths: Tensor | None, y: Tensor) -> Tensor:
        """Return the logits (b, t, n_out) of what follows each symbol of y (b, t), which begins with BEGIN."""
        memory, hidden = self.encode(x, lengths)
        return self.decode(y, memory, hidden)

    def encode(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the source's states (b, s, d), and which of them are padding."""
        seen = visible(lengths, x.shape[1], x.device)
        hidden = None if seen is None else ~seen
        return self.core.encoder(self._embed(self.source, x), src_key_padding_mask=hidden), hidden

    def decode(self, y: Tensor, memory: Tensor, hidden: Tensor | None) -> Tensor:
        """Return logits for every place of y; none sees what comes after it."""
        later = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool, device=y.device).triu(1)
        masks = {"tgt_mask": later, "tgt_is_causal": True, "memory_key_padding_mask": hidden}
        h = self.core.decoder(self._embed(self.target, y), memory, **masks)
        return self.head(h)

    def _embed(self, table: nn.Embedding, tokens: Tensor, start: int = 0) -> Tensor:
        places = sinusoids(start + tokens.shape[1], self.width)[start:].to(table.weight)
        return self.drop(table(tokens) * math.sqrt(self.width) + places)

    # --- one symbol at a time ----------------------------------------------------------------------------

    def begin(self, memory: Tensor, hidden: Tensor | None) -> Said:
        """Return the cache before the first symbol, for the source's states as :meth:`encode` gives them."""
        source = [tuple(_project(layer.multihead_attn, memory, 1, 3)) for layer in self.core.decoder.layers]
        past = [(k[:, :, :0], v[:, :, :0]) for k, v in source]
        return Said(source, past, None if hidden is None else ~hidden[:, None, None])

    def advance(self, symbols: Tensor, said: Said) -> tuple[Tensor, Said]:
        """Return the logits (b, n_out) after one more symbol (b,) of each row, and what to keep then.

        In evaluation: nothing is dropped.
        """
        h = self._embed(self.target, symbols[:, None], said.length)  # (b, 1, d)
        past = []
        for layer, kept, (keys, values) in zip(self.core.decoder.layers, said.past, said.source):
            q, k, v = _project(layer.self_attn, h, 0, 3)
            k, v = torch.cat([kept[0], k], 2), torch.cat([kept[1], v], 2)
            past.append((k, v))
            h = layer.norm1(h + _attend(layer.self_attn, q, k, v, None))
            (q,) = _project(layer.multihead_attn, h, 0, 1)
            h = layer.norm2(h + _attend(layer.multihead_attn, q, keys, values, said.seen))
            h = layer.norm3(h + layer.linear2(layer.activation(layer.linear1(h))))
        return self.head(self.core.decoder.norm(h))[:, 0], Said(said.source, past, said.seen)


class Transformer(BaseTranslator):
    """Translate texts into texts by an encoder-decoder transformer.

    Parameters
    ----------
    n_layers : int, default=2
        Depth of encoder and decoder each. The published base size is 6.
    width : int, default=128
        Width of the token states, a multiple of ``n_heads``; cost grows with its square. The base size is 512.
    n_heads : int, default=4
        Attention heads of each layer. The base size is 8.
    inner_width : int, default=256
        Hidden width of the feed-forward layers. The base size is 2048.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    unit : {"character", "word"}, default="character"
        What a symbol is. Words of X are read in lower case, those of y keep theirs.
    vocabulary_size : int, default=20000
        How many of the most frequent symbols are told apart.
    beam_size : int, default=1
        How many beginnings ``predict`` follows; more find more probable texts, and cost as much more.
    length_penalty : float, default=1.0
        Power of the length that ended texts' log-probabilities are divided by. Larger favours longer ones.
    max_length : int, default=200
        The most symbols read and written.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    vocabulary_, target_vocabulary_ : list of str
        The symbols of both sides, the most frequent first.
    module_ : TransformerNetwork
        The trained network; ``module_.core`` is a ``torch.nn.Transformer``.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss (nats per symbol) and seconds of every epoch.

    Notes
    -----
    Maximises equation (2) of :mod:`corollary.language.transformer`. O(t^2 d + t d^2) per text and layer. The notes print
    the frequencies of eq. 1 with the wrong sign and one for each coordinate; then no shift is a rotation. Symbols that
    ``fit`` has not seen count as one unknown symbol; it is written as U+FFFD.

    References
    ----------
    .. [1] A. Vaswani et al. (2017). Attention is all you need. NeurIPS.

    Examples
    --------
    >>> from corollary import Training, Transformer
    >>> words = ["ab", "ba", "aab", "bba", "abb", "baa"]
    >>> plan = Training(60, learning_rate=3e-3, batch_size=8)
    >>> model = Transformer(1, width=32, n_heads=2, dropout=0.0, training=plan, random_state=0)
    >>> answers = model.fit(words * 4, [w[::-1] for w in words] * 4).predict(["aab", "abb"])
    >>> len(answers), model.history_[-1]["loss"] < 0.5 * model.history_[0]["loss"]
    (2, True)
    """

    _training_defaults = {
        "epochs": 30, "learning_rate": 1e-3, "batch_size": 64, "warmup": 50, "clip_norm": 1.0,
    }  # fmt: skip
    _parameter_constraints = {
        **BaseTranslator._parameter_constraints,
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Integral, 1, None, closed="left")],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "inner_width": [Interval(Integral, 1, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        n_layers=2,
        *,
        width=128,
        n_heads=4,
        inner_width=256,
        dropout=0.1,
        unit="character",
        vocabulary_size=20000,
        beam_size=1,
        length_penalty=1.0,
        max_length=200,
        training=None,
        random_state=None,
    ):
        self.n_layers = n_layers
        self.width = width
        self.n_heads = n_heads
        self.inner_width = inner_width
        self.dropout = dropout
        self.unit = unit
        self.vocabulary_size = vocabulary_size
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.max_length = max_length
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_layers": 1, "width": 8, "n_heads": 2, "inner_width": 16, "training": Training(epochs=2)}

    def _measure(self, data: Data) -> None:
        if self.width % self.n_heads:
            must = f"width must be a multiple of n_heads={self.n_heads}"
            raise value("Transformer", must, self.width)
        super()._measure(data)

    def _module(self) -> TransformerNetwork:
        names = ("width", "n_heads", "n_layers", "inner_width", "dropout")
        return TransformerNetwork(*self._sizes(), **{name: getattr(self, name) for name in names})

    def _decode(self, tokens: Tensor, lengths: Tensor) -> list[list[int]]:
        def advance(symbols: Tensor, said: Said) -> tuple[Tensor, Said]:
            logits, said = self.module_.advance(symbols, said)
            return logits.log_softmax(-1), said

        return beam_search(
            advance,
            Said.take,
            self.module_.begin(*self.module_.encode(tokens, lengths)),
            len(tokens),
            beam_size=self.beam_size,
            max_length=self._longest_answer(),
            length_penalty=self.length_penalty,
            device=tokens.device,
        )[0]
