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

a bound that tightens as :math:`K` grows. With a linear encoder and decoder and Gaussian noise of one
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
from torch import Tensor, nn

from corollary.base import Data, Density, Generator, Transformer, as_tensor
from corollary.data.sources import Source
from corollary.engine.batches import Batch
from corollary.engine.sources import batches_of
from corollary.engine.training import Training
from corollary.errors import value
from corollary.export import Named
from corollary.gradient import GradientTrained
from corollary.nn.activations import ACTIVATIONS, ALIASES
from corollary.nn.mlp import MLP
from corollary.shapes import Dtype, Text

__all__ = ["VAE", "elbo", "gaussian_kl"]

CHUNK = 16384  # rows times draws scored at once


def gaussian_kl(mean: Tensor, log_var: Tensor) -> Tensor:
    """Return the divergence from N(0, I), eq. 2: (n, k), (n, k) -> (n,)."""
    return 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1)


def reparametrise(mean: Tensor, log_var: Tensor) -> Tensor:
    """Return codes that depend smoothly on the encoder's output, eq. 3: (n, k)."""
    return mean + (0.5 * log_var).exp() * torch.randn_like(mean)


def log_normal(x: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """Return the log-density of independent Gaussians, summed over the last axis."""
    return -0.5 * (math.log(2 * math.pi) + log_var + (x - mean).square() / log_var.exp()).sum(-1)


class VAEModule(nn.Module):
    """Encoder, decoder and, for Gaussian data, the log-variance of its noise."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, likelihood: str, noise: float | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.likelihood = likelihood
        if likelihood == "gaussian":
            log_var = torch.tensor(math.log(noise**2) if noise else 0.0)
            self.log_noise = nn.Parameter(log_var, requires_grad=noise is None)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of the posterior, each (n, k)."""
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        return mean, log_var

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """Return log p(x | z), summed over features: (n, d), (..., n, k) -> (..., n)."""
        out = self.decoder(z)
        if self.likelihood == "bernoulli":
            return -F.binary_cross_entropy_with_logits(out, x.expand_as(out), reduction="none").sum(-1)
        return log_normal(x, out, self.log_noise.expand_as(out))

    def mean(self, z: Tensor) -> Tensor:
        """Return the mean of p(x | z)."""
        out = self.decoder(z)
        return out.sigmoid() if self.likelihood == "bernoulli" else out

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return reconstruction term and divergence of the bound, each (n,), with one draw."""
        mean, log_var = self.encode(x)
        z = reparametrise(mean, log_var)
        return self.log_likelihood(x, z), gaussian_kl(mean, log_var)


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


class VAE(Transformer, Density, Generator, GradientTrained):
    """Learn a latent-variable model of data, with an encoder, a decoder and a bound on the likelihood.

    Use it to compress, to sample new data, and to see a data set as a map of codes.

    Parameters
    ----------
    latent : int, default=16
        Dimension of the code. More keep more detail, and leave more of it unused.
    hidden_layer_sizes : sequence of int, default=(256,)
        Widths of the encoder's hidden layers; the decoder mirrors them. ``()`` makes both linear.
    activation : str, default="relu"
        One of ``corollary.nn.activations.ACTIVATIONS``.
    likelihood : {"auto", "gaussian", "bernoulli"}, default="auto"
        What is decoded: "bernoulli" for data in [0, 1] (such as images), which is what "auto" takes
        if all values lie there, otherwise "gaussian" with one learned noise variance.
    noise : float, optional
        Standard deviation of the Gaussian noise, if it shall not be learned.
    beta : float, default=1.0
        Weight of the divergence. Larger makes codes closer to independent, and reconstructions worse.
    importance_samples : int, default=64
        Draws per row for ``score_samples``. More tighten the bound.
    training : Training, optional
        How to descend.
    random_state : int or RandomState, optional
        Seed for weights, order of samples, and draws.

    Attributes
    ----------
    module_ : torch.nn.Module
        Encoder and decoder.
    likelihood_ : str
        "gaussian" or "bernoulli".
    history_ : list of dict
        Loss (negative bound, nats per sample), reconstruction term and divergence of every epoch.
    n_iter_ : int
        Epochs run.

    Notes
    -----
    ``score_samples`` is the importance-weighted bound (4), a lower estimate of the log-likelihood.
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
        "likelihood": [StrOptions({"auto", "gaussian", "bernoulli"})],
        "noise": [None, Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, None, closed="left")],
        "importance_samples": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {"likelihood_": Text(), "dtype_": Dtype()}

    def __init__(
        self,
        latent=16,
        *,
        hidden_layer_sizes=(256,),
        activation="relu",
        likelihood="auto",
        noise=None,
        beta=1.0,
        importance_samples=64,
        training=None,
        random_state=None,
    ):
        self.latent = latent
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.likelihood = likelihood
        self.noise = noise
        self.beta = beta
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
        encoder = MLP((d, *hidden, 2 * k), self.activation)
        decoder = MLP((k, *reversed(hidden), d), self.activation)
        return VAEModule(encoder, decoder, self.likelihood_, self.noise).to(getattr(torch, self.dtype_))

    def _measure(self, data: Data) -> None:
        low, high = data.X.bounds() if isinstance(data.X, Source) else (data.X.min(), data.X.max())
        unit = low >= 0 and high <= 1
        self.likelihood_ = (
            ("bernoulli" if unit else "gaussian") if self.likelihood == "auto" else self.likelihood
        )
        if self.likelihood_ == "bernoulli" and not unit:
            got = f"minimum {low:g}, maximum {high:g}"
            raise value(
                "VAE", "likelihood='bernoulli' needs data in [0, 1]", got, "Scale X, or use 'gaussian'."
            )
        self.dtype_ = str(data.X.dtype)

    def _aim(self) -> Any:
        return self._objective

    def _batches(self, data: Data) -> Any:
        return batches_of(data.X.astype(self.dtype_, copy=False))

    def _objective(self, module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        reconstruction, divergence = module(*batch.inputs)
        loss = (self.beta * divergence - reconstruction).mean()
        return loss, {"reconstruction": -reconstruction.mean(), "divergence": divergence.mean()}

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        return lambda x: self.module_.encode(x)[0], Named("code"), {}

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return self._forward(X, lambda x: self.module_.encode(x)[0])

    def inverse_transform(self, Z):
        """Return the mean of the data that each code decodes to: (n, latent) -> (n, n_features)."""
        Z = np.asarray(Z)
        if Z.ndim != 2 or Z.shape[1] != self.latent:
            raise value("VAE", f"codes must have shape (n, {self.latent})", f"shape {Z.shape}")
        return self._forward(Z, self.module_.mean)

    def reconstruct(self, X):
        """Return each row encoded and decoded again."""
        return self.inverse_transform(self.transform(X))

    def _log_prob(self, X: np.ndarray) -> np.ndarray:
        # Every row sees the same draws, so that its score does not depend on its neighbours.
        rng = np.random.default_rng(0) if self.random_state is None else self._rng()
        noise = as_tensor(rng.standard_normal((self.importance_samples, 1, self.latent)).astype(self.dtype_))
        chunk = max(1, CHUNK // self.importance_samples)
        return self._forward(X, lambda x: importance_log_prob(self.module_, x, noise.to(x.device)), chunk)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((n, self.latent))
        x = self._forward(z, self.module_.mean)
        if self.likelihood_ == "gaussian":
            scale = math.exp(0.5 * float(self.module_.log_noise.detach()))
            x = x + scale * rng.standard_normal(x.shape).astype(x.dtype)
        return x

    @property
    def _n_features_out(self) -> int:
        return self.latent
