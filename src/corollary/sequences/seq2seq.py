r"""Sequence-to-sequence models: a recurrent encoder and decoder with attention.

An encoder reads x into states :math:`h^1, \dots, h^s`; a decoder starts from the last of them and says
:math:`p(y \mid x) = \prod_t p(y^t \mid y^{<t}, x)` (1), by

.. math::
    z^t = \mathrm{cell}(y^{t-1}, z^{t-1}), \qquad
    a_{tj} = \mathrm{softmax}_j \frac{\langle z^t, W_a h^j \rangle}{\sqrt{d}}, \qquad
    c^t = \textstyle\sum_j a_{tj} h^j, \tag{2}

with d the width of the states, and :math:`p(y^t \mid \cdot) = \mathrm{softmax}(E \tanh(W_c [z^t, c^t]) + b)`. The rows of E
are the vectors of the decoder's symbols, which it reads times the root of their length: what is learned where a symbol
is read serves where it is said. Without attention, :math:`c^t` is left out and everything must pass through the first
state. While training the decoder is given the true :math:`y^{t-1}` (teacher
forcing); with a probability that grows to :math:`\varepsilon`, the *mixing*, over N batches,

.. math:: \varepsilon_n = \varepsilon \min(1, n / N), \tag{3}

it is given what it would have said itself, as it will be later.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data
from corollary.engine.ragged import padding_mask
from corollary.engine.training import Training
from corollary.errors import value
from corollary.sequences import words
from corollary.sequences.common import in_batches
from corollary.sequences.network import RECURRENT, SequenceEncoder, pool
from corollary.sequences.pairs import PAIR_STEPS, BaseTranslator
from corollary.sequences.search import beam_search
from corollary.shapes import Count

__all__ = ["Seq2Seq", "Seq2SeqNetwork"]


class Seq2SeqNetwork(nn.Module):
    """An encoder and a decoder, eq. 2.

    Parameters
    ----------
    n_in, n_out : int
        Sizes of the two vocabularies.
    cell : {"rnn", "lstm", "gru"}
        Recurrent cell of encoder and decoder. Gated cells remember longer than "rnn".
    width, embedding_dimension, n_layers : int
        Widths, and depth of both parts.
    attention : bool
        Whether the decoder looks back at all states of the encoder.
    dropout : float
        Share of activations dropped while training.
    mixing : float
        Probability of feeding the decoder its own symbol while training.
    mixing_steps : int
        N of eq. 3: batches until that probability is reached; 0 has it from the start.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        cell: str = "gru",
        *,
        width: int = 128,
        embedding_dimension: int = 64,
        n_layers: int = 1,
        attention: bool = True,
        dropout: float = 0.0,
        mixing: float = 0.0,
        mixing_steps: int = 0,
    ) -> None:
        super().__init__()
        self.mixing, self.mixing_steps = mixing, mixing_steps
        self.n_layers, self.width = n_layers, width
        self.register_buffer("trained", torch.zeros((), dtype=torch.int64))  # batches so far, n of eq. 3
        self.source = nn.Embedding(n_in, embedding_dimension, padding_idx=words.PAD)
        self.target = nn.Embedding(n_out, embedding_dimension, padding_idx=words.PAD)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=embedding_dimension**-0.5)
        self.encoder = SequenceEncoder(
            embedding_dimension, width, cell, n_layers, bidirectional=True, dropout=dropout
        )
        self.lstm = cell == "lstm"
        self.bridge = nn.Linear(2 * width, n_layers * width * (1 + self.lstm))
        between = dropout if n_layers > 1 else 0.0
        self.decoder = RECURRENT[cell](
            embedding_dimension, width, n_layers, batch_first=True, dropout=between
        )
        self.address = nn.Linear(2 * width, width, bias=False) if attention else None
        self.combine = nn.Linear(width * (3 if attention else 1), embedding_dimension)
        self.drop = nn.Dropout(dropout)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Tensor, lengths: Tensor | None, y: Tensor) -> Tensor:
        """Return the logits (b, t, n_out) of what follows each symbol of y (b, t), which begins with BEGIN."""
        memory, state = self.encode(x, lengths)
        if not (self.training and self.mixing):
            return self.decode(y, memory, state)[0]
        epsilon = self.mixing_probability()
        self.trained += 1
        said, symbol = [], y[:, :1]
        for t in range(y.shape[1]):
            logits, state = self.decode(symbol, memory, state)
            said.append(logits)
            if t + 1 < y.shape[1]:
                own = torch.rand(len(y), 1, device=y.device) < epsilon
                symbol = torch.where(own, logits.detach().argmax(-1), y[:, t + 1 : t + 2])
        return torch.cat(said, 1)

    def mixing_probability(self) -> Tensor:
        """Return eq. 3 for the next batch."""
        if not self.mixing_steps:
            return torch.full_like(self.trained, self.mixing, dtype=torch.float64)
        return self.mixing * (self.trained.double() / self.mixing_steps).clamp_max(1.0)

    def encode(self, x: Tensor, lengths: Tensor | None) -> tuple[Any, Any]:
        """Return the encoder's states, which attention reads, and the decoder's first state."""
        h = self.encoder(self.embed(self.source, x), lengths)
        last = torch.tanh(self.bridge(pool(h, lengths, "last", self.width)))
        parts = last.reshape(x.shape[0], -1, self.n_layers, self.width).permute(1, 2, 0, 3).contiguous()
        state = (parts[0], parts[1]) if self.lstm else parts[0]
        if self.address is None:
            return None, state
        mask = None if lengths is None else padding_mask(lengths, x.shape[1], x.device)[:, None]
        return (h, self.address(h) / math.sqrt(self.width), mask), state

    def decode(self, y: Tensor, memory: Any, state: Any) -> tuple[Tensor, Any]:
        """Read symbols (b, t) from a state on; return logits (b, t, n_out) and the state after them."""
        z, state = self.decoder(self.embed(self.target, y), state)
        if memory is not None:
            z = torch.cat([z, self.attend(z, memory) @ memory[0]], 2)
        said = self.drop(torch.tanh(self.combine(z)))
        return F.linear(said, self.target.weight, self.bias), state

    def embed(self, table: nn.Embedding, symbols: Tensor) -> Tensor:
        """Return the vectors that a cell reads, of entries about 1."""
        return self.drop(table(symbols) * math.sqrt(table.embedding_dim))

    def attend(self, z: Tensor, memory: Any) -> Tensor:
        """Return the weights a (b, t, s) of eq. 2; they sum to 1 and are 0 on padding."""
        scores = z @ memory[1].transpose(1, 2)
        return (scores if memory[2] is None else scores.masked_fill(~memory[2], -torch.inf)).softmax(-1)


