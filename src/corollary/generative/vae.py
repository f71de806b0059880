r"""The variational autoencoder.

A latent code :math:`z \sim \mathcal N(0, I_k)` is decoded to :math:`p_\theta(x \mid z)`; an encoder
approximates the posterior by :math:`q_\phi(z \mid x) = \mathcal N(\mu(x), \mathrm{diag}\,\sigma^2(x))`.
For every encoder the evidence lower bound

.. math::
    \mathcal L(x) = \mathbb E_{q}[\log p_\theta(x \mid z)] - \beta\, D_{KL}(q_\phi(z \mid x) \,\|\, p(z))
    \le \log p_\theta(x) \quad (\beta = 1) \tag{1}

is maximised. The divergence is known in closed form,

.. math::
    D_{KL} = \tfrac12 \textstyle\sum_j \big(\mu_j^2 + \sigma_j^2 - 1 - \log \sigma_j^2\big), \tag{2}

and the expectation is estimated with one reparametrised draw, :math:`z = \mu + \sigma \odot \epsilon`,
:math:`\epsilon \sim \mathcal N(0, I)` (3), through which gradients pass. The likelihood itself is
estimated by importance weighting,

.. math::
    \log p_\theta(x) \ge \mathbb E \log \tfrac1K \textstyle\sum_{i \le K}
    \dfrac{p_\theta(x \mid z_i)\, p(z_i)}{q_\phi(z_i \mid x)}, \tag{4}

a bound that tightens as :math:`K` grows. The decoder's distribution is Bernoulli, Gaussian with one noise variance, or for
images of many grey levels a logistic distribution around each pixel, cut into levels (:mod:`corollary.generative.pixelcnn`,
eq. 3). At the start of training the divergence is cheap to remove, and codes die that would be needed later; so its weight
:math:`\beta` rises from zero over the first epochs. With a linear encoder and decoder and Gaussian noise of one
variance the optimum of (1) is probabilistic PCA, and the bound is attained.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary.base import Data, Density, Transformer, as_tensor
from corollary.data.sources import Source
from corollary.engine.batches import Batch
from corollary.engine.sources import batches_of
from corollary.engine.training import Training
from corollary.errors import value
from corollary.export import Named
from corollary.generative.adversaries import Grown, image_sizes
from corollary.generative.common import GenerativeModel
from corollary.generative.pixelcnn import levels_in, logistic_mixture
from corollary.linear.pca_solvers import moments
from corollary.nn.activations import ACTIVATIONS, ALIASES
from corollary.nn.mlp import MLP
from corollary.shapes import Array, Count, Maybe, Number, Text
from corollary.validation import check_count, check_sizes, to_numpy

__all__ = ["VAE", "elbo", "gaussian_kl"]

CHUNK = 16384  # rows times draws scored at once
ACTIVE = 0.01  # variance over the data from which a code counts as used


def gaussian_kl(mean: Tensor, log_var: Tensor) -> Tensor:
    """Return the divergence from N(0, I), eq. 2: (n, k), (n, k) -> (n,)."""
    return 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1)


def reparametrise(mean: Tensor, log_var: Tensor) -> Tensor:
    """Return codes that depend smoothly on the encoder's output, eq. 3: (n, k)."""
    return mean + (0.5 * log_var).exp() * torch.randn_like(mean)


