r"""WaveNet: an autoregressive model of waveforms by dilated causal convolutions.

Amplitudes in [-1, 1] become one of :math:`\mu + 1` levels, finer where the wave is quiet,

.. math::
    c = \Bigl\lfloor \tfrac{\mu}{2} (1 + q) + \tfrac12 \Bigr\rfloor, \qquad
    q = \mathrm{sign}(x) \frac{\ln(1 + \mu |x|)}{\ln(1 + \mu)}, \tag{1}

and :math:`p(c) = \prod_t p(c_t \mid c_1, \dots, c_{t-1})` (2) is given by gated causal layers of dilation
:math:`\delta = 1, 2, 4, \dots`:

.. math::
    z_t = \tanh(W_f [h_{t-\delta}, h_t]) \odot \sigma(W_g [h_{t-\delta}, h_t]), \qquad
    h'_t = h_t + W_r z_t, \qquad s_t = \textstyle\sum_{\text{layers}} W_s z_t, \tag{3}

with logits :math:`W_2\,\mathrm{relu}(W_1\,\mathrm{relu}(s_t))`. A new sample needs of each layer only its input
:math:`\delta` steps ago: with those kept, T samples cost O(T), not O(T^2).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary.base import Data, Density, Generator, check_count
from corollary.engine.objective import Supervised
from corollary.engine.ragged import Ragged, RaggedBatches, padding_mask
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.errors import value
from corollary.losses import CrossEntropy, cross_entropy
from corollary.sequences.common import NAMES, BaseSequence, in_batches
from corollary.shapes import Count

__all__ = ["WaveNet", "WaveNetwork", "mu_decode", "mu_encode"]


def mu_encode(x: Any, levels: int = 256) -> np.ndarray:
    """Return the level of each amplitude in [-1, 1], eq. 1.

    >>> mu_encode([-1.0, 0.0, 0.01, 1.0])
    array([  0, 128, 157, 255])
    """
    mu, x = levels - 1, np.asarray(x, dtype=np.float64)
    squeezed = np.sign(x) * np.log1p(mu * np.abs(x)) / np.log1p(mu)
    return np.floor((squeezed + 1) / 2 * mu + 0.5).astype(np.int64)


def mu_decode(codes: Any, levels: int = 256) -> np.ndarray:
    """Return the amplitude of each level: what eq. 1 sends to its middle."""
    mu = levels - 1
    squeezed = 2 * np.asarray(codes, dtype=np.float64) / mu - 1
    return np.sign(squeezed) * np.expm1(np.abs(squeezed) * np.log1p(mu)) / mu


class _Layer(nn.Module):
    """Equation 3 on (b, c, t)."""

    def __init__(self, width: int, skip: int, dilation: int, last: bool) -> None:
        super().__init__()
        self.dilation = dilation
        self.gates = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.out = nn.Conv1d(width, skip if last else width + skip, 1)
        self.skip = skip

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        return self.finish(h, self.gates(F.pad(h, (self.dilation, 0))))

    def finish(self, h: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
        a, b = gates.chunk(2, 1)
        out = self.out(torch.tanh(a) * torch.sigmoid(b))
        return h + out[:, self.skip :] if out.shape[1] > self.skip else h, out[:, : self.skip]

    def advance(self, h: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """Do one step (b, c) with the input ``dilation`` steps before."""
        gates = torch.addmm(self.gates.bias, torch.cat([before, h], 1), self._flat())
        a, b = gates.chunk(2, 1)
        z = torch.tanh(a) * torch.sigmoid(b)
        out = torch.addmm(self.out.bias, z, self.out.weight[:, :, 0].T)
        return h + out[:, self.skip :] if out.shape[1] > self.skip else h, out[:, : self.skip]

    def _flat(self) -> Tensor:
        return self.gates.weight.permute(2, 1, 0).flatten(0, 1)


class WaveNetwork(nn.Module):
    """Logits (b, t, levels) of the next level, for levels (b, t) so far.

    Parameters
    ----------
    levels : int
        Number of levels; number ``levels`` itself begins a wave.
    width, skip_width : int
        Width of the layers and of what they send to the output.
    n_layers, n_cycles : int
        Dilations are 1, 2, ..., 2^(n_layers - 1), n_cycles times.
    """

    def __init__(
        self, levels: int, width: int = 32, skip_width: int = 64, n_layers: int = 8, n_cycles: int = 1
    ) -> None:
        super().__init__()
        self.levels, self.width = levels, width
        self.codes = nn.Embedding(levels + 1, width)
        dilations = [2**i for _ in range(n_cycles) for i in range(n_layers)]
        self.layers = nn.ModuleList(
            _Layer(width, skip_width, d, i == len(dilations) - 1) for i, d in enumerate(dilations)
        )
        self.hidden = nn.Linear(skip_width, skip_width)
        self.head = nn.Linear(skip_width, levels)
        self.receptive_field = 1 + sum(dilations)

    def forward(self, codes: Tensor) -> Tensor:
        """Read levels (b, t), the beginning included."""
        h = self.codes(codes).transpose(1, 2)
        total: Any = 0.0
        for layer in self.layers:
            h, skip = layer(h)
            total = total + skip
        return self._logits(total.transpose(1, 2))

    def _logits(self, s: Tensor) -> Tensor:
        return self.head(F.relu(self.hidden(F.relu(s))))

    def start(self, batch: int) -> list[Tensor]:
        """Return empty memories: each layer's last ``dilation`` inputs."""
        like = self.codes.weight
        return [like.new_zeros(layer.dilation, batch, self.width) for layer in self.layers]

    def advance(self, codes: Tensor, memory: list[Tensor], t: int) -> Tensor:
        """Read the level (b,) at step t; return the logits (b, levels) of the next, and write the memories."""
        h = self.codes(codes)
        total: Any = 0.0
        for layer, kept in zip(self.layers, memory):
            place = t % layer.dilation
            before = kept[place].clone()
            kept[place] = h
            h, skip = layer.advance(h, before)
            total = total + skip
        return self._logits(total)


