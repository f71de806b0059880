r"""Autoencoders: a short code from which the data can be reconstructed.

.. math:: z = f(x), \qquad \hat x = g(z), \qquad \min\; \tfrac12 \operatorname{E} \lVert x - g(f(x)) \rVert^2. \tag{1}

With linear :math:`f(x) = W x` and :math:`g(z) = V z` of centred data the gradients are

.. math:: \nabla_W = V^\top (V W - I)\, x x^\top, \qquad \nabla_V = (V W - I)\, x x^\top W^\top, \tag{2}

and every minimum has for :math:`V W` the projection onto the first principal
components: the subspace is PCA's, while :math:`V, W` are known up to an invertible matrix only. A denoising
autoencoder rebuilds :math:`x` from :math:`x + \varepsilon`.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary import errors
from corollary.base import Data, Transformer, as_tensor
from corollary.engine.batches import TensorBatches
from corollary.engine.objective import Supervised
from corollary.export import Named
from corollary.gradient import GradientTrained
from corollary.nn.activations import ACTIVATIONS, ALIASES
from corollary.nn.mlp import MLP
from corollary.shapes import Array, Dtype, Number

__all__ = ["Autoencoder", "LinearAutoencoder"]


class Linear(nn.Module):
    """The linear autoencoder of eq. 2; tied weights have V = Wᵀ."""

    def __init__(self, d: int, q: int, tied: bool) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.randn(q, d) / d**0.5)
        self.V = None if tied else nn.Parameter(torch.randn(d, q) / d**0.5)

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes (n, q)."""
        return x @ self.W.T

    def decode(self, z: Tensor) -> Tensor:
        """Return the reconstructions (n, d) of codes."""
        return z @ (self.W if self.V is None else self.V.T)

    def forward(self, x: Tensor) -> Tensor:
        """Return the reconstructed rows."""
        return self.decode(self.encode(x))


class Pair(nn.Module):
    """An encoder and a decoder with mirrored layers; while training the input is noisy."""

    def __init__(self, d: int, hidden: tuple[int, ...], q: int, activation: str, noise: float) -> None:
        super().__init__()
        self.encode = MLP((d, *hidden, q), activation)
        self.decode = MLP((q, *hidden[::-1], d), activation)
        self.noise = noise

    def forward(self, x: Tensor) -> Tensor:
        """Return the reconstructed rows."""
        if self.training and self.noise:
            x = x + self.noise * torch.randn_like(x)
        return self.decode(self.encode(x))


def rebuilding_error(module: nn.Module, x: Tensor) -> Tensor:
    """Return half the mean squared distance of eq. 1, per feature."""
    return distances(module(x), x).mean()


def distances(rebuilt: Tensor, x: Tensor) -> Tensor:
    """Return half the squared distance of each row, per feature."""
    return 0.5 * (x - rebuilt).square().mean(1)


