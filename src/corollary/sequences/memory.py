r"""The end-to-end memory network: questions answered by several hops of attention over facts.

Every fact is stored twice, as a key :math:`m_i = \sum_w l_w \odot A x_{iw} + T_A(i)` and as a content
:math:`c_i = \sum_w l_w \odot C x_{iw} + T_C(i)`, sums over its words with position weights :math:`l_w` (1) and a vector
:math:`T(i)` for its age. A question u is compared with all keys, and what it finds is added to it:

.. math::
    p_i = \mathrm{softmax}_i \langle u^k, m_i^k \rangle, \qquad u^{k+1} = u^k + \textstyle\sum_i p_i c_i^k, \tag{2}

so that a second hop can ask for what the first has found. Contents of one hop are the keys of the next,
:math:`A^{k+1} = C^k`, and the answer is :math:`\mathrm{softmax}(W u^{K})` (3).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data
from corollary.data.kinds import check_texts
from corollary.engine.batches import TensorBatches
from corollary.engine.ragged import Ragged
from corollary.engine.training import Training
from corollary.errors import kind
from corollary.gradient import GradientClassifier
from corollary.sequences import words
from corollary.shapes import List, Text

__all__ = ["MemoryNet", "MemoryNetwork", "position_weights"]


def position_weights(counts: Tensor, n_words: int, width: int) -> Tensor:
    """Return the weights l (..., n_words, width) that tell first words from last ones, for texts of so many words.

    >>> position_weights(torch.tensor(2), 2, 2)
    tensor([[0.5000, 0.5000],
            [0.5000, 1.0000]])
    """
    j = torch.arange(1, n_words + 1, device=counts.device) / counts[..., None].clamp_min(1)
    k = torch.arange(1, width + 1, device=counts.device) / width
    return 1 - j[..., None] - k * (1 - 2 * j[..., None])


class MemoryNet(nn.Module):
    """Logits (b, n_out) for facts (b, f, w) and questions (b, w), eq. 2 and 3; number 0 pads words and facts.

    Parameters
    ----------
    n_words, n_out : int
        Sizes of the vocabulary and of the answers.
    width : int
        Width of the memory.
    n_hops : int
        Number of attention hops over the memory.
    n_facts : int
        The most facts, each age with its own vector; age counts from the latest.
    """

    def __init__(
        self, n_words: int, n_out: int, *, width: int = 32, n_hops: int = 2, n_facts: int = 50
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding(n_words, width, padding_idx=words.PAD) for _ in range(n_hops + 1)
        )
        self.ages = nn.ParameterList(
            nn.Parameter(0.1 * torch.randn(n_facts, width)) for _ in range(n_hops + 1)
        )
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.1)
            nn.init.zeros_(table.weight[words.PAD])
        self.head = nn.Linear(width, n_out)

    def forward(self, facts: Tensor, question: Tensor) -> Tensor:
        """Answer."""
        return self.head(self.hops(facts, question)[0])

    def hops(self, facts: Tensor, question: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last u (b, d), and the attention (b, n_hops, f) of every hop; facts are latest first."""
        there = (facts != words.PAD).any(2)
        u, attention = _bag(self.tables[0], question), []
        stored = [_bag(table, facts) + age[: facts.shape[1]] for table, age in zip(self.tables, self.ages)]
        for keys, contents in zip(stored[:-1], stored[1:]):
            p = _softmax((keys @ u[:, :, None])[..., 0], there)
            u = u + (p[:, None] @ contents)[:, 0]
            attention.append(p)
        return u, torch.stack(attention, 1)


def _bag(table: nn.Embedding, tokens: Tensor) -> Tensor:
    """Return eq. 1's sums over words, (..., w) -> (..., d); each text's weights depend on its own length."""
    vectors = table(tokens)  # zero where there is padding
    weights = position_weights((tokens != words.PAD).sum(-1), tokens.shape[-1], table.embedding_dim)
    return (vectors * weights.to(vectors.dtype)).sum(-2)


def _softmax(scores: Tensor, there: Tensor) -> Tensor:
    """Return a softmax over what is there; all zeros where nothing is."""
    p = scores.masked_fill(~there, -torch.inf).softmax(1)
    return torch.where(there, p, 0.0).nan_to_num(0.0)