class Seq2Seq(BaseTranslator):
    """Translate texts into texts by a recurrent encoder and decoder with attention.

    Parameters
    ----------
    cell : {"rnn", "lstm", "gru"}, default="gru"
        Recurrent cell of encoder and decoder. Gated cells remember longer than "rnn".
    width : int, default=128
        Width of the states. Wider remembers more.
    embedding_dimension : int, default=64
        Width of the symbols' vectors.
    n_layers : int, default=1
        Number of recurrent layers of encoder and decoder each.
    attention : bool, default=True
        Whether the decoder looks back at every state of the encoder, without which long texts suffer.
    dropout : float, default=0.0
        Share of activations dropped at random while training; more regularises more.
    mixing : float, default=0.0
        Probability of feeding the decoder its own symbol while training, instead of the true one. Trains for what
        happens later, and is slower.
    mixing_schedule : {"linear", "constant"}, default="linear"
        Whether that probability grows over the fit from 0, since first symbols are of no use, or holds throughout.
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
        Seed for initial weights, order of samples, dropout and mixing.

    Attributes
    ----------
    vocabulary_, target_vocabulary_ : list of str
        The symbols of both sides, the most frequent first.
    module_ : Seq2SeqNetwork
        The trained network.
    mixing_steps_ : int
        N of eq. 3: batches over which the mixing grew.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss (nats per symbol) and seconds of every epoch.

    Notes
    -----
    Maximises equation (1) of :mod:`corollary.sequences.seq2seq`. The random mixture of true and own symbols by
    equation (3) is *scheduled sampling*; the notes call it professor forcing, which is another, adversarial method.

    References
    ----------
    .. [1] I. Sutskever, O. Vinyals, Q. V. Le (2014). Sequence to sequence learning with neural networks. NeurIPS.
    .. [2] M.-T. Luong, H. Pham, C. D. Manning (2015). Effective approaches to attention-based translation. EMNLP.
    .. [3] S. Bengio et al. (2015). Scheduled sampling for sequence prediction. NeurIPS.

    Examples
    --------
    >>> from corollary import Seq2Seq, Training
    >>> words = ["ab", "ba", "aab", "bba", "abb", "baa"]
    >>> model = Seq2Seq(width=32, training=Training(60, learning_rate=0.01), random_state=0)
    >>> model.fit(words * 4, [w[::-1] for w in words] * 4).predict(["aab", "abb"])
    ['baa', 'bba']
    """

    _training_defaults = {"epochs": 30, "learning_rate": 4e-3, "batch_size": 64, "clip_norm": 1.0}
    _parameter_constraints = {
        **BaseTranslator._parameter_constraints,
        "cell": [StrOptions(set(RECURRENT))],
        "width": [Interval(Integral, 1, None, closed="left")],
        "embedding_dimension": [Interval(Integral, 1, None, closed="left")],
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "attention": ["boolean"],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "mixing": [Interval(Real, 0, 1, closed="both")],
        "mixing_schedule": [StrOptions({"constant", "linear"})],
    }
    _fitted = {"mixing_steps_": Count()}

    def __init__(
        self,
        cell="gru",
        *,
        width=128,
        embedding_dimension=64,
        n_layers=1,
        attention=True,
        dropout=0.0,
        mixing=0.0,
        mixing_schedule="linear",
        unit="character",
        vocabulary_size=20000,
        beam_size=1,
        length_penalty=1.0,
        max_length=200,
        training=None,
        random_state=None,
    ):
        self.cell = cell
        self.width = width
        self.embedding_dimension = embedding_dimension
        self.n_layers = n_layers
        self.attention = attention
        self.dropout = dropout
        self.mixing = mixing
        self.mixing_schedule = mixing_schedule
        self.unit = unit
        self.vocabulary_size = vocabulary_size
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.max_length = max_length
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 8, "embedding_dimension": 8, "mixing": 0.2, "training": Training(epochs=2)}

    def attention_weights(self, X, y):
        """Return, for each pair of texts, the weights (symbols of y and the end, symbols of x and the end)."""
        if not self.attention:
            raise value("Seq2Seq", "attention_weights needs attention=True", "attention=False")
        pairs = self._framed(X, y)
        found: list[Any] = [None] * len(pairs)
        with torch.inference_mode():
            for rows, x, lengths, symbols, y_lengths in in_batches(pairs, PAIR_STEPS):
                memory, state = self.module_.encode(x, lengths)
                z, _ = self.module_.decoder(self.module_.embed(self.module_.target, symbols[:, :-1]), state)
                weights = self.module_.attend(z, memory).cpu().numpy()
                for i, row in enumerate(rows.tolist()):
                    found[row] = weights[i, : int(y_lengths[i]) - 1, : int(lengths[i])]
        return found

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        plan, grows = self._plan(), self.mixing_schedule == "linear"
        self.mixing_steps_ = plan.epochs * -(-len(data.X) // plan.batch_size) if grows else 0

    def _module(self) -> Seq2SeqNetwork:
        names = ("width", "embedding_dimension", "n_layers", "attention", "dropout", "mixing")
        options = {name: getattr(self, name) for name in names}
        return Seq2SeqNetwork(*self._sizes(), self.cell, **options, mixing_steps=self.mixing_steps_)

    def _decode(self, tokens: Tensor, lengths: Tensor) -> list[list[int]]:
        memory, state = self.module_.encode(tokens, lengths)

        def advance(symbols: Tensor, kept: Any) -> tuple[Tensor, Any]:
            logits, after = self.module_.decode(symbols[:, None], kept[0], kept[1])
            return logits[:, 0].log_softmax(-1), (kept[0], after)

        return beam_search(
            advance,
            _select,
            (memory, state),
            len(tokens),
            beam_size=self.beam_size,
            max_length=self._longest_answer(),
            length_penalty=self.length_penalty,
            device=tokens.device,
        )[0]


def _select(kept: Any, rows: Tensor) -> Any:
    """Return memory and state of these rows; states have the batch second."""
    memory, state = kept
    if memory is not None:
        memory = tuple(part if part is None else part[rows] for part in memory)
    if isinstance(state, tuple):
        return memory, tuple(part[:, rows] for part in state)
    return memory, state[:, rows]