class WaveNet(Density, Generator, BaseSequence):
    """Model waveforms, or sequences of integers, autoregressively: every sample given all before it.

    Takes a list of waves ``(t,)`` or ``(t, 1)`` of floats in [-1, 1], or of integer sequences.

    Parameters
    ----------
    n_layers : int, default=8
        Layers of a cycle; each doubles how far back the model sees.
    n_cycles : int, default=1
        Number of stacks, each with all dilations. More add depth.
    width : int, default=32
        Width of the layers.
    skip_width : int, default=64
        Width of what the layers send to the output.
    levels : int, default=256
        Levels of the amplitude, for waves.
    window : int, default=4096
        Longer waves are trained on in pieces of so many steps.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and what is drawn.

    Attributes
    ----------
    module_ : WaveNetwork
        The trained network.
    length_ : int
        Mean length of the waves fitted, which is that of those drawn.
    n_levels_ : int
        Number of levels or codes.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss (nats per step) and seconds of every epoch.

    Notes
    -----
    Maximises equation (2) of :mod:`corollary.sequences.wavenet`; ``score_samples`` is the log-probability of a whole
    sequence's levels, in nats. O(steps * layers * width^2) for training and for generation alike.

    References
    ----------
    .. [1] A. van den Oord et al. (2016). WaveNet: a generative model for raw audio. arXiv:1609.03499.
    .. [2] T. Le Paine et al. (2016). Fast WaveNet generation algorithm. arXiv:1611.09482.

    Examples
    --------
    >>> from corollary import Training, WaveNet
    >>> waves = [0.5 * np.sin(0.5 * np.arange(80) + p) for p in range(8)]
    >>> model = WaveNet(n_layers=4, training=Training(epochs=2), random_state=0).fit(waves)
    >>> model.sample(2).shape, model.generate([waves[0][:20]], 5).shape
    ((2, 80), (1, 5))
    """

    _training_defaults = {"epochs": 30, "learning_rate": 2e-3, "batch_size": 8, "clip_norm": 1.0}
    _parameter_constraints = {
        "n_layers": [Interval(Integral, 1, 20, closed="both")],
        "n_cycles": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Integral, 1, None, closed="left")],
        "skip_width": [Interval(Integral, 1, None, closed="left")],
        "levels": [Interval(Integral, 2, 65536, closed="both")],
        "window": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {"n_levels_": Count(1), "length_": Count(1)}

    def __init__(
        self,
        n_layers=8,
        *,
        n_cycles=1,
        width=32,
        skip_width=64,
        levels=256,
        window=4096,
        training=None,
        random_state=None,
    ):
        self.n_layers = n_layers
        self.n_cycles = n_cycles
        self.width = width
        self.skip_width = skip_width
        self.levels = levels
        self.window = window
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {
            "n_layers": 2,
            "width": 4,
            "skip_width": 8,
            "levels": 16,
            "training": Training(epochs=2),
        }

    @classmethod
    def _test_data(cls) -> tuple[list[np.ndarray], None]:
        rng = np.random.default_rng(0)
        return [0.9 * np.sin(0.3 * np.arange(rng.integers(10, 20)) + p) for p in range(8)], None

    def generate(self, prompts, n_steps=100, *, temperature=1.0):
        """Continue sequences by ``n_steps`` each, of the same kind; return only what is new, (n, n_steps).

        Parameters
        ----------
        prompts : list of waves or of integer sequences
            What to continue.
        n_steps : int, default=100
            How much.
        temperature : float, default=1.0
            Below 1 draws more probable levels; 0 takes the most probable.
        """
        parts = self._query(prompts)
        check_count(self, "n_steps", n_steps)
        if temperature < 0:
            raise value("WaveNet", "temperature must not be negative", temperature)
        return self._levels_out(self._draw(parts, n_steps, temperature, self._rng()))

    # --- hooks -------------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> list[np.ndarray]:
        parts = super()._check(X, reset)
        if self.kind_ in ("string", "token"):
            raise value(
                "WaveNet", "sequences must be waves or integers", NAMES[self.kind_], "Use GPT for text."
            )
        if self.kind_ == "code":
            return parts
        if parts[0].shape[1] != 1:
            raise value(
                "WaveNet", "waves must have one channel", f"{parts[0].shape[1]} channels", "Mix them."
            )
        largest = max(float(np.abs(part).max()) for part in parts)
        if largest > 1:
            raise value(
                "WaveNet", "waves must lie in [-1, 1]", f"amplitude {largest:g}", f"Divide by {largest:g}."
            )
        return [mu_encode(part[:, 0], self.levels) for part in parts]

    def _measure(self, data: Data) -> None:
        self.n_levels_ = self.levels if self.kind_ == "vector" else self.n_codes_
        self.length_ = max(1, round(np.mean([len(part) for part in data.X])))

    def _batches(self, data: Data) -> RaggedBatches:
        pieces = [part[i : i + self.window] for part in data.X for i in range(0, len(part), self.window)]
        levels = self._levels(pieces, current().device)
        counts = torch.ones(len(levels.flat), device=levels.flat.device)
        return RaggedBatches(levels, levels, Ragged(counts, levels.lengths))

    def _aim(self) -> Any:
        return Supervised(CrossEntropy(self.n_levels_, axis=-1), forward=level_logits)

    def _levels(self, parts: list[np.ndarray], device: Any) -> Ragged:
        return Ragged.of(parts, torch.int64, device)

    def _module(self) -> WaveNetwork:
        return WaveNetwork(self.n_levels_, self.width, self.skip_width, self.n_layers, self.n_cycles)

    def _log_prob(self, X: list[np.ndarray]) -> np.ndarray:
        out = np.empty(len(X))
        with torch.inference_mode():
            for rows, codes, lengths in in_batches(self._levels(X, self._device())):
                losses = _losses(self.module_, codes, lengths).double().sum(1)
                out[rows.numpy()] = -losses.cpu().numpy()
        return out

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self._levels_out(self._draw([np.empty(0, np.int64)] * n, self.length_, 1.0, rng))

    def _device(self) -> Any:
        return self.module_.codes.weight.device

    def _levels_out(self, codes: np.ndarray) -> np.ndarray:
        return codes if self.kind_ == "code" else mu_decode(codes, self.levels)

    def _draw(self, prompts: list[np.ndarray], steps: int, temperature: float, rng: Any) -> np.ndarray:
        """Continue each prompt; prompts of one length go together."""
        check_is_fitted(self)
        generator = torch.Generator(self._device()).manual_seed(int(rng.integers(2**31)))
        out = np.empty((len(prompts), steps), dtype=np.int64)
        lengths = np.array([len(prompt) for prompt in prompts])
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            given = torch.from_numpy(np.stack([prompts[row] for row in rows])).to(self._device())
            out[rows] = draw(self.module_, given, steps, temperature, generator).cpu().numpy()
        return out