def log_normal(x: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """Return the log-density of independent Gaussians, summed over the last axis."""
    return -0.5 * (math.log(2 * math.pi) + log_var + (x - mean).square() / log_var.exp()).sum(-1)


def common_unit(X: Any) -> tuple[np.ndarray, float]:
    """Return a centre for each column and one unit for all, in which the numbers of a table are of order 1.

    The unit is the power of two next to the columns' common deviation, the centres are multiples of it: standardised columns
    stay as they are to the last bit, and (1) changes by a constant.
    """
    mean, total = moments(X)
    unit = 2.0 ** round(math.log2(total / len(mean)) / 2) if total > 0 else 1.0
    return (mean.double() / unit).round().mul(unit).numpy(), unit


class Encoded(nn.Sequential):
    """Numbers from images (n, d) in a row: convolutions that halve the sides, then a linear layer."""

    def __init__(self, shape: tuple[int, ...], n_out: int, width: int, depth: int) -> None:
        c, h, w = shape
        widths = [c, *(width * 2**i for i in range(depth + 1))]
        layers: list[nn.Module] = [nn.Unflatten(1, shape)]
        for i, (a, b) in enumerate(zip(widths, widths[1:])):
            layers += [nn.Conv2d(a, b, 3, 2 if i else 1, 1), nn.SiLU()]
        n_in = widths[-1] * -(-h // 2**depth) * -(-w // 2**depth)
        super().__init__(*layers, nn.Flatten(), nn.Linear(n_in, n_out))


class Decoded(nn.Module):
    """Images in a row from codes: (..., k) -> (..., d)."""

    def __init__(self, n_in: int, shape: tuple[int, ...], width: int, depth: int) -> None:
        super().__init__()
        self.grown = Grown(n_in, shape, width, depth)

    def forward(self, z: Tensor) -> Tensor:
        """Return the images."""
        return self.grown(z.flatten(0, -2)).flatten(1).unflatten(0, z.shape[:-1])  # type: ignore[no-any-return]


class VAEModule(nn.Module):
    """Encoder, decoder and, where the likelihood has one, the logarithm of its noise: variance, or logistic scales.

    The networks of a Gaussian likelihood see the columns centred and in one common unit, and their answers are brought back.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        likelihood: str,
        noise: float | None,
        levels: tuple[int, int] | None = None,
        warms: bool = False,
        centre: np.ndarray | float = 0.0,
        unit: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.likelihood = likelihood
        self.levels = levels
        if warms:
            self.register_buffer("updates", torch.zeros(()))
        self.unit = unit
        self.register_buffer("centre", torch.as_tensor(centre), persistent=False)
        if likelihood == "gaussian":
            log_var = torch.tensor(2 * math.log(noise or unit))
            self.log_noise = nn.Parameter(log_var, requires_grad=noise is None)
        elif likelihood == "logistic":
            self.log_noise = nn.Parameter(torch.full((levels[1],), -2.0))  # type: ignore[index]

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of the posterior, each (n, k)."""
        mean, log_var = self.encoder((x - self.centre) / self.unit).chunk(2, dim=1)
        return mean, log_var

    def decode(self, z: Tensor) -> Tensor:
        """Return what the decoder makes of codes, in the unit of the data: (..., k) -> (..., d)."""
        return self.decoder(z) * self.unit + self.centre  # type: ignore[no-any-return]

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """Return log p(x | z), summed over features: (n, d), (..., n, k) -> (..., n)."""
        out = self.decode(z)
        if self.likelihood == "bernoulli":
            return -F.binary_cross_entropy_with_logits(out, x.expand_as(out), reduction="none").sum(-1)
        if self.likelihood == "logistic":
            levels = self.levels[0]  # type: ignore[index]
            codes = (x * (levels - 1)).round().long().expand(out.shape)
            numbers = torch.stack([torch.zeros_like(out), out, self.log_noise.expand_as(out)], -1)
            return logistic_mixture(numbers, codes, levels).sum(-1)
        return log_normal(x, out, self.log_noise.expand_as(out))

    def mean(self, z: Tensor) -> Tensor:
        """Return the mean of p(x | z)."""
        out = self.decode(z)
        if self.likelihood == "logistic":
            return ((out + 1) / 2).clamp(0, 1)
        return out.sigmoid() if self.likelihood == "bernoulli" else out

    def forward(self, x: Tensor, codes: bool = False) -> tuple[Tensor, ...]:
        """Return reconstruction term and divergence of the bound, each (n,), with one draw; and the means if ``codes``."""
        mean, log_var = self.encode(x)
        z = reparametrise(mean, log_var)
        found = self.log_likelihood(x, z), gaussian_kl(mean, log_var)
        return (*found, mean) if codes else found


def elbo(module: nn.Module, x: Tensor, beta: float = 1.0) -> Tensor:
    """Return a one-draw estimate of the bound of eq. 1 for each row."""
    reconstruction, divergence = module(x)
    return reconstruction - beta * divergence


def importance_log_prob(module: VAEModule, x: Tensor, noise: Tensor) -> Tensor:
    """Return the bound of eq. 4 for each row, from standard normal noise of shape (K, 1 or n, k)."""
    mean, log_var = module.encode(x)
    z = mean + (0.5 * log_var).exp() * noise
    joint = module.log_likelihood(x, z) + log_normal(z, torch.zeros_like(z), torch.zeros_like(z))
    return torch.logsumexp(joint - log_normal(z, mean, log_var), 0) - math.log(len(noise))


class VAE(Transformer, Density, GenerativeModel):
    """Train a variational autoencoder: an encoder, a decoder and a lower bound on the likelihood (ELBO).

    Use it to compress, to sample new data, and to see a data set as a map of codes.

    Parameters
    ----------
    latent : int, default=16
        Dimension of the code. More keep more detail, and leave more of it unused.
    hidden_layer_sizes : sequence of int, default=(256,)
        Widths of the encoder's hidden layers for tables; the decoder mirrors them. ``()`` makes both linear. Images are
        encoded by convolutions.
    width : int, optional
        Channels of the convolutions at full resolution; by default chosen from the data.
    activation : str, default="relu"
        One of ``corollary.nn.activations.ACTIVATIONS``.
    likelihood : {"auto", "gaussian", "bernoulli", "logistic"}, default="auto"
        What is decoded. For tables "auto" takes "bernoulli" if all values lie in [0, 1], otherwise "gaussian" with one learned
        noise variance; for images "bernoulli" if they are black and white, otherwise "logistic", a probability of grey levels.
    noise : float, optional
        Standard deviation of the Gaussian noise, if it shall not be learned.
    beta : float, default=1.0
        Weight of the divergence. Larger makes codes closer to independent, and reconstructions worse.
    warmup : int, default=10
        Epochs over which that weight rises from zero, so that codes do not die early; at most a third of all epochs.
    importance_samples : int, default=64
        Draws per row for ``score_samples``. More tighten the bound.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for weights, order of samples, and draws.

    Attributes
    ----------
    module_ : torch.nn.Module
        Encoder and decoder.
    likelihood_ : str
        "gaussian", "bernoulli" or "logistic".
    levels_ : int
        Grey levels, for "logistic".
    centre_ : ndarray of shape (n_features,)
        What the networks see as zero in each column of a table, for "gaussian".
    unit_ : float
        What they see as one in all columns.
    history_ : list of dict
        Loss (negative bound, nats per sample), reconstruction term and divergence of every epoch, and ``active``, how many
        codes vary over a batch.
    n_iter_ : int
        Epochs run.

    Notes
    -----
    ``score_samples`` is the importance-weighted bound (4), a lower estimate of the log-likelihood. ``interpolate`` and
    ``traverse`` show what codes stand for. ``sample`` gives the decoder's mean for drawn codes, with noise if "gaussian": of
    images the expected grey, not a level.
    A Gaussian likelihood has one noise for all columns, so one with large numbers (incomes beside ages) outweighs the others:
    standardise the columns where each counts as much.
    An epoch costs O(n * number of weights).

    References
    ----------
    .. [1] D. P. Kingma, M. Welling (2014). Auto-encoding variational Bayes. ICLR. Eq. (10).
    .. [2] Y. Burda, R. Grosse, R. Salakhutdinov (2016). Importance weighted autoencoders. ICLR. Eq. (8).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import VAE, Training
    >>> X = load_digits().data / 16
    >>> vae = VAE(2, training=Training(epochs=2), random_state=0).fit(X)
    >>> vae.transform(X).shape, vae.sample(3).shape
    ((1797, 2), (3, 64))
    """

    _training_defaults = {"epochs": 60, "learning_rate": 1e-3, "batch_size": 128}
    _reads_sources = True
    _parameter_constraints = {
        "latent": [Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": ["array-like"],
        "activation": [StrOptions({*ACTIVATIONS, *ALIASES})],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "likelihood": [StrOptions({"auto", "gaussian", "bernoulli", "logistic"})],
        "noise": [None, Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, None, closed="left")],
        "warmup": [Interval(Integral, 0, None, closed="left")],
        "importance_samples": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "likelihood_": Text(),
        "levels_": Maybe(Count(2, 257)),
        "centre_": Array("n_features_in_"),
        "unit_": Number(),
    }

    def __init__(
        self,
        latent=16,
        *,
        hidden_layer_sizes=(256,),
        width=None,
        activation="relu",
        likelihood="auto",
        noise=None,
        beta=1.0,
        warmup=10,
        importance_samples=64,
        training=None,
        random_state=None,
    ):
        self.latent = latent
        self.hidden_layer_sizes = hidden_layer_sizes
        self.width = width
        self.activation = activation
        self.likelihood = likelihood
        self.noise = noise
        self.beta = beta
        self.warmup = warmup
        self.importance_samples = importance_samples
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {
            "latent": 2,
            "hidden_layer_sizes": (8,),
            "training": Training(epochs=2),
            "importance_samples": 4,
        }

    def _module(self) -> VAEModule:
        d, k, hidden = self.n_features_in_, self.latent, tuple(self.hidden_layer_sizes)
        check_sizes(self, hidden)
        shape = tuple(self.sample_shape_)
        if len(shape) == 3:
            sizes = image_sizes(shape, self.width, None)
            encoder: nn.Module = Encoded(shape, 2 * k, *sizes)
            decoder: nn.Module = Decoded(k, shape, *sizes)
        else:
            encoder = MLP((d, *hidden, 2 * k), self.activation)
            decoder = MLP((k, *reversed(hidden), d), self.activation)
        levels = (self.levels_, d) if self.likelihood_ == "logistic" else None
        likelihood = (self.likelihood_, self.noise, levels)
        module = VAEModule(encoder, decoder, *likelihood, bool(self.warmup), self.centre_, self.unit_)
        return module.to(getattr(torch, self.dtype_))

    def _measure(self, data: Data) -> None:
        low, high = data.X.bounds() if isinstance(data.X, Source) else (data.X.min(), data.X.max())
        unit, images = low >= 0 and high <= 1, len(self.sample_shape_) == 3
        levels = levels_in(data.X) if unit and not isinstance(data.X, Source) else 256
        self.likelihood_ = self.likelihood
        if self.likelihood == "auto":
            grey = "logistic" if images and levels > 2 else "bernoulli"
            self.likelihood_ = grey if unit else "gaussian"
        if self.likelihood_ != "gaussian" and not unit:
            got, do = f"minimum {low:g}, maximum {high:g}", "Scale X, or use 'gaussian'."
            raise value("VAE", f"likelihood={self.likelihood_!r} needs data in [0, 1]", got, do)
        if self.likelihood_ == "logistic":
            self.levels_ = levels
        plain = images or self.likelihood_ != "gaussian"
        self.centre_, self.unit_ = (np.zeros(self.n_features_in_), 1.0) if plain else common_unit(data.X)
        self.dtype_ = "float32" if images else str(data.X.dtype)

    def _aim(self) -> Any:
        return self._objective

    def _batches(self, data: Data) -> Any:
        return batches_of(data.X.astype(self.dtype_, copy=False))

    def _objective(self, module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        reconstruction, divergence, mean = module(batch.inputs[0].flatten(1), codes=True)
        loss = (self._weight(module, batch) * divergence - reconstruction).mean()
        active = (mean.detach().var(0, correction=0) > ACTIVE).sum()
        return loss, {
            "reconstruction": -reconstruction.mean(),
            "divergence": divergence.mean(),
            "active": active.to(loss.dtype),
        }

    def _weight(self, module: Any, batch: Batch) -> float | Tensor:
        """Return the weight of the divergence, which rises while training goes on for its first epochs."""
        if not (self.warmup and module.training):
            return self.beta
        updates = getattr(module, "module", module).updates
        updates += 1
        plan = self._plan()
        epochs = min(self.warmup, plan.epochs / 3)
        length = max(1.0, epochs * self.n_samples_ / plan.batch_size)
        return self.beta * (updates / length).clamp_max(1.0)  # type: ignore[no-any-return]

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        return lambda x: self.module_.encode(x.flatten(1))[0], Named("code"), {}

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return self._forward(X, lambda x: self.module_.encode(x.flatten(1))[0])

    def inverse_transform(self, Z):
        """Return the mean of the data that each code decodes to: (n, latent) -> (n, n_features), or images."""
        check_is_fitted(self)
        Z = self._points(Z, "codes", self.latent)
        return self._forward(Z, self.module_.mean).reshape(-1, *self.sample_shape_)

    def reconstruct(self, X):
        """Return each row encoded and decoded again."""
        return self.inverse_transform(self.transform(X))

    def active_units(self, X):
        """Return which codes are used (latent,): their means vary over the data, with a variance of more than 0.01."""
        return np.asarray(self._transform(self._query(X))).var(0) > ACTIVE

    def interpolate(self, a, b, n=8):
        """Return n samples on the way from a to b, decoded from the straight line between their codes."""
        check_count(self, "n", n)
        ends = [self._code(end, name) for end, name in ((a, "a"), (b, "b"))]
        share = np.linspace(0, 1, n)[:, None]
        return self.inverse_transform((1 - share) * ends[0] + share * ends[1])

    def traverse(self, x, unit, n=8, span=3.0):
        """Return n samples like x whose code number ``unit`` goes from -span to span (latent traversal)."""
        check_count(self, "n", n)
        if not isinstance(unit, int | np.integer) or not 0 <= unit < self.latent:
            raise value("VAE", f"unit must lie between 0 and {self.latent - 1}", unit)
        Z = np.repeat(self._code(x, "x")[None], n, axis=0)
        Z[:, unit] = np.linspace(-span, span, n)
        return self.inverse_transform(Z)

    def _code(self, x: Any, name: str) -> np.ndarray:
        """Return the code (latent,) of one sample: a row, an image, or a row of a frame."""
        check_is_fitted(self)
        x = x.to_frame().T.infer_objects() if hasattr(x, "to_frame") else x
        given = x if hasattr(x, "columns") else np.asarray(to_numpy(x))[None]
        images = len(self.sample_shape_) == 3
        if len(given) != 1 or np.ndim(given) not in ((3, 4) if images else (2,)):
            must = f"{name} must be one {'image' if images else 'row'} like those of fit"
            raise value("VAE", must, f"shape {np.shape(x)}", "Pass X[i].")
        return np.asarray(self.transform(given))[0]

    def _log_prob(self, X: np.ndarray) -> np.ndarray:
        # Every row sees the same draws, so that its score does not depend on its neighbours.
        rng = np.random.default_rng(0) if self.random_state is None else self._rng()
        noise = as_tensor(rng.standard_normal((self.importance_samples, 1, self.latent)).astype(self.dtype_))
        rows = CHUNK if len(self.sample_shape_) == 1 else CHUNK // 8
        chunk = max(1, rows // self.importance_samples)
        return self._forward(
            X, lambda x: importance_log_prob(self.module_, x.flatten(1), noise.to(x.device)), chunk
        )

    def bits_per_dimension(self, X):
        """Return the importance-weighted bound in bits per dimension of each sample; of a density if "gaussian"."""
        return -np.asarray(self.score_samples(X)) / (self.n_features_in_ * math.log(2))

    def _sample(self, n: int, rng: np.random.Generator, codes: Any = None, **how: Any) -> np.ndarray:
        z = rng.standard_normal((n, self.latent))
        x = self._forward(z, self.module_.mean)
        if self.likelihood_ == "gaussian":
            scale = math.exp(0.5 * float(self.module_.log_noise.detach()))
            x = x + scale * rng.standard_normal(x.shape).astype(x.dtype)
        return x.reshape(-1, *self.sample_shape_)

    @property
    def _n_features_out(self) -> int:
        return self.latent
