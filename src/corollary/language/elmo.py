r"""ELMo: contextual word embeddings from a forward and a backward language model.

A word is read from its characters by convolutions of several widths, :math:`x_k = \mathrm{cnn}(c_k)`. LSTMs read the
words forwards and, apart from them, backwards; both are trained to say the next word on their way,

.. math:: \sum_k \log p(w_k \mid w_{<k}) + \log p(w_k \mid w_{>k}). \tag{1}

With :math:`h_{k,0} = [x_k, x_k]` and :math:`h_{k,j}` the two states of layer j side by side, a task takes the mixture

.. math:: e_k = \gamma \textstyle\sum_{j=0}^{L} s_j\, h_{k,j}, \qquad s = \mathrm{softmax}(w), \tag{2}

whose weights it learns: low layers know grammar, high ones meaning.
"""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from corollary.base import Data, Transformer, as_tensor
from corollary.data.kinds import check_texts
from corollary.engine.batches import Batch
from corollary.engine.ragged import Ragged, RaggedBatches, padding_mask
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.errors import value
from corollary.gradient import GradientTrained, known_codes
from corollary.sequences import words
from corollary.sequences.common import in_batches
from corollary.sequences.network import pool, reverse_padded
from corollary.shapes import Array, Labels, List, Maybe, Text
from corollary.validation import check_target

__all__ = ["ELMo", "ELMoNetwork", "LayerMix"]


