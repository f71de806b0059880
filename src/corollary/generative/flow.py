r"""Normalising flows: exact densities by invertible networks.

Data are mapped to independent standard normal numbers by layers with a known log-determinant
(:mod:`corollary.nn.flows`), and the log-likelihood

.. math:: \log p(x) = \sum_i \log \mathcal N(f(x)_i; 0, 1) + \log |\det \partial f / \partial x| \tag{1}

is maximised; what is drawn is :math:`f^{-1}(z)`. Columns of tables that lie on a grid are
brought to normal shape by their histograms, others are standardised, and all are made uncorrelated; pixels are brought to normal
shape by their histograms too, or pass a logit if they lie on no grid of at most 256 levels; grids are dequantised, and the
Jacobians of all that are part of (1): densities are of the data as given. The descent so begins at the columns' own
distributions, on a table with all correlations, and what it finds is better than that, or it stops there.

Log-scales are bounded in every layer and weights decay, and a part of the data is held out to say when to stop: a likelihood
has no upper bound, and a flow that is free to stretch puts spikes on the training data.

On images the coupling layers alternate checkerboards at each scale with channel masks after a squeeze, and at each squeeze
half of the channels leave for the end (multi-scale): they need no further layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary.base import Data, Transformer
from corollary.engine.batches import Batch
from corollary.engine.training import Training
from corollary.generative.common import ExactDensity, GenerativeModel
from corollary.nn.flows import (
    MADE,
    AffineCoupling,
    Chain,
    MaskedAutoregressive,
    Planar,
    QRLinear,
    Reorder,
    Reverse,
    SplitCoupling,
    Squeeze,
)
from corollary.nn.mlp import MLP
from corollary.validation import as_given, check_sizes

__all__ = ["Flow", "FlowModule", "MultiScale", "log_standard_normal"]

LOG_2PI = math.log(2 * math.pi)
SLOPE = 1.5  # bound on the log-scales of a layer


def log_standard_normal(z: Tensor) -> Tensor:
    """Return the sum over coordinates of log N(z; 0, 1), (n, ...) -> (n,)."""
    return -0.5 * (z.square() + LOG_2PI).flatten(1).sum(1)


class Conditioned(nn.Module):
    """A network of (x, context): features of the context are appended to x, as columns or as constant channels."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the network's output."""
        if context is None:
            return self.net(x)
        shape = (*context.shape, *(1,) * (x.ndim - 2))
        return self.net(torch.cat([x, context.reshape(shape).expand(-1, -1, *x.shape[2:])], 1))


def _convolutions(n_in: int, n_out: int, width: int) -> nn.Module:
    last = nn.Conv2d(width, n_out, 3, padding=1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)  # type: ignore[arg-type]
    return Conditioned(
        nn.Sequential(
            nn.Conv2d(n_in, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 1), nn.ReLU(), last
        )
    )


def _perceptron(n_in: int, n_out: int, hidden: tuple[int, ...]) -> nn.Module:
    net = MLP((n_in, *hidden, n_out))
    nn.init.zeros_(net[-1].weight)  # type: ignore[arg-type]
    nn.init.zeros_(net[-1].bias)  # type: ignore[arg-type]
    return Conditioned(net)


