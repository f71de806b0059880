r"""Recurrent and convolutional networks over sequences of any length.

A recurrent cell carries a state, a simple one as

.. math:: z^t = \phi(U z^{t-1} + V x^t), \qquad y^t = \psi(W z^t), \tag{1}

the gated ones (LSTM, GRU) with element-wise gates :math:`\sigma(\cdot) \odot z`, the linear one (LRU) without
:math:`\phi` over time, a temporal convolution with no state at all. Both directions give
:math:`y^t = \psi(W z^t + \tilde W \tilde z^t)` with :math:`\tilde z^t = \phi(\tilde U \tilde z^{t+1} + \tilde V x^t)` (2),
and layers stack as :math:`z^{t,l} = \phi(U^l z^{t-1,l} + V^l z^{t,l-1})` (3).

Sequences are padded at their end. A causal layer never looks there, so its states need no mask; what runs
backwards starts at each sequence's own last step. A result therefore never depends on what it is batched with.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from corollary.engine.ragged import padding_mask
from corollary.nn.lru import LRU
from corollary.nn.temporal import TemporalConvNet

__all__ = ["CELLS", "POOLINGS", "SequenceEncoder", "SequenceNetwork", "Standardise", "pool", "reverse_padded"]

RECURRENT = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
CELLS = (*RECURRENT, "lru", "tcn")
POOLINGS = ("last", "mean", "max", "both")


def reverse_padded(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return each sequence of (b, t, ...) from its own end to its start; the padding stays where it is."""
    if lengths is None:
        return x.flip(1)
    steps = torch.arange(x.shape[1])
    n = lengths.cpu()[:, None]
    where = torch.where(steps < n, n - 1 - steps, steps).to(x.device)
    return x.gather(1, where.reshape(*where.shape, *(1,) * (x.ndim - 2)).expand_as(x))


def pool(h: Tensor, lengths: Tensor | None, how: str, backward: int = 0) -> Tensor:
    """Return one vector (b, d) for each sequence of states (b, t, d).

    ``"last"`` takes the last step, and the first for the trailing ``backward`` features, which ran the other way; ``"both"``
    puts the mean beside it.
    """
    if how == "both":
        return torch.cat([pool(h, lengths, "last", backward), pool(h, lengths, "mean")], 1)
    mask = None if lengths is None else padding_mask(lengths, h.shape[1], h.device)[..., None]
    if how == "mean":
        return h.mean(1) if mask is None else (h * mask).sum(1) / mask.sum(1).clamp_min(1).to(h.dtype)
    if how == "max":
        return (h if mask is None else h.masked_fill(~mask, -torch.inf)).amax(1)
    ahead = h.shape[2] - backward
    if lengths is None:
        last = h[:, -1, :ahead]
    else:
        last = h[torch.arange(h.shape[0], device=h.device), lengths.to(h.device) - 1, :ahead]
    return torch.cat([last, h[:, 0, ahead:]], 1) if backward else last


class Standardise(nn.Module):
    """Shift and scale features by fixed numbers, kept as buffers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return (x - mean) / scale."""
        return (x - self.mean) / self.scale


class _LRUBlock(nn.Module):
    """Normalise, scan, gate, add: x + drop(GLU(LRU(norm(x))))."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scan = LRU(width)
        self.gate = nn.Linear(width, 2 * width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.gelu(self.scan(self.norm(x)))
        return x + self.drop(nn.functional.glu(self.gate(h), -1))


class _LRUStack(nn.Sequential):
    def __init__(self, n_in: int, width: int, n_layers: int, dropout: float) -> None:
        super().__init__(nn.Linear(n_in, width), *(_LRUBlock(width, dropout) for _ in range(n_layers)))


class _TCNStack(TemporalConvNet):
    """A temporal convolution on (b, t, d)."""

    def __init__(self, n_in: int, width: int, n_layers: int, dropout: float) -> None:
        super().__init__(n_in, (width,) * n_layers, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class SequenceEncoder(nn.Module):
    """States (b, t, n_out) for inputs (b, t, d), by any cell.

    Parameters
    ----------
    n_in, width : int
        Widths of input and states (of each direction).
    cell : str
        One of ``CELLS``.
    n_layers : int
        Depth.
    bidirectional : bool
        Whether a second set of layers runs from the end; ``n_out`` is then twice ``width``.
    dropout : float
        Share of activations dropped between layers while training.
    truncation : int, optional
        Gradients flow back over at most so many steps (recurrent cells, one direction).
    """

    def __init__(
        self,
        n_in: int,
        width: int,
        cell: str = "gru",
        n_layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        truncation: int | None = None,
    ) -> None:
        super().__init__()
        self.recurrent = cell in RECURRENT
        self.bidirectional = bidirectional
        self.truncation = truncation
        self.n_out = width * (1 + bidirectional)
        self.backward_width = width * bidirectional
        if self.recurrent:
            options = {"batch_first": True, "bidirectional": bidirectional}
            between = dropout if n_layers > 1 else 0.0
            self.cell: Any = RECURRENT[cell](n_in, width, n_layers, dropout=between, **options)
        else:
            stack = _LRUStack if cell == "lru" else _TCNStack
            self.cell = stack(n_in, width, n_layers, dropout)
            self.reverse = stack(n_in, width, n_layers, dropout) if bidirectional else None

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the states; beyond a sequence's length they mean nothing."""
        if not self.recurrent:
            h = self.cell(x)
            if self.reverse is None:
                return h
            back = reverse_padded(self.reverse(reverse_padded(x, lengths)), lengths)
            return torch.cat([h, back], 2)
        if self.truncation is not None and self.training:
            return self._truncated(x)
        if not self.bidirectional or lengths is None or bool((lengths == x.shape[1]).all()):
            return self.cell(x)[0]
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.cell(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    def _truncated(self, x: Tensor) -> Tensor:
        """Cut the gradient, not the state, between pieces of the sequence."""
        state, pieces = None, []
        for piece in x.split(self.truncation, 1):
            h, state = self.cell(piece, state)
            state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
            pieces.append(h)
        return torch.cat(pieces, 1)


class SequenceNetwork(nn.Module):
    """Codes (b, t) or vectors (b, t, d) in; one output per sequence, or one per step, out.

    Parameters
    ----------
    n_in : int
        Number of codes, or width of the vectors.
    n_out : int
        Width of the output.
    cell, width, n_layers, bidirectional, dropout, truncation
        As in :class:`SequenceEncoder`.
    embedding_dimension : int, optional
        Width that codes are embedded in; ``None`` for vectors, which are standardised instead.
    pooling : {"last", "mean", "max", "both"} or None
        How states become one vector; ``None`` keeps one output per step.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        cell: str = "gru",
        *,
        width: int = 64,
        n_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        truncation: int | None = None,
        embedding_dimension: int | None = None,
        pooling: str | None = "last",
    ) -> None:
        super().__init__()
        self.pooling = pooling
        if embedding_dimension is None:
            self.inputs: nn.Module = Standardise(n_in)
        else:
            self.inputs = nn.Embedding(n_in, embedding_dimension)
        self.encoder = SequenceEncoder(
            embedding_dimension or n_in,
            width,
            cell,
            n_layers,
            bidirectional=bidirectional,
            dropout=dropout,
            truncation=truncation,
        )
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(self.encoder.n_out * (1 + (pooling == "both")), n_out)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return (b, n_out), or (b, t, n_out) without pooling; no lengths mean that all are full."""
        h = self.encoder(self.inputs(x), lengths)
        if self.pooling is not None:
            h = pool(h, lengths, self.pooling, self.encoder.backward_width)
        return self.head(self.drop(h))