class _BaseAutoencoder(Transformer, ClassNamePrefixFeaturesOutMixin, GradientTrained):
    _checks: ClassVar[dict[str, Any]] = {"ensure_min_samples": 2}
    _fitted = {"_dtype": Dtype(), "mean_": Array("n_features_in_"), "scale_": Number()}

    def _measure(self, data: Data) -> None:
        X = data.X
        if self.latent > X.shape[1]:
            raise errors.value(
                type(self).__name__,
                f"latent must be at most n_features = {X.shape[1]}",
                self.latent,
            )
        self._dtype = str(X.dtype)
        self.mean_ = X.mean(axis=0, dtype=np.float64).astype(X.dtype)
        self.scale_ = float(X.std(dtype=np.float64, axis=0).max()) or 1.0

    def _aim(self) -> Any:
        return Supervised(distances)

    def _batches(self, data: Data) -> TensorBatches:
        X = data.X.astype(self.mean_.dtype, copy=False)
        rows = as_tensor((X - self.mean_) / X.dtype.type(self.scale_))
        return TensorBatches(rows, rows)  # what regularisers do to inputs leaves the targets as they are

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        mean = as_tensor(self.mean_).to(next(self.module_.parameters()))
        return lambda x: self.module_.encode((x - mean) / self.scale_), Named("code"), {}

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return self._forward((X - self.mean_) / X.dtype.type(self.scale_), self.module_.encode).astype(
            X.dtype
        )

    def _inverse_transform(self, Z: np.ndarray) -> np.ndarray:
        return (self._forward(Z, self.module_.decode) * self.scale_ + self.mean_).astype(self.mean_.dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.latent)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LinearAutoencoder(_BaseAutoencoder):
    """Train a linear autoencoder: the principal subspace by gradient descent on encoder and decoder matrices.

    For the components themselves use :class:`~corollary.linear.pca.PCA`; this shows that, and how fast, descent on
    the reconstruction error gets there.

    Parameters
    ----------
    latent : int, default=2
        Length of the code; longer reconstructs better.
    tied : bool, default=False
        Whether the decoder is the encoder transposed.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights and the order of samples.

    Attributes
    ----------
    module_ : torch.nn.Module
        Encoder and decoder, of centred and scaled data.
    components_ : ndarray of shape (latent, n_features_in_)
        An orthonormal basis of what the decoder can reach.
    mean_, scale_ : ndarray of shape (n_features_in_,) and float
        How data are centred and scaled.
    n_iter_ : int
        Epochs.

    Notes
    -----
    Minimises (1) over matrices. An epoch costs O(n d q). There are saddle points, one for every
    other choice of q components, but no local minima besides the principal subspace. The notes' 004 swaps the
    gradients of (2) (erratum E32), and says that the rank of V W is that of its factors: it is at most that (E33).

    References
    ----------
    .. [1] P. Baldi, K. Hornik (1989). Neural networks and principal component analysis. Neural Networks 2, 53-58.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import LinearAutoencoder
    >>> X, _ = load_iris(return_X_y=True)
    >>> LinearAutoencoder(2, random_state=0).fit_transform(X).shape
    (150, 2)
    """

    _training_defaults = {"epochs": 300, "learning_rate": 0.01, "batch_size": 32, "schedule": "cosine"}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "latent": [Interval(Integral, 1, None, closed="left")],
        "tied": ["boolean"],
        "random_state": ["random_state"],
    }
    _fitted = {"components_": Array("latent", "n_features_in_")}

    def __init__(self, latent=2, *, tied=False, training=None, random_state=None):
        self.latent = latent
        self.tied = tied
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        from corollary.engine.training import Training

        return {"latent": 2, "training": Training(epochs=5)}

    def _module(self) -> Linear:
        return Linear(self.n_features_in_, self.latent, self.tied).to(getattr(torch, self._dtype))

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)
        V = self.module_.W.T if self.tied else self.module_.V
        self.components_ = np.linalg.qr(V.detach().numpy(force=True))[0].T.copy()


class Autoencoder(_BaseAutoencoder):
    """Train an autoencoder: a network that compresses rows to a short code and reconstructs them, also from noisy rows.

    Parameters
    ----------
    latent : int, default=2
        Length of the code; longer reconstructs better.
    hidden_layer_sizes : sequence of int, default=(128,)
        Widths of the encoder's hidden layers; the decoder has them in reverse. Wider fit more.
    activation : str, default="gelu"
        One of ``corollary.nn.activations.ACTIVATIONS``.
    noise : float, default=0.0
        Standard deviation of noise on the scaled input while training (a denoising autoencoder).
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, the order of samples and noise.

    Attributes
    ----------
    module_ : torch.nn.Module
        With ``encode`` and ``decode``, of centred and scaled data.
    mean_, scale_ : ndarray of shape (n_features_in_,) and float
        How data are centred and scaled.
    n_iter_ : int
        Epochs.

    Notes
    -----
    Minimises (1). An epoch costs O(n * number of weights).

    References
    ----------
    .. [1] G. Hinton, R. Salakhutdinov (2006). Reducing the dimensionality of data with neural networks. Science 313.
    .. [2] P. Vincent et al. (2008). Extracting and composing robust features with denoising autoencoders. ICML.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import Autoencoder, Training
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = Autoencoder(2, training=Training(epochs=20), random_state=0).fit(X)
    >>> model.inverse_transform(model.transform(X)).shape
    (150, 4)
    """

    _training_defaults = {"epochs": 100, "learning_rate": 2e-3, "batch_size": 128, "schedule": "cosine"}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "latent": [Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions({*ACTIVATIONS, *ALIASES})],
        "noise": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        latent=2,
        *,
        hidden_layer_sizes=(128,),
        activation="gelu",
        noise=0.0,
        training=None,
        random_state=None,
    ):
        self.latent = latent
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.noise = noise
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        from corollary.engine.training import Training

        return {"latent": 2, "hidden_layer_sizes": (8,), "training": Training(epochs=5)}

    def _module(self) -> Pair:
        hidden = tuple(np.atleast_1d(self.hidden_layer_sizes).tolist())
        module = Pair(self.n_features_in_, hidden, self.latent, self.activation, self.noise)
        return module.to(getattr(torch, self._dtype))
