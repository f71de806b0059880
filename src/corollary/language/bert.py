r"""BERT: texts understood from both sides.

Two sentences a and b are read as ``[CLS] a [SEP] b [SEP]``. The network of :mod:`corollary.language.encoder` is trained
to guess hidden tokens and whether b follows a in its document, which it does half of the time:

.. math::
    \mathcal L = -\frac{1}{|\mathcal M|} \sum_{t \in \mathcal M} \log p(x_t \mid \tilde x)
    - \log p(\text{follows} \mid \tilde x). \tag{1}

What it has learned is then used: as features, or fine-tuned with a head of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary.base import Classifier, Data, GradientTrained, Transformer, as_tensor
from corollary.data.kinds import check_texts
from corollary.engine.ragged import Ragged, RaggedBatches, padding_mask
from corollary.engine.run import current
from corollary.engine.sgd import seeded
from corollary.engine.training import Training
from corollary.errors import value
from corollary.language.checkpoints import read_checkpoint
from corollary.language.encoder import BertNetwork, mask_tokens
from corollary.language.subwords import WordPieces
from corollary.sequences.common import in_batches
from corollary.sequences.network import pool

__all__ = ["BERT", "BERTClassifier"]

SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class BaseBERT(GradientTrained):
    """What pre-training and fine-tuning share: sizes, subwords, reading."""

    input = "text"
    _training_defaults = {
        "epochs": 10, "learning_rate": 5e-4, "batch_size": 32, "warmup": 20, "weight_decay": 0.01, "clip_norm": 1.0,
    }  # fmt: skip
    _parameter_constraints = {
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "dimension": [Interval(Integral, 1, None, closed="left")],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "inner": [None, Interval(Integral, 1, None, closed="left")],
        "context": [Interval(Integral, 5, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "vocabulary_size": [Interval(Integral, 10, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_layers=2,
        *,
        dimension=128,
        n_heads=4,
        inner=None,
        context=128,
        dropout=0.1,
        vocabulary_size=8000,
        training=None,
        random_state=None,
    ):
        self.n_layers = n_layers
        self.dimension = dimension
        self.n_heads = n_heads
        self.inner = inner
        self.context = context
        self.dropout = dropout
        self.vocabulary_size = vocabulary_size
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        sizes = {"n_layers": 1, "dimension": 8, "n_heads": 2, "context": 24, "vocabulary_size": 60}
        return {**sizes, "training": Training(epochs=2)}

    def _network(self) -> BertNetwork:
        return BertNetwork(
            self.tokenizer_.size if self.tokenizer_ is not None else self.vocabulary_size,
            self.context,
            dimension=self.dimension,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            inner=self.inner or 4 * self.dimension,
            dropout=self.dropout,
            **self.options_,
        )

    def _begin(self, texts: list[str]) -> None:
        self.tokenizer_ = WordPieces.train(texts, self.vocabulary_size)
        self.options_ = {}

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        if self.tokenizer_ is None:
            do = "Pass tokenizer= to from_transformers, or use module_ with integers."
            raise value(type(self).__name__, "texts need a tokenizer", "a model without one", do)
        return [self.tokenizer_.encode(text) for text in texts]

    def _framed(self, texts: list[str], device: Any) -> Ragged:
        """Return ``[CLS] text [SEP]``, cut to the context."""
        t = self.tokenizer_
        rows = [[t.open, *codes[: self.context - 2], t.part] for codes in self._encoded(texts)]
        return Ragged.of([np.array(row) for row in rows], torch.int64, device)

    def _evaluate(self, texts: list[str], call: Any) -> np.ndarray:
        data = self._framed(texts, next(self.module_.parameters()).device)
        out: list[Any] = [None] * len(texts)
        with torch.inference_mode():
            for rows, tokens, lengths in in_batches(data, 8192):
                for row, result in zip(rows.tolist(), call(tokens, lengths).cpu().numpy()):
                    out[row] = result
        return np.stack(out)

    def _saved_attributes(self) -> dict[str, Any]:
        kept = super()._saved_attributes()
        if kept.get("tokenizer_") is not None:
            kept["tokenizer_"] = self.tokenizer_.dump()
        return kept

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        if fitted.get("tokenizer_") is not None:
            fitted["tokenizer_"] = WordPieces.restore(fitted["tokenizer_"])
        super()._load_attributes(fitted)


class BERT(Transformer, BaseBERT):
    """Learn to understand texts from texts alone.

    ``fit`` pre-trains on documents; ``transform`` gives a vector for each text; ``fill`` guesses masked words;
    ``fine_tune`` makes a classifier of it; ``from_transformers`` takes weights that others have trained.

    Parameters
    ----------
    n_layers : int, default=2
        Depth. The published sizes are 12 and 24.
    dimension : int, default=128
        Width; a multiple of ``n_heads``. The published sizes are 768 and 1024.
    n_heads : int, default=4
        Attentions side by side. The published sizes are 12 and 16.
    inner : int, optional
        Width of the layers between, four times the dimension by default.
    context : int, default=128
        The most tokens that are read; longer texts are cut.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=8000
        The most pieces of words that are told apart.
    training : Training, optional
        How to descend.
    random_state : int or RandomState, optional
        Seed for initial weights, sentence pairs, masks, order of samples and dropout.

    Attributes
    ----------
    module_ : BertNetwork
        The trained network.
    tokenizer_ : WordPieces
        What turns texts into tokens.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss, its two parts and seconds of every epoch.

    Notes
    -----
    Minimises equation (1) of :mod:`corollary.language.bert`; O(t^2 d + t d^2) per text and layer. Only hidden tokens go
    through the output matrix, which is most of the work of a small model.

    References
    ----------
    .. [1] J. Devlin, M.-W. Chang, K. Lee, K. Toutanova (2019). BERT: pre-training of deep bidirectional transformers
       for language understanding. NAACL.

    Examples
    --------
    >>> from corollary import BERT, Training
    >>> texts = ["The sun is warm. The sea is blue.", "Snow is cold. Ice is cold too."] * 4
    >>> model = BERT(1, dimension=16, n_heads=2, training=Training(2), random_state=0).fit(texts)
    >>> model.transform(["the sun"]).shape
    (1, 16)
    """

    def transform(self, X):
        """Return the mean of the last states, (n, dimension), for each text."""
        return super().transform(X)

    def fill(self, X):
        """Return each text with every ``[MASK]`` replaced by its most probable piece of a word."""
        check_is_fitted(self)
        texts = check_texts(X, "BERT")
        data, t = self._framed(texts, next(self.module_.parameters()).device), self.tokenizer_
        out = []
        with torch.inference_mode():
            for i in range(len(texts)):
                tokens, lengths = data.padded(torch.tensor([i]))
                logits = self.module_.guesses(self.module_(tokens, lengths))
                logits[..., [t.pad, t.unknown, t.open, t.part, t.mask]] = -torch.inf
                out.append(t.decode(torch.where(tokens == t.mask, logits.argmax(-1), tokens)[0].tolist()))
        return out

    def fine_tune(self, X, y, *, training=None, random_state=None):
        """Return a :class:`BERTClassifier` that starts from these weights and is trained on texts X with labels y."""
        check_is_fitted(self)
        names = ("n_layers", "dimension", "n_heads", "inner", "context", "dropout", "vocabulary_size")
        model = BERTClassifier(
            **{name: getattr(self, name) for name in names},
            training=training,
            random_state=self.random_state if random_state is None else random_state,
        )
        model.pretrained_ = dict(self.module_.state_dict())
        model.tokenizer_, model.options_ = self.tokenizer_, self.options_
        return model.fit(X, y)

    # --- hooks -------------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Any:
        self._begin(data.X)
        rows, types, follows = sentence_pairs(
            [[self.tokenizer_.encode(s) for s in SENTENCE.split(text) if s.strip()] for text in data.X],
            self.tokenizer_,
            self.context,
            self._rng(),
        )
        device = current().device
        batches = RaggedBatches(
            Ragged.of(rows, torch.int64, device),
            Ragged.of(types, torch.int64, device),
            as_tensor(follows).to(device),
        )
        return self._descend(partial(pretraining_loss, tokenizer=self.tokenizer_), batches=batches)

    def _module(self) -> BertNetwork:
        return self._network()

    def _transform(self, X: list[str]) -> np.ndarray:
        return self._evaluate(X, lambda tokens, lengths: pool(self.module_(tokens, lengths), lengths, "mean"))

    @classmethod
    def from_transformers(cls, source: Any, *, tokenizer: str | None = None) -> BERT:
        """Return a fitted BERT with the weights of one of the package transformers.

        Parameters
        ----------
        source : model, or path
            A ``BertModel``, ``BertForPreTraining`` or other BERT, or a directory as ``save_pretrained`` writes it,
            with ``config.json`` and ``model.safetensors``; nothing is downloaded. Heads that it lacks are new.
        tokenizer : str, optional
            Path of the tokenizer; by default that of the directory, if it has one.
        """
        config, weights = read_checkpoint(source, "BERT", "bert")
        model = cls(
            config["num_hidden_layers"],
            dimension=config["hidden_size"],
            n_heads=config["num_attention_heads"],
            inner=config["intermediate_size"],
            context=config["max_position_embeddings"],
            dropout=float(config.get("hidden_dropout_prob", 0.1)),
            vocabulary_size=config["vocab_size"],
        )
        model.options_ = {
            "activation": config.get("hidden_act", "gelu"),
            "epsilon": config.get("layer_norm_eps", 1e-12),
            "n_types": config.get("type_vocab_size", 2),
        }
        model.tokenizer_ = None
        with seeded(0):
            model.module_ = model._network()
        found = _renamed(weights, config["num_hidden_layers"])
        model.module_.load_state_dict({**model.module_.state_dict(), **found})
        model.module_.to(next(iter(found.values())).dtype).eval()
        model.tokenizer_ = _tokenizer(source, tokenizer)
        model.n_iter_, model.history_ = 0, []
        return model


class BERTClassifier(Classifier, BaseBERT):
    """Classify texts with a BERT.

    From scratch, or from what a :class:`BERT` has learned: ``BERT.fine_tune(X, y)`` makes one.

    Parameters
    ----------
    n_layers : int, default=2
        Depth.
    dimension : int, default=128
        Width; a multiple of ``n_heads``.
    n_heads : int, default=4
        Attentions side by side.
    inner : int, optional
        Width of the layers between, four times the dimension by default.
    context : int, default=128
        The most tokens that are read; longer texts are cut.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=8000
        The most pieces of words that are told apart.
    training : Training, optional
        How to descend.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    module_ : torch.nn.Module
        The network (``bert``) and its head.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy of a linear map of the pooled first state.

    Examples
    --------
    >>> from corollary import BERTClassifier, Training
    >>> texts = ["warm sun", "cold snow", "sun and sea", "snow and ice"] * 6
    >>> model = BERTClassifier(1, dimension=16, n_heads=2, training=Training(20, learning_rate=0.01), random_state=0)
    >>> model.fit(texts, [1, 0, 1, 0] * 6).predict(["sun", "snow"])
    array([1, 0])
    """

    def _learner(self, data: Data) -> Any:
        if not hasattr(self, "pretrained_"):
            self._begin(data.X)
        x = self._framed(data.X, current().device)
        batches = RaggedBatches(x, as_tensor(data.y).to(x.flat.device))
        return self._descend(classification_loss, batches=batches, stratify=data.y)

    def _module(self) -> nn.Module:
        module = _Classifying(self._network(), len(self.classes_), self.dropout)
        if hasattr(self, "pretrained_"):
            module.bert.load_state_dict(self.pretrained_)
        return module

    def _predict_proba(self, X: list[str]) -> np.ndarray:
        return self._evaluate(X, lambda tokens, lengths: self.module_(tokens, lengths).softmax(1))


class _Classifying(nn.Module):
    """A head on the pooled state; the heads of pre-training are left alone."""

    def __init__(self, bert: BertNetwork, n_out: int, dropout: float) -> None:
        super().__init__()
        self.bert = bert
        for part in (bert.guess, bert.guess_norm, bert.follows):
            part.requires_grad_(False)
        bert.guess_bias.requires_grad_(False)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(bert.pooler.out_features, n_out)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.head(self.drop(self.bert.pooled(self.bert(tokens, lengths))))


# --- pre-training ----------------------------------------------------------------------------------------


def sentence_pairs(
    documents: list[list[list[int]]], tokenizer: Any, context: int, rng: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Return framed pairs, their sentence types, and whether the second follows (1) or is from anywhere (0).

    Consecutive sentences are joined while a quarter of the context holds them; a document of one sentence is halved.
    """
    room = (context - 3) // 2
    segments = [_segments(document, room) for document in documents]
    every = [segment for parts in segments for segment in parts]
    rows, types, follows = [], [], []
    for parts in segments:
        if len(parts) == 1:
            middle = (len(parts[0]) + 1) // 2
            parts = [parts[0][:middle], parts[0][middle:]]
        for a, b in zip(parts[:-1], parts[1:]):
            true = rng.random() < 0.5 or len(every) < 2
            b = b if true else every[rng.integers(len(every))]
            rows.append(np.array([tokenizer.open, *a[:room], tokenizer.part, *b[:room], tokenizer.part]))
            types.append(np.repeat([0, 1], [len(a[:room]) + 2, len(b[:room]) + 1]))
            follows.append(int(true))
    return rows, types, np.array(follows)


