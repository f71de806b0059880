r"""Score models: the gradient of the log-density of data, at every level of noise.

The score :math:`\nabla \log p` needs no normalising constant. With noise of deviation :math:`\sigma` the density is
:math:`p_\sigma = p * \mathcal N(0, \sigma^2 I)`, and a network :math:`s(x, \sigma)` is trained to be its score by one of

.. math::
    \text{implicit:}\quad & \mathbb E_{p_\sigma} \big[ \tfrac12 \lVert s \rVert^2 + \operatorname{tr} \nabla s \big], \tag{1} \\
    \text{sliced:}\quad & \mathbb E_{p_\sigma} \mathbb E_v \big[ \tfrac12 \lVert s \rVert^2 + v^\top \nabla s\, v \big],
    \quad \mathbb E\, v v^\top = I, \tag{2} \\
    \text{denoising:}\quad & \mathbb E_{p} \mathbb E_\epsilon
    \tfrac12 \lVert s(x + \sigma \epsilon, \sigma) + \epsilon / \sigma \rVert^2, \tag{3}

which differ from :math:`\tfrac12 \mathbb E \lVert s - \nabla \log p_\sigma \rVert^2` by constants. The score is written
with a denoiser, :math:`s = (D - x) / \sigma^2`, :math:`D = (x + \sigma \sqrt{1 + \sigma^2}\, F) / (1 + \sigma^2)` (4),
which is exact for standard normal data where the network
:math:`F` is zero. Samples are drawn by the reverse equation or the probability-flow equation of :mod:`corollary.generative.sde`,
or by *annealed Langevin* steps :math:`x \leftarrow x + \tfrac{\alpha}{2} s(x, \sigma) + \sqrt{\alpha}\, z`,
:math:`\alpha \propto \sigma^2` (5), while the noise falls. Likelihoods follow the probability-flow equation from data to noise.
In :math:`y = x / \sqrt{1 + \sigma^2}` it is, whichever way the noise grows,

.. math:: \frac{dy}{d\sigma} = -\frac{F(y, \sigma)}{1 + \sigma^2}, \tag{6}

whose paths bend only where the data are not normal, so that few steps are enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary import errors
from corollary.base import Data
from corollary.engine.batches import Batch
from corollary.engine.training import Training
from corollary.generative.bound import fingerprints, own_signs
from corollary.generative.common import ExactDensity, GenerativeModel
from corollary.generative.denoisers import denoiser
from corollary.generative.sde import SDE, VE, VP, integrate, reverse
from corollary.validation import as_given, check_count

__all__ = ["ScoreModel", "ScoreNetwork", "divergence", "score_loss"]

KINDS: dict[str, type[SDE]] = {"ve": VE, "vp": VP}
EXACT = 64  # features up to which the implicit loss is computed
FEW = 16  # features up to which the trace of a likelihood is exact
SLICES = 2  # directions that stand for the trace of more features, others in every pass and for each sample
FEWEST = 8  # steps of a likelihood
CLOCK = 100.0  # the logarithm of sigma is told to the network as a time from 0 to this
LANGEVIN = (0.2, 5)  # alpha over sigma squared, and steps at each level, of eq. 5


class ScoreNetwork(nn.Module):
    """The score of data with noise, eq. 4, by a network of noisy samples and the level."""

    def __init__(self, net: nn.Module, low: float, high: float) -> None:
        super().__init__()
        self.net, self.low, self.high = net, low, high

    def forward(self, x: Tensor, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the score of eq. 4, (D - x) / sigma^2; sigma is (n,), or (1,) for all."""
        wide = _wide(sigma, x)
        spread = (1 + wide.square()).sqrt()
        return self.bend(x / spread, sigma, label) / (wide * spread) - x / spread.square()

    def bend(self, y: Tensor, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Return F of eqs. 4 and 6 for y = x / sqrt(1 + sigma^2)."""
        F: Tensor = self.net(y, CLOCK * torch.log(sigma / self.low) / math.log(self.high / self.low), label)
        return F


def _wide(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *(1,) * (like.ndim - 1))


def divergence(s: Tensor, x: Tensor, directions: Any = None, learns: bool = True) -> Tensor:
    """Return the trace of the Jacobian of s with respect to x of each sample, exactly, or by directions (k, ...) or (k, n, ...).

    ``s`` must have been computed from x with gradients; ``learns`` says whether the trace itself shall have some.
    """
    d = x[0].numel()
    exact = directions is None
    if exact:
        directions = torch.eye(d, dtype=x.dtype, device=x.device).reshape(d, *x.shape[1:])
    total = x.new_zeros(len(x))
    for v in directions:
        (slope,) = torch.autograd.grad((s * v).sum(), x, retain_graph=True, create_graph=learns)
        total = total + (slope * v).flatten(1).sum(1)
    return total if exact else total / len(directions)


def score_loss(network: Any, x0: Tensor, sigma: Tensor, label: Tensor | None, matching: str) -> Tensor:
    """Return the loss of each sample, eqs. 1 to 3, over the number of features, with noise drawn.

    Levels are weighted by sigma^2, and in eq. 3 by sigma^2 (1 + sigma^2), which makes it the squared error of F in eq. 4.
    """
    epsilon = torch.randn_like(x0)
    wide = _wide(sigma, x0)
    x = x0 + wide * epsilon
    if matching == "denoising":
        error = wide * network(x, sigma, label) + epsilon
        return 0.5 * ((1 + wide.square()) * error.square()).flatten(1).mean(1)
    with torch.enable_grad():
        x = x.requires_grad_(True)
        s = network(x, sigma, label)
        directions = None if matching == "implicit" else torch.randint_like(x0[None], 2) * 2 - 1
        trace = divergence(s, x, directions)
    return sigma.square() * (0.5 * s.square().flatten(1).sum(1) + trace) / x0[0].numel()


class ScoreModel(ExactDensity, GenerativeModel):
    """Train a score-based diffusion model of a table or of images: the gradient of the log-density at every noise level.

    Use it where the score itself is wanted (``score_field``), or samples and likelihoods of one model.

    Parameters
    ----------
    matching : {"denoising", "sliced", "implicit"}, default="denoising"
        What is minimised, eqs. 1 to 3. "implicit" takes a pass for every feature, at most 64.
    sde : {"ve", "vp"}, default="ve"
        How the noise grows when samples are drawn. The likelihood is the same for both.
    min_noise, max_noise : float, default=0.02 and 20.0
        Least and largest noise, in standard deviations of the data. The density is that of data with the least.
    sampling_steps : int, default=100
        Steps of drawing; the likelihood takes half as many passes. More are more exact.
    width : int, optional
        Units or first channels of the network; by default chosen from the data.
    n_layers : int, optional
        Blocks (tables) or halvings (images); by default chosen from the data.
    conditional : bool, default=False
        Whether labels y given to ``fit`` are conditioned on.
    training : Training, optional
        Settings of gradient descent; weights are averaged by default.
    random_state : int or RandomState, optional
        Seed for weights, order of samples, noise and draws.

    Attributes
    ----------
    module_ : torch.nn.Module
        The score of scaled samples, called with noisy samples, noise and labels.
    sample_shape_ : tuple of int
        Shape of one sample.
    history_ : list of dict
        Loss of every epoch.
    n_iter_ : int
        Epochs run.

    Notes
    -----
    ``score_samples`` integrates the probability-flow equation (6); the default steps are within about 0.01 bits per feature of
    very many. With more than 16 features its divergence is estimated, without bias, along two random directions, others in
    every pass but always the same ones.

    References
    ----------
    .. [1] A. Hyvärinen (2005). Estimation of non-normalized statistical models by score matching. JMLR 6. Theorem 1.
    .. [2] Y. Song, S. Garg, J. Shi, S. Ermon (2019). Sliced score matching. UAI. Eq. (8).
    .. [3] P. Vincent (2011). A connection between score matching and denoising autoencoders. Neural Computation 23.
    .. [4] Y. Song et al. (2021). Score-based generative modeling through stochastic differential equations. ICLR.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import ScoreModel, Training
    >>> X = load_iris().data
    >>> model = ScoreModel(training=Training(epochs=2), random_state=0).fit(X)
    >>> model.score_field(X).shape, model.sample(3).shape
    ((150, 4), (3, 4))
    """

    _together = 512
    _training_defaults = {
        "epochs": 200,
        "learning_rate": 1e-3,
        "batch_size": 128,
        "average": 0.995,
        "clip_norm": 1.0,
    }
    _parameter_constraints = {
        "matching": [StrOptions({"denoising", "implicit", "sliced"})],
        "sde": [StrOptions({"ve", "vp"})],
        "min_noise": [Interval(Real, 0, None, closed="neither")],
        "max_noise": [Interval(Real, 0, None, closed="neither")],
        "sampling_steps": [Interval(Integral, 2, None, closed="left")],
        "width": [None, Interval(Integral, 8, None, closed="left")],
        "n_layers": [None, Interval(Integral, 1, None, closed="left")],
        "conditional": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        matching="denoising",
        *,
        sde="ve",
        min_noise=0.02,
        max_noise=20.0,
        sampling_steps=100,
        width=None,
        n_layers=None,
        conditional=False,
        training=None,
        random_state=None,
    ):
        self.matching = matching
        self.sde = sde
        self.min_noise = min_noise
        self.max_noise = max_noise
        self.sampling_steps = sampling_steps
        self.width = width
        self.n_layers = n_layers
        self.conditional = conditional
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 16, "n_layers": 1, "sampling_steps": 5, "training": Training(epochs=2)}

    # --- learning ----------------------------------------------------------------------------------------

    def _module(self) -> ScoreNetwork:
        net = denoiser(tuple(self.sample_shape_), self.width, self.n_layers, self.n_classes_)
        return ScoreNetwork(net, self.min_noise, self.max_noise).to(getattr(torch, self.dtype_))

    def _measure(self, data: Data) -> None:
        if self.min_noise >= self.max_noise:
            must = "min_noise must be below max_noise"
            raise errors.value("ScoreModel", must, f"{self.min_noise:g} and {self.max_noise:g}")
        if self.matching == "implicit" and self.n_features_in_ > EXACT:
            must, do = f"matching='implicit' takes at most {EXACT} features", "Use 'sliced' or 'denoising'."
            raise errors.value("ScoreModel", must, self.n_features_in_, do)
        self._scale(data.X)

    def _objective(self, module: nn.Module, batch: Batch) -> Tensor:
        x = batch.inputs[0]
        x0, _ = self._scaling.forward(x, torch.rand_like(x))
        u = torch.rand(len(x), dtype=x0.dtype, device=x0.device)
        sigma = self.min_noise * (self.max_noise / self.min_noise) ** u
        return score_loss(module, x0, sigma, batch.target, self.matching).mean()

    # --- scores ------------------------------------------------------------------------------------------

    def _score(self, x: Tensor, sigma: float, label: Tensor | None) -> Tensor:
        out: Tensor = self.module_(x, x.new_full((1,), sigma), label)
        return out

    def score_field(self, X, noise=0.0, y=None):
        """Return the gradient of the log-density at each sample, of the shape of X.

        Parameters
        ----------
        X : array-like of shape (n, ...)
            Samples.
        noise : float, default=0.0
            Standard deviation of the noise in the density, in standard deviations of the data; 0 stands for ``min_noise``.
        y : label or array of labels, optional
            For conditional models.
        """
        given = self._query(X)
        sigma = float(noise) or self.min_noise
        if not self.min_noise <= sigma <= self.max_noise:
            must = f"noise must be 0 or lie between min_noise ({self.min_noise:g}) and max_noise ({self.max_noise:g})"
            raise errors.value("ScoreModel", must, noise)

        def field(z: Tensor, log_det: Tensor, label: Tensor | None) -> Tensor:
            return self._score(z, sigma, label) / self._scaling.tensors(z)[3]

        return as_given(X, self._mapped(given, field, y).reshape(np.shape(X)))

    # --- likelihood --------------------------------------------------------------------------------------

    @property
    def _sde(self) -> SDE:
        return KINDS[self.sde](self.min_noise, self.max_noise)

    def _flow(self, x: Tensor, t: float, label: Tensor | None) -> Tensor:
        """Return dx/dt of the probability-flow equation; the score of x_t is that of x_t / a, over a."""
        sde = self._sde
        a = sde.scale(t)
        return sde.drift(t) * x - 0.5 * sde.diffusion(t) / a * self._score(x / a, sde.sigma(t), label)

    def _log_density(self, z: Tensor, label: Tensor | None) -> Tensor:
        """Return the log-density of data with the least noise, by eq. 6 over the logarithm of sigma."""
        d, rows, passes = z[0].numel(), fingerprints(z), count()

        def flow(y: Tensor, total: Tensor, log_sigma: float) -> tuple[Tensor, Tensor]:
            sigma = math.exp(log_sigma)
            with torch.inference_mode(False), torch.enable_grad():
                y = y.clone().requires_grad_(True)
                bend = self.module_.bend(y, y.new_full((1,), sigma), None if label is None else label.clone())
                slope = -sigma / (1 + sigma**2) * bend
                some = None if d <= FEW else own_signs(SLICES, rows, y, next(passes))
                growth = divergence(slope, y, some, learns=False)
            return slope.detach(), growth.detach()

        ends = math.log(self.min_noise), math.log(self.max_noise)
        steps = max(FEWEST, self.sampling_steps // 8)  # of four passes each
        places = np.linspace(*ends, steps + 1).tolist()
        least = 0.5 * math.log1p(self.min_noise**2)
        y, growth = integrate(flow, (z * math.exp(-least), z.new_zeros(len(z))), places)
        return growth - 0.5 * (y.square() + math.log(2 * math.pi)).flatten(1).sum(1) - d * least

    # --- drawing -----------------------------------------------------------------------------------------

    def sample(self, n_samples=1, label=None, *, method="sde", steps=None):
        """Draw new samples, of one label or of n_samples labels if the model is conditional.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        label : label or array of labels, optional
            What they shall be; drawn evenly if not given.
        method : {"sde", "ode", "langevin"}, default="sde"
            The reverse equation, the probability-flow equation, or annealed Langevin steps, eq. 5.
        steps : int, optional
            Steps, or noise levels of Langevin's; ``sampling_steps`` by default.
        """
        check_is_fitted(self)
        check_count(self, "n_samples", n_samples)
        if method not in ("langevin", "ode", "sde"):
            raise errors.unknown("ScoreModel", "method", str(method), ("langevin", "ode", "sde"))
        steps = self.sampling_steps if steps is None else steps
        check_count(self, "steps", steps, 2)
        rng = self._rng()
        codes = self._codes(label, n_samples, rng)
        return self._sample(n_samples, rng, codes, method=method, steps=int(steps))

    def _passes(self, *, method: str = "sde", steps: int = 0, **how: Any) -> int:
        steps = steps or self.sampling_steps
        return {"sde": 1, "ode": 4, "langevin": LANGEVIN[1]}[method] * steps

    def _draw(
        self,
        n: int,
        labels: Tensor | None,
        rng: np.random.Generator,
        *,
        step: Callable[[], None],
        method: str = "sde",
        steps: int = 0,
    ) -> Tensor:
        steps, shape = steps or self.sampling_steps, (n, *self.sample_shape_)
        if method == "langevin":
            return self._langevin(shape, labels, rng, steps, step)
        sde = self._sde
        times = sde.times(steps)
        x = sde.top(times[-1]) * self._noise(shape, rng)
        if method == "ode":

            def flow(x: Tensor, t: float) -> tuple[Tensor, ...]:
                step()
                return (self._flow(x, t, labels),)

            (x,) = integrate(flow, (x,), times[::-1])
        else:

            def score(x: Tensor, t: float) -> Tensor:
                step()
                a = sde.scale(t)
                return self._score(x / a, sde.sigma(t), labels) / a

            x = reverse(sde, score, x, times, lambda: self._noise(shape, rng))
        return self._denoised(x / sde.scale(times[0]), labels)

    def _langevin(
        self,
        shape: tuple[int, ...],
        label: Tensor | None,
        rng: np.random.Generator,
        steps: int,
        step: Callable[[], None],
    ) -> Tensor:
        share, repeats = LANGEVIN
        x = math.sqrt(1 + self.max_noise**2) * self._noise(shape, rng)
        for sigma in np.geomspace(self.max_noise, self.min_noise, steps).tolist():
            alpha = share * sigma**2
            for _ in range(repeats):
                x = x + alpha / 2 * self._score(x, sigma, label) + math.sqrt(alpha) * self._noise(shape, rng)
                step()
        return self._denoised(x, label)

    def _denoised(self, x: Tensor, label: Tensor | None) -> Tensor:
        """Return D of eq. 4: the last noise taken away."""
        return x + self.min_noise**2 * self._score(x, self.min_noise, label)