class MultiScale(nn.Module):
    """Layers at the present scale, a squeeze, layers again; half of the channels leave, the rest goes on deeper."""

    def __init__(self, layers: nn.Module, deeper: nn.Module | None) -> None:
        super().__init__()
        self.layers = layers
        self.deeper = deeper

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return z, of the shape that the squeezes give, and the log-determinant."""
        z, log_det = self.layers(x, context)
        if self.deeper is None:
            return z, log_det
        leaving, going = z.chunk(2, 1)
        going, more = self.deeper(going, context)
        return torch.cat([leaving.flatten(1), going.flatten(1)], 1).reshape(z.shape), log_det + more

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return x."""
        if self.deeper is not None:
            half = z[0].numel() // 2
            flat, shape = z.flatten(1), (len(z), z.shape[1] // 2, *z.shape[2:])
            going = flat[:, half:]
            going = self.deeper.inverse(going.reshape(self._deep_shape(shape)), context)  # type: ignore[operator]
            z = torch.cat([flat[:, :half].reshape(shape), going.reshape(shape)], 1)
        return self.layers.inverse(z, context)  # type: ignore[operator]

    def _deep_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        n, c, h, w = shape
        return n, 4 * c, h // 2, w // 2


class FlowModule(nn.Module):
    """Layers that can be inverted, and an embedding of labels for them."""

    def __init__(self, layers: nn.Module, n_classes: int) -> None:
        super().__init__()
        self.layers = layers
        self.n_classes = n_classes

    def context(self, label: Tensor | None, like: Tensor) -> Tensor | None:
        """Return labels as indicators."""
        if label is None:
            return None
        return nn.functional.one_hot(label, self.n_classes).to(like)

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the log-density of scaled samples, eq. 1."""
        z, log_det = self.layers(x, self.context(label, x))
        return log_standard_normal(z) + log_det


class Flow(Transformer, ExactDensity, GenerativeModel):
    """Learn an exact density of a table or of images by a normalising flow, an invertible network.

    Use it where a density is needed that can be evaluated, and drawn from, exactly.

    Parameters
    ----------
    kind : {"coupling", "autoregressive", "planar", "linear"}, default="coupling"
        "coupling" (RealNVP) is fast both ways; "autoregressive" (MAF) has the best densities of tables, and draws one
        coordinate at a time; "planar" bends along one direction a layer; "linear" is a Gaussian with a full covariance.
    n_layers : int, optional
        Layers; on images, at each scale. More can bend more, and cost more. By default chosen from the data.
    hidden_layer_sizes : sequence of int, optional
        Hidden widths of the networks inside the layers; images take the first as their channels. By default chosen from
        the data.
    conditional : bool, default=False
        Whether labels y given to ``fit`` are conditioned on.
    training : Training, optional
        Settings of gradient descent. By default a tenth of the data, if there are at least 50 samples, is held out for
        early stopping.
    random_state : int or RandomState, optional
        Seed for weights, order of samples, noise and draws.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network.
    sample_shape_ : tuple of int
        Shape of one sample.
    classes_ : ndarray
        The labels, if conditional.
    scaling_ : dict
        How data are dequantised and scaled.
    history_ : list of dict
        Loss (negative log-density in nats, in the scaled space) of every epoch, ``validation_loss`` on what is held out.
    n_iter_ : int
        Epochs run.

    Notes
    -----
    Maximises eq. (1) of the module. ``score_samples`` is exact; for data on a grid it is the density of the dequantised
    data, and ``bits_per_dimension`` what to report. ``transform`` maps to the base space, ``inverse_transform`` back.

    References
    ----------
    .. [1] L. Dinh, J. Sohl-Dickstein, S. Bengio (2017). Density estimation using Real NVP. ICLR. Eqs. (3)-(8).
    .. [2] G. Papamakarios, T. Pavlakou, I. Murray (2017). Masked autoregressive flow for density estimation. NeurIPS.
    .. [3] D. Rezende, S. Mohamed (2015). Variational inference with normalizing flows. ICML. Eq. (10).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import Flow, Training
    >>> X = load_iris().data
    >>> flow = Flow("linear", training=Training(epochs=5), random_state=0).fit(X)
    >>> flow.score_samples(X).shape, flow.sample(3).shape
    ((150,), (3, 4))
    """

    _training_defaults = {
        "epochs": 200,
        "learning_rate": 1e-3,
        "batch_size": 128,
        "clip_norm": 10.0,
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "early_stopping": True,
    }
    _parameter_constraints = {
        "kind": [StrOptions({"autoregressive", "coupling", "linear", "planar"})],
        "n_layers": [None, Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": [None, "array-like"],
        "conditional": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kind="coupling",
        *,
        n_layers=None,
        hidden_layer_sizes=None,
        conditional=False,
        training=None,
        random_state=None,
    ):
        self.kind = kind
        self.n_layers = n_layers
        self.hidden_layer_sizes = hidden_layer_sizes
        self.conditional = conditional
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_layers": 2, "hidden_layer_sizes": (8,), "training": Training(epochs=2)}

    # --- the network -------------------------------------------------------------------------------------

    def _module(self) -> FlowModule:
        layers = self._image_layers() if len(self.sample_shape_) == 3 else Chain(self._row_layers())
        return FlowModule(layers, self.n_classes_).to(getattr(torch, self.dtype_))

    def _hidden(self) -> tuple[int, ...]:
        sizes = tuple(self.hidden_layer_sizes)
        images = len(self.sample_shape_) == 3 and self.kind == "coupling"
        check_sizes(self, sizes, least=1 if images else 0)
        return tuple(int(width) for width in sizes)

    def _sizes(self) -> tuple[int, tuple[int, ...]]:
        """Return the number of layers and the hidden widths, by numbers of samples and coordinates where not given."""
        images = len(self.sample_shape_) == 3 and self.kind == "coupling"
        n_layers = self.n_layers or (4 if images or self.n_features_in_ > 16 else 6)
        if self.hidden_layer_sizes is not None:
            return n_layers, self._hidden()
        if images:
            return n_layers, (32 if self.n_samples_ < 20_000 else 64,)
        width = 64 if self.n_samples_ < 2_000 else 128 if self.n_samples_ < 20_000 else 256
        # an autoregressive network has hidden units of its own for every coordinate
        units = 4 if self.kind == "autoregressive" else 1
        return n_layers, (min(1024, max(width, units * self.n_features_in_)),) * 2

    def _row_layers(self) -> list[nn.Module]:
        d, (n_layers, hidden) = self.n_features_in_, self._sizes()
        if self.kind == "linear":
            return [QRLinear(d, context=self.n_classes_)]
        if self.kind == "planar":
            return [layer for _ in range(n_layers) for layer in (Planar(d), QRLinear(d, 2, self.n_classes_))]
        if self.kind == "autoregressive" or d == 1:
            pairs = (
                (MaskedAutoregressive(MADE(d, hidden, self.n_classes_), SLOPE), Reverse())
                for _ in range(n_layers)
            )
            return [layer for pair in pairs for layer in pair]
        half = (d + 1) // 2  # columns of even number, which then lie side by side
        layers: list[nn.Module] = [Reorder((torch.arange(d) % 2).argsort(stable=True))]
        for i in range(n_layers):
            n_in, n_out = (half, d - half) if i % 2 else (d - half, half)
            net = _perceptron(n_in + self.n_classes_, 2 * n_out, hidden)
            layers.append(SplitCoupling(half, net, "first" if i % 2 else "second", SLOPE))
        return layers

    def _image_layers(self) -> nn.Module:
        if self.kind != "coupling":
            return _Flattened(Chain(self._row_layers()))
        c, h, w = self.sample_shape_
        return self._scale_layers(c, h, w)

    def _scale_layers(self, c: int, h: int, w: int) -> nn.Module:
        n_layers, (width, *_) = self._sizes()
        board = ((torch.arange(h)[:, None] + torch.arange(w)) % 2).float()[None]
        layers: list[nn.Module] = [
            AffineCoupling(
                board if i % 2 else 1 - board, _convolutions(c + self.n_classes_, 2 * c, width), SLOPE
            )
            for i in range(n_layers)
        ]
        if h % 2 or w % 2 or min(h, w) < 4:
            return Chain(layers)
        layers.append(Squeeze())
        layers += [
            SplitCoupling(
                2 * c,
                _convolutions(2 * c + self.n_classes_, 4 * c, width),
                "first" if i % 2 else "second",
                SLOPE,
            )
            for i in range(n_layers)
        ]
        h, w = h // 2, w // 2
        deeper = None if min(h, w) < 4 or h % 2 or w % 2 else self._scale_layers(2 * c, h, w)
        return MultiScale(Chain(layers), deeper)

    # --- learning ----------------------------------------------------------------------------------------

    def _measure(self, data: Data) -> None:
        self._scale(data.X, kind="shaped" if data.X.ndim == 4 else "white")

    def _objective(self, module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        x = batch.inputs[0]
        z, _ = self._scaling.forward(x, torch.rand_like(x))
        return -module(z, batch.target).mean(), {}

    # --- density, codes, samples -------------------------------------------------------------------------

    def _log_density(self, z: Tensor, label: Tensor | None) -> Tensor:
        found: Tensor = self.module_(z, label)
        return found

    def transform(self, X, y=None):
        """Return the points (n, d) of the base space for samples, given their labels if the model is conditional."""
        return as_given(X, self._transform(self._query(X), y))

    def _transform(self, X: np.ndarray, y: Any = None) -> np.ndarray:
        def codes(z: Tensor, log_det: Tensor, label: Tensor | None) -> Tensor:
            return self.module_.layers(z, self.module_.context(label, z))[0].flatten(1)

        return self._mapped(X, codes, y)

    def inverse_transform(self, Z, y=None):
        """Return the samples that points (n, d) of the base space stand for; not on a grid, so that nothing is lost."""
        check_is_fitted(self)
        Z = self._points(Z, "points", self.n_features_in_)
        like = next(self.module_.parameters())
        z = torch.from_numpy(Z).to(device=like.device, dtype=like.dtype)
        with torch.inference_mode():
            x = self._invert(z, self._codes(y, len(Z)))
            return self._scaling.backward(x, on_grid=False).cpu().numpy()

    def _invert(self, z: Tensor, label: Tensor | None) -> Tensor:
        shape = self.module_.layers(z.new_zeros(1, *self.sample_shape_), self._blank(label, z))[0].shape[1:]
        x = self.module_.layers.inverse(z.reshape(-1, *shape), self.module_.context(label, z))
        return x.reshape(-1, *self.sample_shape_)

    def _blank(self, label: Tensor | None, like: Tensor) -> Tensor | None:
        return None if label is None else like.new_zeros(1, self.n_classes_)

    def _draw(
        self,
        n: int,
        labels: Tensor | None,
        rng: np.random.Generator,
        *,
        step: Callable[[], None],
        **how: Any,
    ) -> Tensor:
        found = self._invert(self._noise((n, self.n_features_in_), rng), labels)
        step()
        return found

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_


class _Flattened(nn.Module):
    """Layers for rows, given images: pixels in reading order."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.layers(x.flatten(1), context)  # type: ignore[no-any-return]

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        return self.layers.inverse(z, context)  # type: ignore[no-any-return, operator]