def _segments(sentences: list[list[int]], room: int) -> list[list[int]]:
    parts: list[list[int]] = []
    for sentence in sentences:
        if parts and len(parts[-1]) + len(sentence) <= room // 2:
            parts[-1] = parts[-1] + sentence
        else:
            parts.append(sentence)
    if len(parts) == 1 and len(sentences) > 1:
        middle = len(sentences) // 2
        parts = [sum(sentences[:middle], []), sum(sentences[middle:], [])]
    return parts or [[]]


def pretraining_loss(
    module: nn.Module,
    tokens: Tensor,
    lengths: Tensor,
    types: Tensor,
    _: Tensor,
    follows: Tensor,
    *,
    tokenizer: Any,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return eq. 1 over a batch, and its two parts."""
    fixed = ~padding_mask(lengths, tokens.shape[1], tokens.device)
    fixed = fixed | (tokens == tokenizer.open) | (tokens == tokenizer.part)
    hidden, chosen = mask_tokens(tokens, fixed, tokenizer.mask, tokenizer.size)
    guesses, next_logits = module(hidden, lengths, types, chosen)
    guessing = F.cross_entropy(guesses, tokens[chosen], reduction="sum") / max(1, int(chosen.sum()))
    following = F.cross_entropy(next_logits, follows)
    return guessing + following, {"guessing": guessing.detach(), "following": following.detach()}


def classification_loss(module: nn.Module, tokens: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross-entropy."""
    return F.cross_entropy(module(tokens, lengths), y)


# --- their names -----------------------------------------------------------------------------------------

TOP = {
    "embeddings.word_embeddings.weight": "tokens.weight",
    "embeddings.position_embeddings.weight": "places.weight",
    "embeddings.token_type_embeddings.weight": "types.weight",
    "embeddings.LayerNorm.weight": "norm.weight",
    "embeddings.LayerNorm.bias": "norm.bias",
    "pooler.dense.weight": "pooler.weight",
    "pooler.dense.bias": "pooler.bias",
    "cls.predictions.transform.dense.weight": "guess.weight",
    "cls.predictions.transform.dense.bias": "guess.bias",
    "cls.predictions.transform.LayerNorm.weight": "guess_norm.weight",
    "cls.predictions.transform.LayerNorm.bias": "guess_norm.bias",
    "cls.predictions.bias": "guess_bias",
    "cls.seq_relationship.weight": "follows.weight",
    "cls.seq_relationship.bias": "follows.bias",
}
LAYER = {
    "attention.output.dense": "mix",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "expand",
    "output.dense": "contract",
    "output.LayerNorm": "norm2",
}


def _renamed(weights: Mapping[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """Return their weights by our names; queries, keys and values are one matrix here."""
    theirs = {name.removeprefix("bert."): weight for name, weight in weights.items()}
    out = {ours: theirs[name] for name, ours in TOP.items() if name in theirs}
    for i in range(n_layers):
        start = f"encoder.layer.{i}."
        for end in ("weight", "bias"):
            parts = [theirs[f"{start}attention.self.{part}.{end}"] for part in ("query", "key", "value")]
            out[f"blocks.{i}.qkv.{end}"] = torch.cat(parts)
            for name, ours in LAYER.items():
                out[f"blocks.{i}.{ours}.{end}"] = theirs[f"{start}{name}.{end}"]
    return out


def _tokenizer(source: Any, tokenizer: str | None) -> WordPieces | None:
    if tokenizer is not None:
        return WordPieces.read(tokenizer)
    if isinstance(source, str | Path):
        names = ("tokenizer.json", "vocab.txt")
        if any((Path(source) / name).is_file() for name in names):
            return WordPieces.read(source)
    return None
