r"""Denoising diffusion: learn to undo noise that was added in small steps.

Noise is added by :math:`q(x_t \mid x_{t-1}) = \mathcal N(\sqrt{1 - \beta_t}\, x_{t-1}, \beta_t I)`. With
:math:`\alpha_t = 1 - \beta_t` and :math:`\bar\alpha_t = \prod_{s \le t} \alpha_s`, any level is reached at once,

.. math:: x_t = \sqrt{\bar\alpha_t}\, x_0 + \sqrt{1 - \bar\alpha_t}\, \epsilon, \qquad \epsilon \sim \mathcal N(0, I), \tag{1}

and a network is trained to predict :math:`\epsilon`, or :math:`x_0`, or
:math:`v = \sqrt{\bar\alpha_t}\, \epsilon - \sqrt{1 - \bar\alpha_t}\, x_0` (2) from :math:`x_t` and :math:`t` by least
squares. Each gives the others. One step back is drawn from

.. math::
    q(x_{t-1} \mid x_t, x_0) = \mathcal N\Big( \tfrac{\sqrt{\bar\alpha_{t-1}}\, \beta_t}{1 - \bar\alpha_t}\, x_0
    + \tfrac{\sqrt{\alpha_t}\, (1 - \bar\alpha_{t-1})}{1 - \bar\alpha_t}\, x_t,\; \tilde\beta_t I \Big), \quad
    \tilde\beta_t = \tfrac{1 - \bar\alpha_{t-1}}{1 - \bar\alpha_t}\, \beta_t, \tag{3}

with the predicted :math:`x_0` (ancestral sampling). Steps may be left out: from level :math:`t` to any :math:`s < t`,

.. math::
    x_s = \sqrt{\bar\alpha_s}\, \hat x_0 + \sqrt{1 - \bar\alpha_s - \sigma^2}\, \hat\epsilon + \sigma z, \qquad
    \sigma = \eta \sqrt{\tfrac{1 - \bar\alpha_s}{1 - \bar\alpha_t} \big( 1 - \tfrac{\bar\alpha_t}{\bar\alpha_s} \big)}, \tag{4}

without noise for :math:`\eta = 0` (DDIM). The log-likelihood is at least

.. math::
    \log p(x_0) \ge \log p(x_0 \mid x_1)
    - \textstyle\sum_{t \ge 2} D_{KL}\big( q(x_{t-1} \mid x_t, x_0) \,\|\, p(x_{t-1} \mid x_t) \big)
    - D_{KL}(q(x_T \mid x_0) \,\|\, \mathcal N(0, I)). \tag{5}

With labels, one network learns both with and without them, and is extrapolated:
:math:`\hat\epsilon = (1 + w)\, \epsilon(x_t, y) - w\, \epsilon(x_t)` (6), classifier-free guidance of strength :math:`w`.

The bound is largest if the steps back of the number (a pixel, a column) :math:`i` have the variance

.. math::
    \sigma_{ti}^2 = \tilde\beta_t + \Big( \tfrac{\sqrt{\bar\alpha_{t-1}}\, \beta_t}{1 - \bar\alpha_t} \Big)^2 e_{ti},
    \qquad e_{ti} = \mathbb E\, (x_{0i} - \hat x_{0i}(x_t))^2, \tag{7}

where :math:`e_{ti}` is measured on training data after the fit, with the mean over all numbers as one more sample. Pixels on a
grid are learned as they are, without noise; the last step back gives a level its probability, the integral of the Gaussian
over one step of the grid (8), and (5) bounds a probability. A guess :math:`\hat x_0` with errors of variance :math:`e_{ti}` is
moved to the levels that it may stand for,

.. math:: \hat x_0 \leftarrow \sum_l l\, p(l \mid \hat x_0), \qquad
    p(l \mid \hat x_0) \propto \exp\big( -(\hat x_0 - l)^2 / 2 e_{ti} \big), \tag{9}

where that lowers :math:`e_{ti}`: noise that is small beside a step of the grid then costs nothing.
Columns of tables are dequantised: of few rows the exact values would be learned by heart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary import errors
from corollary.base import Data, Density
from corollary.engine.batches import Batch
from corollary.engine.training import Training
from corollary.generative.bound import draws, even_noise, log_cell, strata
from corollary.generative.common import GenerativeModel
from corollary.generative.denoisers import denoiser
from corollary.shapes import Array, Number
from corollary.validation import as_given, check_count, finite

__all__ = ["DDPM", "Levels", "betas", "noisy"]

WITHOUT_LABEL = 0.1  # share of the samples that are learned without their label, for eq. 6
BEYOND = 1.5  # how far drawn numbers may lie outside the range of the training data
TINY = 1e-12  # least mean squared error
MEASURED = 20_000  # numbers that the errors of eq. 7 are means of


def betas(schedule: str, n: int) -> Tensor:
    """Return the noise variances of n steps: "linear" from 0.0001 to 0.02, or "cosine", which is gentler at the ends.

    >>> betas("linear", 2)
    tensor([0.0001, 0.0200], dtype=torch.float64)
    """
    if schedule == "linear":
        return torch.linspace(1e-4, 0.02, n, dtype=torch.float64)
    if schedule != "cosine":
        raise errors.unknown("betas", "schedule", schedule, ("cosine", "linear"))
    t = torch.arange(n + 1, dtype=torch.float64) / n
    kept = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square()
    return (1 - kept[1:] / kept[:-1]).clamp_max(0.999)


def noisy(x0: Tensor, epsilon: Tensor, kept: Tensor) -> Tensor:
    """Return x_t of eq. 1; ``kept`` is the alpha-bar of each sample (n,)."""
    kept = kept.reshape(-1, *(1,) * (x0.ndim - 1)).to(x0.dtype)
    return kept.sqrt() * x0 + (1 - kept).sqrt() * epsilon


class Levels(NamedTuple):
    """The noise levels of a diffusion, t = 0, ..., T - 1 for one to T steps of noise."""

    beta: Tensor
    kept: Tensor  # alpha-bar

    @classmethod
    def of(cls, schedule: str, n: int) -> Levels:
        """Return the levels of a schedule."""
        beta = betas(schedule, n)
        return cls(beta, torch.cumprod(1 - beta, 0))

    def before(self, t: int) -> float:
        """Return alpha-bar one step before level t; 1 before the first."""
        return float(self.kept[t - 1]) if t > 0 else 1.0

    def both(self, out: Tensor, x: Tensor, t: int, prediction: str) -> tuple[Tensor, Tensor]:
        """Return the predicted x0 and epsilon from the network's output at level t, eqs. 1 and 2."""
        a, b = math.sqrt(float(self.kept[t])), math.sqrt(1 - float(self.kept[t]))
        if prediction == "epsilon":
            return (x - b * out) / a, out
        x0 = out if prediction == "x0" else a * x - b * out
        return x0, (x - a * x0) / b

    def weight(self, t: int) -> float:
        """Return the factor of x0 in the mean of eq. 3."""
        return math.sqrt(self.before(t)) * float(self.beta[t]) / (1 - float(self.kept[t]))

    def posterior(self, x0: Tensor, x: Tensor, t: int) -> tuple[Tensor, float]:
        """Return mean and variance of eq. 3."""
        before, kept, beta = self.before(t), float(self.kept[t]), float(self.beta[t])
        mean = self.weight(t) * x0 + math.sqrt(1 - beta) * (1 - before) / (1 - kept) * x
        return mean, (1 - before) / (1 - kept) * beta

    def cost(self, squares: Tensor, t: int, error: Tensor) -> Tensor:
        """Return what level t > 0 takes from the bound, eq. 5, given squared errors of x0 and their usual size, eq. 7."""
        before, share = self.before(t), self.weight(t) ** 2
        least = (1 - before) / (1 - float(self.kept[t])) * float(self.beta[t])
        variance = least + share * error
        costs = torch.log(variance / least) - 1 + least / variance + share / variance * squares
        return 0.5 * costs.flatten(1).sum(1)

    def jump(self, x0: Tensor, epsilon: Tensor, t: int, s: int, eta: float, z: Tensor | None) -> Tensor:
        """Return x_s of eq. 4; s = -1 is no noise at all."""
        kept, to = float(self.kept[t]), float(self.kept[s]) if s >= 0 else 1.0
        sigma = eta * math.sqrt((1 - to) / (1 - kept) * (1 - kept / to))
        x = math.sqrt(to) * x0 + math.sqrt(max(1 - to - sigma**2, 0.0)) * epsilon
        return x if z is None or not sigma else x + sigma * z