class MemoryNetwork(GradientClassifier):
    r"""Answer questions about facts by several hops of attention over a memory of them.

    A sample is one text: a fact per line, and the question on the last line. The answer is a label.

    Parameters
    ----------
    n_hops : int, default=2
        Attention hops over the memory: two facts that must be joined need two hops.
    width : int, default=32
        Width of the memory. Wider tells more words apart.
    n_facts : int, default=50
        How many of the latest facts are remembered.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights and order of samples.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The answers.
    vocabulary_ : list of str
        The words, the most frequent first.
    module_ : MemoryNet
        The trained network.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy of equation (3) of :mod:`corollary.sequences.memory`. An epoch costs
    O(n_hops * words * width). ``attention`` shows which facts were used.

    References
    ----------
    .. [1] S. Sukhbaatar, A. Szlam, J. Weston, R. Fergus (2015). End-to-end memory networks. NeurIPS.

    Examples
    --------
    >>> from corollary import MemoryNetwork, Training
    >>> stories = [f"ann is {a}\nbob is {b}\nhow is ann" for a in ("well", "ill") for b in ("well", "ill")]
    >>> model = MemoryNetwork(1, training=Training(80, learning_rate=0.02), random_state=0)
    >>> model.fit(stories * 8, ["well", "well", "ill", "ill"] * 8).predict(stories).tolist()
    ['well', 'well', 'ill', 'ill']
    """

    input = "text"
    _training_defaults = {"epochs": 60, "learning_rate": 5e-3, "batch_size": 32, "clip_norm": 10.0}
    _parameter_constraints = {
        "n_hops": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Integral, 1, None, closed="left")],
        "n_facts": [Interval(Integral, 1, None, closed="left")],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "random_state": ["random_state"],
    }
    _fitted = {"vocabulary_": List(Text())}

    def __init__(
        self, n_hops=2, *, width=32, n_facts=50, class_weight=None, training=None, random_state=None
    ):
        self.n_hops = n_hops
        self.width = width
        self.n_facts = n_facts
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 8, "training": Training(epochs=3)}

    def attention(self, X):
        """Return, for each text, the weight (n_hops, n facts) of each of its facts in each hop, in their order."""
        texts = self._query(X)
        counts = [min(len(_lines(text)[:-1]), self.n_facts) for text in texts]
        found = self._run(texts, lambda facts, question: self.module_.hops(facts, question)[1])
        return [p[:, :n][:, ::-1] for p, n in zip(found, counts)]

    # --- hooks -------------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> list[str]:
        texts = check_texts(X, type(self).__name__)
        for i, text in enumerate(texts):
            if not text.strip():
                raise kind(
                    "MemoryNetwork",
                    "every text must end in a question",
                    f"an empty text at {i}",
                    "Leave it out.",
                )
        return texts

    def _module(self) -> MemoryNet:
        sizes = (words.SPECIAL + len(self.vocabulary_), len(self.classes_))
        return MemoryNet(*sizes, width=self.width, n_hops=self.n_hops, n_facts=self.n_facts)

    def _measure(self, data: Data) -> None:
        self.vocabulary_ = words.vocabulary(data.X, "word")

    def _batches(self, data: Data) -> TensorBatches:
        return TensorBatches(self._tensors(data.X), *self._supervision(data))

    def _tensors(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Return facts (n, f, w), latest first, and questions (n, w), padded with 0."""
        stories = [_lines(text) for text in texts]
        codes = words.encode([line for story in stories for line in story], self.vocabulary_, "word")
        lines, _ = Ragged.of(codes).padded(torch.arange(len(codes)))
        counts = np.array([len(story) for story in stories])
        age = np.repeat(np.cumsum(counts), counts) - np.arange(len(codes)) - 1  # 0 is the question
        story = np.repeat(np.arange(len(texts)), counts)
        kept = age <= self.n_facts
        found = torch.zeros(len(texts), 1 + max(1, int(age[kept].max())), lines.shape[1], dtype=torch.int64)
        found[story[kept], age[kept]] = lines[kept]
        return found[:, 1:], found[:, 0]

    def _run(self, texts: list[str], call: Any, chunk: int = 1024) -> list[np.ndarray]:
        device, out = self.module_.head.weight.device, []
        with torch.inference_mode():
            for begin in range(0, len(texts), chunk):
                facts, question = self._tensors(texts[begin : begin + chunk])
                out += list(call(facts.to(device), question.to(device)).cpu().numpy())
        return out

    def _predict_proba(self, X: list[str]) -> np.ndarray:
        return np.stack(self._run(X, lambda *story: self.module_(*story).softmax(1)))


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
