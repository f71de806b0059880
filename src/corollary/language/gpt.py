r"""GPT, the generative pre-trained transformer: a causal language model.

A text :math:`x_1, \dots, x_n` is opened and closed by an end token, :math:`x_0 = x_{n+1} = \mathrm{end}`, and its
probability is that of one token after the other,

.. math:: \log p(x) = \sum_{t=1}^{n+1} \log p(x_t \mid x_0, \dots, x_{t-1}), \tag{1}

each from a decoder-only transformer (:mod:`corollary.language.decoder`). Training minimises the mean of
:math:`-\log p(x_t \mid \cdot)` over windows of the texts joined end to end. Perplexity is
:math:`\exp(-\frac{1}{N} \sum \log p)` (2) over all N tokens, in the base of the natural logarithm; a text
longer than the context is read in overlapping windows, so that a token sees at least
``max_length - stride`` tokens before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from corollary.base import Data, Density, Generator, LanguageModel
from corollary.engine.batches import Batch
from corollary.engine.objective import Supervised
from corollary.engine.random import seeded
from corollary.engine.training import Training
from corollary.errors import kind, value
from corollary.export import Named
from corollary.gradient import GradientTrained
from corollary.language import tokens as tokenizers
from corollary.language.beams import beam_search
from corollary.language.checkpoints import GPT2_DEFAULTS, dtype_of, end_tokens, gpt2_weights, tokenizer_of
from corollary.language.decoder import Decoder, generate
from corollary.losses import CrossEntropy
from corollary.nn.pretrained import fill_pretrained, known_activation, read_pretrained

__all__ = ["GPT", "WindowBatches"]

BATCH, LOGITS = 32, 2**25  # the most windows, and logits, scored at a time
# What transformers calls the activations that we have.
# The tanh form of the gelu is one function of many names; the compiled loop knows it by this one.
SAME = dict.fromkeys(
    ("gelu_accurate", "gelu_fast", "gelu_new", "gelu_python_tanh", "gelu_pytorch_tanh"), "gelu_tanh"
)
SAME["swish"] = "silu"


class WindowBatches:
    """Windows of one long sequence; each epoch cuts it at other places.

    Parameters
    ----------
    sequence : tensor of int64 of shape (n,)
        All tokens.
    length : int
        Tokens per window, the one to predict last included.
    starts : tensor, optional
        Where the windows begin; by default end to end, shifted together from epoch to epoch.
    """

    def __init__(self, sequence: Tensor, length: int, starts: Tensor | None = None) -> None:
        self.sequence = sequence
        self.length = length
        self.fixed = starts is not None
        step = length - 1  # the last token of a window is the first of the next
        self.starts = torch.arange(0, max(1, len(sequence) - 1), step) if starts is None else starts

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    def count(self, batch_size: int) -> int:
        """Return the number of batches in an epoch."""
        return -(-len(self) // batch_size)

    def take(self, rows: Tensor) -> WindowBatches:
        """Return some of the windows, which then stay where they are."""
        return WindowBatches(self.sequence, self.length, self.starts[rows])

    def to(self, device: Any) -> WindowBatches:
        """Return the same windows on a device."""
        moved = WindowBatches(self.sequence.to(device), self.length, self.starts)
        moved.fixed = self.fixed
        return moved

    def epoch(self, order: Tensor | None, batch_size: int, start: int = 0) -> Iterator[Batch]:
        """Yield windows; the order, which depends on (seed, epoch) only, also decides the shift."""
        starts, last = self.starts, len(self.sequence) - self.length
        if order is not None:
            shift = 0 if self.fixed else _mixed(order) % (self.length - 1)
            starts = self.starts[order] - shift
        starts = starts.clamp(0, last)
        inside = torch.arange(self.length)
        for begin in range(start * batch_size, len(starts), batch_size):
            chosen = starts[begin : begin + batch_size]
            windows = (chosen[:, None] + inside).to(self.sequence.device)
            tokens = self.sequence[windows]
            yield Batch((tokens,), tokens[:, 1:], size=len(chosen))


def _mixed(order: Tensor) -> int:
    """Return a number that a permutation decides."""
    return int(np.random.SeedSequence(order[:8].tolist()).generate_state(1)[0])


def spread(n: int, max_length: int, stride: int) -> list[tuple[int, int, int]]:
    """Return windows over n tokens to predict: begin, end, and the first that no window before has predicted.

    >>> spread(10, 4, 3)
    [(0, 4, 0), (3, 7, 4), (6, 10, 7)]
    """
    ends = [min(n, max_length)]
    while ends[-1] < n:
        ends.append(min(ends[-1] + stride, n))
    return [(max(0, end - max_length), end, fresh) for fresh, end in zip([0, *ends], ends)]


def next_tokens(module: nn.Module, windows: Tensor) -> Tensor:
    """Return the logits (b, t - 1, n) of every token of the windows (b, t) given those before it."""
    logits: Tensor = module(windows[:, :-1])
    return logits


class GPT(LanguageModel, Density, Generator, tokenizers.KeepsTokenizer, GradientTrained):
    """Train a causal language model on texts (a decoder-only transformer), and continue prompts.

    ``fit`` trains from scratch; ``from_transformers`` loads pre-trained weights, and ``fine_tune`` goes on from there.

    Parameters
    ----------
    n_layers : int, default=4
        Blocks. More can learn more, and take longer.
    n_heads : int, default=4
        Attention heads of each block.
    width : int, default=128
        Width of the network, a multiple of ``n_heads``. Cost grows with its square.
    max_length : int, default=128
        How many tokens it sees at most.
    dropout : float, default=0.0
        Share dropped while training; more regularises small collections.
    tokenizer : str, default="character"
        "character", "bytepair", or the path of a ``tokenizer.json``.
    vocabulary_size : int, default=1000
        How many tokens "bytepair" learns; more make texts shorter and the network larger.
    training : Training, optional
        Settings of gradient descent; a sample is a window of ``max_length`` tokens.
    random_state : int or RandomState, optional
        Seed for initial weights, windows, dropout and sampling.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network: tokens (b, t) to logits (b, t, n_tokens).
    tokenizer_ : Tokenizer
        Turns texts into integers and back.
    n_tokens_ : int
        Size of the vocabulary.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss (nats per token) and seconds of every epoch.

    Notes
    -----
    Minimises -log p of equation (1) of :mod:`corollary.language.gpt` per token. A token costs O(n_layers (12 d^2 +
    max_length d) + n_tokens d) for d = ``width``. A window may span several texts, as in the original.

    References
    ----------
    .. [1] A. Radford, J. Wu, R. Child, D. Luan, D. Amodei, I. Sutskever (2019). Language models are unsupervised
       multitask learners.

    Examples
    --------
    >>> from corollary import GPT, Training
    >>> texts = ["ab" * 40, "ba" * 40]
    >>> model = GPT(1, n_heads=2, width=32, max_length=16, training=Training(epochs=40), random_state=0)
    >>> model.fit(texts).generate("abab", max_new_tokens=4, temperature=0)
    'abababab'
    """

    input = "text"
    _parameter_constraints = {
        **{
            name: [Interval(Integral, 1, None, closed="left")]
            for name in ("n_layers", "n_heads", "width", "vocabulary_size")
        },
        "max_length": [Interval(Integral, 2, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "tokenizer": [str],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_layers=4,
        *,
        n_heads=4,
        width=128,
        max_length=128,
        dropout=0.0,
        tokenizer="character",
        vocabulary_size=1000,
        training=None,
        random_state=None,
    ):
        self.n_layers = n_layers
        self.n_heads = n_heads
        self.width = width
        self.max_length = max_length
        self.dropout = dropout
        self.tokenizer = tokenizer
        self.vocabulary_size = vocabulary_size
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        sizes = {"n_layers": 1, "n_heads": 2, "width": 16, "max_length": 64}
        return {**sizes, "training": Training(epochs=2)}

    # --- fitting -----------------------------------------------------------------------------------------

    @property
    def _training_defaults(self) -> dict[str, Any]:
        # As for BERT's heads, the published rate at the published width.
        rate = min(1e-3, 5e-5 * 768 / self.width) if hasattr(self, "pretrained_") else 1e-3
        return {
            "epochs": 20, "optimizer": "adamw", "learning_rate": rate, "batch_size": 16, "weight_decay": 0.01,
            "clip_norm": 1.0,
        }  # fmt: skip

    def _measure(self, data: Data) -> None:
        if not hasattr(self, "pretrained_"):
            self.tokenizer_ = tokenizers.make(self.tokenizer, data.X, self.vocabulary_size)
            self.n_tokens_ = self.tokenizer_.size
            self.options_ = {"dropout": self.dropout}
            self.dtype_ = "float32"

    def _aim(self) -> Any:
        return Supervised(CrossEntropy(self.n_tokens_, axis=-1), forward=next_tokens)

    def _batches(self, data: Data) -> WindowBatches:
        encoded, end = [self._encode(text) for text in data.X], np.array([self._end()])
        joined = np.concatenate([end, *(part for codes in encoded for part in (codes, end))])
        length = min(self.max_length + 1, len(joined))
        return WindowBatches(torch.from_numpy(joined), length)

    def _module(self) -> Decoder:
        if self.width % self.n_heads:
            raise value("GPT", f"width must be a multiple of n_heads={self.n_heads}", self.width)
        sizes = (self.n_tokens_, self.max_length, self.width, self.n_layers, self.n_heads)
        module = Decoder(*sizes, **self.options_).to(getattr(torch, self.dtype_))
        if hasattr(self, "pretrained_"):
            module.load_state_dict(self.pretrained_)
        return module

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        return self.module_, Named("logits"), {"ends": sorted(self._ends())}

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        return {"tokens": torch.zeros(2, 2, dtype=torch.int64)}, {"tokens": {0: "n", 1: "steps"}}

    # --- probabilities -----------------------------------------------------------------------------------

    def _log_prob(self, X: Sequence[str]) -> np.ndarray:
        return np.array([logs.sum() for logs in self._token_log_probs(X, None)])

    def _token_log_probs(self, X: Sequence[str], stride: int | None) -> list[np.ndarray]:
        """Return the terms of eq. 1 for each text, in double precision."""
        stride = max(1, self.max_length // 2) if stride is None else stride
        if stride > self.max_length:
            raise value("GPT", f"stride must not exceed max_length={self.max_length} tokens", stride)
        encoded, end = [self._encode(text) for text in X], np.array([self._end()])
        rows = [np.concatenate([end, codes, end]) for codes in encoded]
        spans = [(i, *w) for i, row in enumerate(rows) for w in spread(len(row) - 1, self.max_length, stride)]
        spans.sort(key=lambda span: span[2] - span[1])  # alike lengths together: little padding
        most = max(1, min(BATCH, LOGITS // (self.n_tokens_ * self.max_length)))
        out = [np.empty(len(row) - 1) for row in rows]
        for start in range(0, len(spans), most):
            self._score(spans[start : start + most], rows, out)
        return out

    @torch.inference_mode()
    def _score(
        self, spans: list[tuple[int, int, int, int]], rows: list[np.ndarray], out: list[np.ndarray]
    ) -> None:
        """Write the log-probabilities of some windows to where they belong; what pads them is seen by no token."""
        windows = np.zeros((len(spans), spans[-1][2] - spans[-1][1] + 1), dtype=np.int64)
        for window, (i, begin, end, _) in zip(windows, spans):
            window[: end - begin + 1] = rows[i][begin : end + 1]
        found = self._window(torch.from_numpy(windows).to(self.module_.tokens.weight.device))
        for logs, (i, begin, end, fresh) in zip(found, spans):
            out[i][fresh:end] = logs[fresh - begin : end - begin]

    def _window(self, windows: Tensor) -> np.ndarray:
        """Return log p of every token but the first: (b, t + 1) -> (b, t)."""
        logits = self.module_(windows[:, :-1]).double()
        return logits.log_softmax(-1).gather(-1, windows[:, 1:, None])[..., 0].cpu().numpy()

    # --- generation --------------------------------------------------------------------------------------

    def _generate(self, prompts: Sequence[Any], max_new_tokens: int, seed: int, **how: Any) -> list[Any]:
        rows = [self._prompt(prompt) for prompt in prompts]
        beams, alpha = how.pop("beam_size", 1), how.pop("length_penalty", 1.0)
        if beams > 1:
            penalty = how.get("repetition_penalty", 1.0)
            settings = {"beam_size": beams, "length_penalty": alpha, "repetition_penalty": penalty}
            made = beam_search(self.module_, rows, max_new_tokens, ends=self._ends(), **settings)
        else:
            generator = torch.Generator(self.module_.tokens.weight.device).manual_seed(seed)
            made = generate(self.module_, rows, max_new_tokens, ends=self._ends(), generator=generator, **how)
        return [
            prompt + self.tokenizer_.decode(new) if isinstance(prompt, str) else [*map(int, prompt), *new]
            for prompt, new in zip(prompts, made)
        ]

    def _prompt(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            # The end token opens a text, unless the prompt fills the context without it.
            encoded = self._encode(prompt).tolist()
            tokens = encoded if len(encoded) == self.max_length else [self.tokenizer_.end, *encoded]
        else:
            tokens = _integers(prompt)
        if not tokens:
            raise value("GPT", "a prompt of integers must hold at least one", "none")
        if len(tokens) > self.max_length:
            do = f"Shorten it, for instance to its last {self.max_length - 1} tokens."
            raise value("GPT", f"a prompt must fit into max_length={self.max_length} tokens", len(tokens), do)
        if min(tokens) < 0 or max(tokens) >= self.n_tokens_:
            raise value(
                "GPT",
                f"tokens must lie between 0 and {self.n_tokens_ - 1}",
                f"{min(tokens)} to {max(tokens)}",
            )
        return tokens

    def _encode(self, text: str) -> np.ndarray:
        if self.tokenizer_ is None:
            do = "Pass prompts as lists of integers, or tokenizer= to from_transformers."
            raise value("GPT", "texts need a tokenizer", "a model without one", do)
        return self.tokenizer_.encode(text)

    def _end(self) -> int | None:
        return None if self.tokenizer_ is None else self.tokenizer_.end

    def _ends(self) -> frozenset[int]:
        """Return the tokens that end a text: those of the checkpoint, and the tokenizer's."""
        own = () if self.tokenizer_ is None else (self.tokenizer_.end,)
        return frozenset([*getattr(self, "ends_", ()), *own])

    def _sample(self, n: int, rng: np.random.Generator) -> list[str]:
        return self._generate([""] * n, self.max_length, int(rng.integers(2**31)), temperature=1.0)

    # --- files -------------------------------------------------------------------------------------------

    @classmethod
    def from_transformers(cls, source: Any, *, tokenizer: Any = None) -> GPT:
        """Return a fitted GPT with the weights of a GPT-2 of the package transformers.

        Parameters
        ----------
        source : model, or path
            A ``GPT2LMHeadModel`` or ``GPT2Model``, or a directory as ``save_pretrained`` writes it, with
            ``config.json`` and ``model.safetensors``, its shards, or ``pytorch_model.bin``; nothing is downloaded.
        tokenizer : path or tokenizer, optional
            A file, a directory, or a fast tokenizer of transformers; by default that of the directory, if it has one.
            Without one, only ``module_`` and prompts of integers can be used; the checkpoint's end token still ends
            what is generated. A checkpoint with a head for classes or answers is refused; the second head of a
            ``GPT2DoubleHeadsModel`` is left out.
        """
        config, weights = read_pretrained(source, "gpt2", "GPT", GPT2_DEFAULTS, add_cross_attention=False)
        theirs = known_activation(config["activation_function"], "GPT")
        model = cls(
            config["n_layer"],
            n_heads=config["n_head"],
            width=config["n_embd"],
            max_length=config["n_positions"],
            dropout=float(config["resid_pdrop"]),
            tokenizer=tokenizer if isinstance(tokenizer, str) else "bytepair",
            vocabulary_size=config["vocab_size"],
        )
        model.n_tokens_ = config["vocab_size"]
        model.options_ = {
            "inner_width": config["n_inner"] or 4 * config["n_embd"],
            "dropout": model.dropout,
            "activation": SAME.get(theirs, theirs),
            "epsilon": config["layer_norm_epsilon"],
            "tied": config["tie_word_embeddings"],
            "scales": _scales(config),
        }
        model.ends_ = end_tokens(source, config, model.n_tokens_)
        found = gpt2_weights(weights, model.options_["tied"])
        model.dtype_ = dtype_of(found)
        with seeded(0):
            model.module_ = fill_pretrained(model._module, found, "GPT")
        files = ("tokenizer.json", "merges.txt")
        model.tokenizer_ = tokenizer_of(
            source, tokenizer, tokenizers.BytePairTokenizer, files, model.n_tokens_, "GPT"
        )
        model.n_iter_, model.history_ = 0, []
        return model


def _integers(prompt: Any) -> list[int]:
    found = np.asarray(prompt)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise kind("GPT", "a prompt must be a string or a list of integers", repr(prompt)[:60])
    return [int(token) for token in found]


def _scales(config: Mapping[str, Any]) -> list[float]:
    base = (config["n_embd"] // config["n_head"]) ** -0.5 if config["scale_attn_weights"] else 1.0
    by_layer = config["scale_attn_by_inverse_layer_idx"]
    return [base / (i + 1 if by_layer else 1) for i in range(config["n_layer"])]