class DDPM(Density, GenerativeModel):
    """Learn to draw samples like a table's rows or like images, by denoising diffusion.

    Use it where samples must look right; it is slower to draw from than a flow or a GAN.

    Parameters
    ----------
    n_steps : int, default=1000
        Levels of noise. More make the bound tighter; training costs the same.
    schedule : {"cosine", "linear"}, default="cosine"
        How the noise grows.
    prediction : {"v", "epsilon", "x0"}, default="v"
        What the network predicts; "v" is well scaled at every level.
    width : int, optional
        Units or first channels of the network; by default chosen from the data.
    n_layers : int, optional
        Blocks (tables) or halvings (images); by default chosen from the data.
    sampling_steps : int, default=50
        Steps of DDIM when drawing; more follow the model more closely.
    guidance : float, default=0.0
        Strength w of eq. 6 for conditional models; more makes samples more typical and less diverse.
    conditional : bool, default=False
        Whether labels y given to ``fit`` are conditioned on.
    training : Training, optional
        Settings of gradient descent; weights are averaged by default.
    random_state : int or RandomState, optional
        Seed for weights, order of samples, noise and draws.

    Attributes
    ----------
    module_ : torch.nn.Module
        The denoiser, called with noisy samples, levels and labels.
    sample_shape_ : tuple of int
        Shape of one sample.
    largest_ : float
        Bound on the numbers of a scaled sample; what the network sees beyond it is cut.
    errors_ : ndarray of shape (n_levels, 2, n_features)
        Mean squared error of every number of the predicted x0 on training data, at the levels that the bound is summed over,
        eq. 7: as predicted, and moved to the grid, eq. 9.
    history_ : list of dict
        Mean squared error of the prediction, of every epoch.
    n_iter_ : int
        Epochs run.

    Notes
    -----
    ``score_samples`` is the bound (5) on the log-density of the data as given, of steps with the variances (7), with some forty
    terms of the sum standing for their neighbours; of a conditional model given the labels that are passed. A step of drawing
    costs one pass through the network. ``complete`` draws what is missing of samples (in-painting).

    References
    ----------
    .. [1] J. Ho, A. Jain, P. Abbeel (2020). Denoising diffusion probabilistic models. NeurIPS. Eqs. (2)-(12).
    .. [2] J. Song, C. Meng, S. Ermon (2021). Denoising diffusion implicit models. ICLR. Eq. (12).
    .. [3] A. Nichol, P. Dhariwal (2021). Improved denoising diffusion probabilistic models. ICML. Eq. (17).
    .. [4] F. Bao, C. Li, J. Zhu, B. Zhang (2022). Analytic-DPM: an analytic estimate of the optimal reverse variance. ICLR.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import DDPM, Training
    >>> model = DDPM(training=Training(epochs=2), random_state=0).fit(load_iris().data)
    >>> model.sample(3).shape
    (3, 4)
    """

    _together = 512
    _fitted = {"largest_": Number(), "errors_": Array(None, 2, "n_features_in_", low=0)}
    _training_defaults = {
        "epochs": 200,
        "learning_rate": 1e-3,
        "batch_size": 128,
        "average": 0.995,
        "clip_norm": 1.0,
    }
    _parameter_constraints = {
        "n_steps": [Interval(Integral, 2, None, closed="left")],
        "schedule": [StrOptions({"cosine", "linear"})],
        "prediction": [StrOptions({"epsilon", "v", "x0"})],
        "width": [None, Interval(Integral, 8, None, closed="left")],
        "n_layers": [None, Interval(Integral, 1, None, closed="left")],
        "sampling_steps": [Interval(Integral, 1, None, closed="left")],
        "guidance": [Interval(Real, 0, None, closed="left")],
        "conditional": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_steps=1000,
        *,
        schedule="cosine",
        prediction="v",
        width=None,
        n_layers=None,
        sampling_steps=50,
        guidance=0.0,
        conditional=False,
        training=None,
        random_state=None,
    ):
        self.n_steps = n_steps
        self.schedule = schedule
        self.prediction = prediction
        self.width = width
        self.n_layers = n_layers
        self.sampling_steps = sampling_steps
        self.guidance = guidance
        self.conditional = conditional
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {
            "n_steps": 20,
            "width": 16,
            "n_layers": 1,
            "sampling_steps": 5,
            "training": Training(epochs=2),
        }

    # --- learning ----------------------------------------------------------------------------------------

    def _module(self) -> nn.Module:
        net = denoiser(tuple(self.sample_shape_), self.width, self.n_layers, self.n_classes_)
        return net.to(getattr(torch, self.dtype_))

    def _measure(self, data: Data) -> None:
        if self.sampling_steps > self.n_steps:
            must, do = (
                f"sampling_steps must be at most n_steps ({self.n_steps})",
                "Lower it, or raise n_steps.",
            )
            raise errors.value("DDPM", must, self.sampling_steps, do)
        x = self._scale(data.X, "signed" if data.X.ndim == 4 else "standard")
        self.largest_ = 1.0 if data.X.ndim == 4 else BEYOND * float(self._scaling.forward(x)[0].abs().max())

    def _scaled(self, x: Tensor, u: Tensor) -> Tensor:
        """Return scaled samples: pixels in the middle of the steps of their grid, columns anywhere in them."""
        return self._scaling.forward(x, 0.5 if x.ndim == 4 else u)[0]

    @property
    def _levels(self) -> Levels:
        return _levels(self.schedule, self.n_steps)

    def _objective(self, module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        x, label = batch.inputs[0], batch.target
        x0 = self._scaled(x, torch.rand_like(x))
        t = torch.randint(self.n_steps, (len(x),), device=x.device)
        epsilon, kept = torch.randn_like(x0), self._levels.kept.to(x.device)[t]
        if label is not None:  # the last label stands for none
            label = torch.where(torch.rand(len(x), device=x.device) < WITHOUT_LABEL, self.n_classes_, label)
        out = module(noisy(x0, epsilon, kept), t, label)
        return (out - self._target(x0, epsilon, kept)).square().mean(), {}

    def _target(self, x0: Tensor, epsilon: Tensor, kept: Tensor) -> Tensor:
        if self.prediction == "epsilon":
            return epsilon
        # eq. 2 is eq. 1 of other variables
        return x0 if self.prediction == "x0" else noisy(epsilon, -x0, kept)

    # --- drawing -----------------------------------------------------------------------------------------

    def _predict_noise(
        self, x: Tensor, t: int, label: Tensor | None, guided: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the predicted x0 and epsilon at level t, guided by eq. 6."""
        at = torch.full((1,), t, device=x.device)  # the same for all
        out = self.module_(x, at, label)
        if label is not None and guided and self.guidance:
            out = (1 + self.guidance) * out - self.guidance * self.module_(x, at, None)
        x0 = self._levels.both(out, x, t, self.prediction)[0].clamp(-self.largest_, self.largest_)
        kept = float(self._levels.kept[t])
        return x0, (x - math.sqrt(kept) * x0) / math.sqrt(1 - kept)

    def _times(self, steps: int) -> Iterator[tuple[int, int]]:
        """Yield the levels of the steps, from the noisiest down, each with the next; -1 ends it."""
        times = np.unique(np.linspace(0, self.n_steps - 1, steps).round().astype(int))[::-1].tolist()
        yield from zip(times, [*times[1:], -1])

    def sample(self, n_samples=1, label=None, *, steps=None, eta=0.0, ancestral=False):
        """Draw new samples, of one label or of n_samples labels if the model is conditional.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        label : label or array of labels, optional
            What they shall be; drawn evenly if not given.
        steps : int, optional
            Steps of eq. 4; ``sampling_steps`` by default.
        eta : float, default=0.0
            Noise that is added again in each step: 0 for none (DDIM), 1 for as much as in eq. 3.
        ancestral : bool, default=False
            Whether every level is visited by eq. 3 instead.
        """
        check_is_fitted(self)
        check_count(self, "n_samples", n_samples)
        steps = self._steps(steps)
        if not 0 <= eta <= 1:
            raise errors.value("DDPM", "eta must lie in [0, 1]", eta, "0 is DDIM, 1 is as noisy as eq. 3.")
        rng = self._rng()
        codes = self._codes(label, n_samples, rng)
        return self._sample(n_samples, rng, codes, steps=steps, eta=eta, ancestral=ancestral)

    def _steps(self, steps: int | None) -> int:
        steps = self.sampling_steps if steps is None else steps
        check_count(self, "steps", steps)
        if steps > self.n_steps:
            must = f"steps must lie between 1 and n_steps ({self.n_steps})"
            raise errors.value("DDPM", must, steps, "Fit with more n_steps, or take fewer.")
        return int(steps)

    def _passes(self, *, steps: int = 0, ancestral: bool = False, **how: Any) -> int:
        return self.n_steps if ancestral else steps or self.sampling_steps

    def _draw(
        self,
        n: int,
        labels: Tensor | None,
        rng: np.random.Generator,
        *,
        step: Callable[[], None],
        **how: Any,
    ) -> Tensor:
        how = {"steps": self.sampling_steps, "eta": 0.0, "ancestral": False, **how}
        return self._denoised(self._noise((n, *self.sample_shape_), rng), labels, rng, step=step, **how)

    def _denoised(
        self,
        x: Tensor,
        label: Tensor | None,
        rng: np.random.Generator,
        *,
        steps: int,
        eta: float,
        ancestral: bool,
        known: Any = None,
        step: Callable[[], None] = lambda: None,
    ) -> Tensor:
        """Return x without its noise; ``known`` is (mask, x0) of what is given, put in again at every level."""
        levels = self._levels
        for t, s in self._times(self.n_steps if ancestral else steps):
            x0, epsilon = self._predict_noise(x, t, label)
            z = self._noise(tuple(x.shape), rng) if (ancestral or eta) and s >= 0 else None
            if ancestral:
                x, variance = levels.posterior(x0, x, t)
                x = x if z is None else x + math.sqrt(variance) * z
            else:
                x = levels.jump(x0, epsilon, t, s, eta, z)
            if known is not None:
                mask, given = known
                kept = torch.full((len(x),), float(levels.kept[s]) if s >= 0 else 1.0, device=x.device)
                x = torch.where(mask, noisy(given, self._noise(tuple(x.shape), rng), kept), x)
            step()
        return x

    def complete(self, X, mask, *, label=None, steps=None):
        """Return samples whose entries under ``mask`` are kept and whose others are drawn to fit (in-painting).

        Images come back with pixels in [0, 1].

        Parameters
        ----------
        X : array-like of shape (n, ...)
            Samples; what stands where the mask is False does not matter.
        mask : array-like of bool, of the shape of X or of one sample
            True where an entry is known.
        label : label or array of labels, optional
            For conditional models.
        steps : int, optional
            As for ``sample``.
        """
        check_is_fitted(self)
        given, mask = self._known(X, mask)
        rng = self._rng()
        codes = self._codes(label, len(given), rng)
        how: dict[str, Any] = {"steps": self._steps(steps), "eta": 1.0, "ancestral": False}
        found = []
        with torch.inference_mode(), self._progress(len(given), how["steps"]) as step:
            for rows in self._parts(len(given)):
                z0 = self._scaling.forward(self._noise((0,), rng).new_tensor(given[rows]))[0]
                known = (torch.from_numpy(mask[rows].copy()).to(z0.device), z0)
                label = None if codes is None else codes[rows].to(z0.device)
                noise = self._noise(tuple(z0.shape), rng)
                z = self._denoised(noise, label, rng, known=known, step=step, **how)
                found.append(self._scaling.backward(z).cpu().numpy())
        x = np.concatenate(found)
        x = x.clip(0, 1) if x.ndim == 4 else x
        return as_given(X, np.where(mask, given, x).astype(given.dtype).reshape(np.shape(X)))

    # --- the bound ---------------------------------------------------------------------------------------

    def score_samples(self, X, y=None):
        """Return the bound (5) on the log-density of each sample, in nats.

        Of a conditional model it is the bound given the labels y, without guidance; without y that of the model without labels.
        """
        return as_given(X, finite(self, self._log_prob(self._query(X), y), log=True))

    def score(self, X, y=None):
        """Return the mean of :meth:`score_samples`; labels count if the model is conditional."""
        found = self._log_prob(self._query(X), y if self.conditional else None)
        return float(np.mean(found, dtype=np.float64))

    def _log_prob(self, X: np.ndarray, y: Any = None) -> np.ndarray:
        told = y is not None
        codes = self.classes_[0] if self.conditional and not told else y
        return self._mapped(
            X, lambda z, log_det, label: self._bound(z, label if told else None) + log_det, codes
        )

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)
        rows = np.random.default_rng(0).permutation(len(learner.batches))
        numbers = self.n_features_in_ * draws(self.n_features_in_)
        some = learner.batches.take(torch.from_numpy(rows[: max(64, MEASURED // numbers)]))
        like = next(self.module_.parameters())
        with torch.inference_mode():
            x = some.inputs[0].to(like)
            z = self._scaled(x, torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x))
            errors = [self._measured(z, guesses) for *_, guesses in self._guesses(z)]
        self.errors_ = np.stack(errors)

    def _measured(self, x0: Tensor, guesses: list[Tensor]) -> np.ndarray:
        """Return the squared errors of guesses, eq. 7, as they are and on the grid, eq. 9; without one twice the same."""
        plain = _usual(x0, guesses)
        moved = plain if x0.ndim != 4 else _usual(x0, self._nearby(guesses, plain))
        return torch.stack([plain, moved]).flatten(1).double().numpy(force=True)

    def _nearby(self, guesses: list[Tensor], error: Tensor) -> list[Tensor]:
        """Return guesses moved towards the grid, eq. 9."""
        return [self._scaling.nearby(guess, error) for guess in guesses]

    def _guesses(self, x0: Tensor, label: Tensor | None = None) -> Iterator[tuple[int, int, list[Tensor]]]:
        """Yield levels of noise, how many each stands for, and what the network takes for x0 there, for several noises."""
        count = draws(x0[0].numel())
        for begin, end in strata(self.n_steps):
            t = (begin + end - 1) // 2
            kept = self._levels.kept[t].expand(len(x0)).to(x0)
            seen = (noisy(x0, noise, kept) for noise in even_noise(count, x0, begin))
            yield t, end - begin, [self._predict_noise(x, t, label, guided=False)[0] for x in seen]

    def _bound(self, x0: Tensor, label: Tensor | None = None) -> Tensor:
        """Return eq. 5 for scaled samples; a term in the middle of some levels stands for all of them."""
        last = float(self._levels.kept[-1])
        total = -0.5 * (last * x0.square() - last - math.log(1 - last)).flatten(1).sum(1)
        cells = self._scaling.cells(x0) if x0.ndim == 4 else (x0, x0, torch.zeros_like(x0))
        errors = torch.tensor(self.errors_).to(x0).reshape(-1, 2, *x0.shape[1:])
        for (t, count, guesses), (plain, moved) in zip(self._guesses(x0, label), errors):
            if (moved < plain).any():
                pairs = zip(guesses, self._nearby(guesses, plain))
                guesses = [torch.where(moved < plain, near, guess) for guess, near in pairs]
            error = torch.minimum(plain, moved)
            if t:
                total = total - count * self._levels.cost(_squares(x0, guesses), t, error)
            else:
                logs = [log_cell(x0, guess, error.sqrt(), *cells) for guess in guesses]
                total = total + torch.stack(logs).mean(0).flatten(1).sum(1)
        return total

    def bits_per_dimension(self, X, y=None):
        """Return the bound in bits per dimension of each sample; data on a grid count as discrete."""
        return self._scaling.bits(np.asarray(self._log_prob(self._query(X), y)), self.n_features_in_)


@lru_cache(maxsize=8)
def _levels(schedule: str, n: int) -> Levels:
    with torch.inference_mode(False):
        return Levels.of(schedule, n)


def _squares(x0: Tensor, guesses: list[Tensor]) -> Tensor:
    """Return the squared errors of every number of every sample, mean over the guesses."""
    return torch.stack([(x0 - guess).square() for guess in guesses]).mean(0)


def _usual(x0: Tensor, guesses: list[Tensor]) -> Tensor:
    """Return the mean squared error of every number, eq. 7."""
    squares = _squares(x0, guesses).double()
    return ((squares.sum(0) + squares.mean()) / (len(squares) + 1)).clamp_min(TINY)