class CharacterCNN(nn.Module):
    """Vectors (..., width) of words given as characters (..., c); number 0 pads."""

    def __init__(self, n_characters: int, width: int, embedding_dimension: int = 16) -> None:
        super().__init__()
        self.characters = nn.Embedding(n_characters, embedding_dimension, padding_idx=0)
        self.widths = (1, 2, 3)
        sizes = (width - 2 * (width // 3), width // 3, width // 3)
        self.filters = nn.ModuleList(
            nn.Conv1d(embedding_dimension, n, w) for n, w in zip(sizes, self.widths) if n
        )
        self.highway = nn.Linear(width, 2 * width)

    def forward(self, characters: Tensor) -> Tensor:
        """Return eq. 2's x; every word has at least as many places as the widest filter."""
        flat = characters.reshape(-1, characters.shape[-1])
        x = self.characters(flat).transpose(1, 2)
        found = torch.cat([torch.tanh(layer(x)).amax(2) for layer in self.filters], 1)
        gate, new = self.highway(found).chunk(2, 1)
        gate = torch.sigmoid(gate)
        return (gate * F.relu(new) + (1 - gate) * found).reshape(*characters.shape[:-1], -1)


class LayerMix(nn.Module):
    """The mixture of eq. 2 over a list of layers (b, t, d)."""

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(n_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        """Mix (n_layers, b, t, d) to (b, t, d)."""
        return self.gamma * torch.einsum("l,lbtd->btd", self.w.softmax(0), layers)


class ELMoNetwork(nn.Module):
    """Two language models over one character CNN, their mixture, and a head for a task.

    Parameters
    ----------
    n_characters, n_words : int
        Sizes of the two vocabularies.
    width : int
        Width of words and states, of each direction.
    n_layers : int
        LSTMs in each direction.
    n_out : int
        Classes of the task; 0 for none.
    dropout : float
        Share of activations dropped while training.
    """

    def __init__(
        self,
        n_characters: int,
        n_words: int,
        *,
        width: int = 64,
        n_layers: int = 2,
        n_out: int = 0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.words = CharacterCNN(n_characters, width)
        self.ahead = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(n_layers))
        self.back = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(n_layers))
        self.drop = nn.Dropout(dropout)
        self.say = nn.Linear(width, n_words)
        self.mix = LayerMix(n_layers + 1).requires_grad_(n_out > 0)  # without a task, the mean
        self.head = nn.Linear(2 * width, n_out) if n_out else None

    def layers(self, characters: Tensor, lengths: Tensor | None) -> Tensor:
        """Return h of eq. 2, (n_layers + 1, b, t, 2 * width), for characters (b, t, c)."""
        x = self.drop(self.words(characters))
        ahead, back = [x], [reverse_padded(x, lengths)]
        for side, cells in ((ahead, self.ahead), (back, self.back)):
            for i, cell in enumerate(cells):
                h = self.drop(cell(side[-1])[0])
                side.append(h + side[-1] if i else h)
        return torch.stack([torch.cat([a, reverse_padded(b, lengths)], 2) for a, b in zip(ahead, back)])

    def forward(self, characters: Tensor, lengths: Tensor | None = None) -> tuple[Any, ...]:
        """Return the next words' logits ahead and back, (b, t, n_words) each, and the task's, or None."""
        layers = self.layers(characters, lengths)
        ahead, back = layers[-1].chunk(2, 2)
        task = None if self.head is None else self.head(pool(self.mix(layers), lengths, "mean"))
        return self.say(ahead), self.say(back), task

    def embed(self, characters: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the mixture e of eq. 2, (b, t, 2 * width)."""
        return self.mix(self.layers(characters, lengths))


class ELMo(Transformer, GradientTrained):
    """Learn contextual word embeddings from texts, by a forward and a backward language model over characters.

    Parameters
    ----------
    width : int, default=64
        Width of the states of each direction; vectors have twice that.
    n_layers : int, default=2
        LSTMs in each direction.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=10000
        How many words are told apart as answers; any word can be read.
    max_length : int, default=200
        How many words of a text are read.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    module_ : ELMoNetwork
        The trained network.
    layer_weights_ : ndarray of shape (n_layers + 1,)
        The mixture s of eq. 2; equal weights unless labels were given.
    vocabulary_, alphabet_ : list of str
        Words and characters, the most frequent first.
    classes_ : ndarray
        The labels, if there were any.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss (nats per word, and the task's) and seconds of every epoch.

    Notes
    -----
    Minimises the negative of equation (1) of :mod:`corollary.language.elmo` per word and direction, and with labels
    the cross-entropy of a linear map of the mean mixture, from which the mixture is learned. O(words * width^2).
    Words that ``fit`` has not seen have vectors too, from their characters.

    References
    ----------
    .. [1] M. E. Peters et al. (2018). Deep contextualized word representations. NAACL.

    Examples
    --------
    >>> from corollary import ELMo, Training
    >>> model = ELMo(16, training=Training(2), random_state=0).fit(["warm sun and sea", "cold snow"] * 4)
    >>> model.transform(["sun"]).shape, model.embed(["warm sea"])[0].shape
    ((1, 32), (2, 32))
    """

    input = "text"
    _training_defaults = {"epochs": 10, "learning_rate": 2e-3, "batch_size": 32, "clip_norm": 1.0}
    _parameter_constraints = {
        "width": [Interval(Integral, 3, None, closed="left")],
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "vocabulary_size": [Interval(Integral, 1, None, closed="left")],
        "max_length": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "classes_": Maybe(Labels()),
        "vocabulary_": List(Text()),
        "alphabet_": List(Text()),
        "layer_weights_": Array(3),
    }

    def __init__(
        self,
        width=64,
        *,
        n_layers=2,
        dropout=0.1,
        vocabulary_size=10000,
        max_length=200,
        training=None,
        random_state=None,
    ):
        self.width = width
        self.n_layers = n_layers
        self.dropout = dropout
        self.vocabulary_size = vocabulary_size
        self.max_length = max_length
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 6, "training": Training(epochs=2)}

    def embed(self, X):
        """Return the vectors (words, 2 * width) of each text's words, punctuation included."""
        texts = self._query(X)
        return self._evaluate(texts, lambda c, lengths: self.module_.embed(c, lengths))

    # --- hooks -------------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> list[str]:
        texts = check_texts(X, "ELMo")
        for i, text in enumerate(texts):
            if not words.split(text, "word"):
                raise value("ELMo", "every text must have words", f"none in text {i}", "Leave it out.")
        return texts

    def _check_y(self, X: list[str], y: Any) -> Any:
        if y is None:
            return None
        self.classes_, codes = np.unique(check_target(self, X, y), return_inverse=True)
        return codes

    def _known_y(self, X: list[str], y: Any) -> Any:
        return None if y is None else known_codes(self, check_target(self, X, y))

    def _measure(self, data: Data) -> None:
        if data.y is None:
            self.__dict__.pop("classes_", None)
        self.vocabulary_ = words.vocabulary(data.X, "word", self.vocabulary_size)
        self.alphabet_ = words.vocabulary([text.lower() for text in data.X], "character")

    def _aim(self) -> Any:
        return language_loss

    def _batches(self, data: Data) -> RaggedBatches:
        device = current().device
        codes = [c[: self.max_length] for c in words.encode(data.X, self.vocabulary_, "word")]
        y = None if data.y is None else as_tensor(data.y).to(device)
        return RaggedBatches((self._characters(data.X, device), Ragged.of(codes, device=device)), y)

    def _module(self) -> ELMoNetwork:
        return ELMoNetwork(
            words.SPECIAL + len(self.alphabet_),
            words.SPECIAL + len(self.vocabulary_),
            width=self.width,
            n_layers=self.n_layers,
            n_out=len(self.classes_) if hasattr(self, "classes_") else 0,
            dropout=self.dropout,
        )

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)
        self.layer_weights_ = self.module_.mix.w.detach().softmax(0).numpy(force=True)

    def _characters(self, texts: list[str], device: Any) -> Ragged:
        """Return words as characters between a begin and an end, cut or padded to one number of places."""
        parts = []
        for text in texts:
            spelt = words.encode(words.split(text, "word")[: self.max_length], self.alphabet_, "character")
            rows = np.zeros((len(spelt), PLACES), dtype=np.int64)
            for row, codes in zip(rows, spelt):
                letters = [words.BEGIN, *codes[: PLACES - 2], words.END]
                row[: len(letters)] = letters
            parts.append(rows)
        return Ragged.of(parts, device=device)

    def _evaluate(self, texts: list[str], call: Any) -> list[np.ndarray]:
        data, out = self._characters(texts, self.module_.say.weight.device), [np.empty(0)] * len(texts)
        with torch.inference_mode():
            for rows, characters, lengths in in_batches(data, 4096):
                found = call(characters, lengths).cpu().numpy()
                for row, result, n in zip(rows.tolist(), found, lengths.tolist()):
                    out[row] = result[:n] if result.ndim == 2 else result
        return out

    def _transform(self, X: list[str]) -> np.ndarray:
        mean = partial(pool, how="mean")
        return np.stack(self._evaluate(X, lambda c, lengths: mean(self.module_.embed(c, lengths), lengths)))


PLACES = 20  # characters of a word, with its begin and end


def language_loss(module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the negative of eq. 1 per word and direction, plus the task's cross-entropy."""
    (characters, lengths, codes, _), y = batch.inputs, batch.target
    ahead, back, task = module(characters, lengths)
    said = []
    if codes.shape[1] > 1:
        inside = padding_mask(lengths - 1, codes.shape[1] - 1, codes.device)
        if bool(inside.any()):
            said.append(F.cross_entropy(ahead[:, :-1][inside], codes[:, 1:][inside]))
            said.append(F.cross_entropy(back[:, 1:][inside], codes[:, :-1][inside]))
    language = torch.stack(said).mean() if said else 0.0 * ahead.sum()
    if y is None or task is None:
        return language, {}
    labelled = F.cross_entropy(task, y)
    return language + labelled, {"language": language.detach(), "task": labelled.detach()}