@torch.inference_mode()
def draw(
    module: WaveNetwork, given: Tensor, steps: int, temperature: float = 1.0, generator: Any = None
) -> Tensor:
    """Return ``steps`` new levels after ``given`` (b, t), one cached step each."""
    seen = F.pad(given, (1, 0), value=module.levels)
    memory, out = module.start(len(given)), []
    code = seen[:, 0]
    for t in range(seen.shape[1] + steps - 1):
        logits = module.advance(code, memory, t)
        if t + 1 < seen.shape[1]:
            code = seen[:, t + 1]
            continue
        if temperature == 0:
            code = logits.argmax(1)
        else:
            code = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)[:, 0]
        out.append(code)
    return torch.stack(out, 1)


def _losses(module: nn.Module, codes: Tensor, lengths: Tensor) -> Tensor:
    """Return -log p of eq. 2 for every level (b, t), 0 beyond a sequence's end."""
    losses = cross_entropy(level_logits(module, codes, lengths), codes, axis=-1)
    return losses * padding_mask(lengths, codes.shape[1], codes.device)


def _begin(module: nn.Module) -> int:
    while hasattr(module, "module"):  # wrapped, for several processes
        module = module.module
    return int(module.levels)


def level_logits(module: nn.Module, codes: Tensor, lengths: Tensor) -> Tensor:
    """Return the logits (b, t, levels) of every level given those before it."""
    logits: Tensor = module(F.pad(codes, (1, -1), value=_begin(module)))
    return logits
