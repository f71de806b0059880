r"""PointNet: classification and part segmentation of point clouds.

A small network looks at a whole cloud and turns it, :math:`x_i \mapsto x_i T(X)` (1), points by a d x d matrix and features
by a larger one that is kept near a rotation by

.. math:: \mathcal L_{\mathrm{reg}} = \lVert I - T T^\top \rVert_F^2. \tag{2}

Between, every point goes through the same layers; the maximum over the points, feature by feature, describes
the cloud (3). Its class is read from that; the part of a point from its own features beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data
from corollary.engine.ragged import Ragged, RaggedBatches, padding_mask
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.gradient import GradientClassifier, GradientTagger
from corollary.losses import CrossEntropy
from corollary.nn.deep_sets import set_pool
from corollary.nn.normalisation import BatchNorm1d
from corollary.sequences.common import in_batches
from corollary.sets.common import BaseSets

__all__ = ["PointNet", "PointNetSegmenter", "PointNetwork", "TNet"]

POINTS = 2**14  # points predicted at a time


class PointNorm(BatchNorm1d):
    """Batch normalisation over the points of all clouds (b, m, width), or over clouds (b, width); padding does not count."""

    def forward(self, x: Tensor, inside: Tensor | None = None) -> Tensor:
        """Return the normalised features; ``inside`` (b, m) says which points are there."""
        if self.training and inside is not None:
            out = torch.zeros_like(x)
            out[inside] = super().forward(x[inside])
            return out
        return super().forward(x.reshape(-1, x.shape[-1])).view_as(x)


class Shared(nn.Module):
    """The same layers for every point."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:]))
        self.norms = nn.ModuleList(PointNorm(width) for width in widths[1:])

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the features of the points; padding beyond ``lengths`` (b,) is not normalised with them."""
        inside = None if lengths is None else padding_mask(lengths, x.shape[1], x.device)
        for layer, norm in zip(self.layers, self.norms):
            x = torch.relu(norm(layer(x), inside))
        return x


class TNet(nn.Module):
    """The matrix (b, d, d) by which a cloud (b, m, d) is turned; the identity at first."""

    def __init__(self, dimension: int, width: int) -> None:
        super().__init__()
        self.dimension = dimension
        self.points = Shared((dimension, width, 2 * width, 4 * width))
        self.cloud = Shared((4 * width, 2 * width, width))
        self.matrix = nn.Linear(width, dimension * dimension)
        nn.init.zeros_(self.matrix.weight)
        nn.init.zeros_(self.matrix.bias)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return T of eq. 1."""
        h = self.cloud(set_pool(self.points(x, lengths), lengths, "max"))
        T = self.matrix(h).view(-1, self.dimension, self.dimension)
        return T + torch.eye(self.dimension, dtype=T.dtype, device=T.device)


class PointNetwork(nn.Module):
    """Logits of clouds (b, n_out), or of their points (b, m, n_out), and the regulariser of eq. 2.

    Parameters
    ----------
    dimension, n_out : int
        Width of a point, number of classes.
    width : int
        Width of the first layers; the published size is 64, and 1024 features describe a cloud.
    segment : bool
        Whether there is one output per point.
    dropout : float
        Share of activations dropped before the output while training.
    """

    def __init__(
        self, dimension: int, n_out: int, *, width: int = 64, segment: bool = False, dropout: float = 0.3
    ) -> None:
        super().__init__()
        self.segment = segment
        self.turn = TNet(dimension, width)
        self.first = Shared((dimension, width, width))
        self.turn_features = TNet(width, width)
        self.second = Shared((width, width, 2 * width, 16 * width))
        n_in = (16 + 1) * width if segment else 16 * width
        self.head = Shared((n_in, 8 * width, 4 * width))
        self.output = nn.Sequential(nn.Dropout(dropout), nn.Linear(4 * width, n_out))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read padded clouds; return logits and the regulariser (b,)."""
        x = self.first(x @ self.turn(x, lengths), lengths)
        T = self.turn_features(x, lengths)
        x = x @ T
        cloud = set_pool(self.second(x, lengths), lengths, "max")
        if self.segment:
            cloud = torch.cat([x, cloud[:, None].expand(-1, x.shape[1], -1)], 2)
        eye = torch.eye(T.shape[1], dtype=T.dtype, device=T.device)
        features = self.head(cloud, lengths if self.segment else None)
        return self.output(features), (eye - T @ T.transpose(1, 2)).square().sum((1, 2))


@dataclass(frozen=True)
class TurnedCrossEntropy(CrossEntropy):
    """The cross-entropy of clouds or of their points, plus eq. 2 of their cloud times ``orthogonality``."""

    orthogonality: float = 0.0

    def __call__(self, output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        """Return one loss per cloud, or per point."""
        logits, turned = output
        losses = super().__call__(logits, target)
        return losses + self.orthogonality * turned.reshape(-1, *[1] * (losses.ndim - 1))


class _BasePointNet(BaseSets):
    _segment = False
    _training_defaults = {"epochs": 40, "learning_rate": 1e-3, "batch_size": 16, "clip_norm": 1.0}
    _parameter_constraints = {
        "width": [Interval(Integral, 1, None, closed="left")],
        "orthogonality": [Interval(Real, 0, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        width=32,
        *,
        orthogonality=1e-3,
        dropout=0.3,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        self.width = width
        self.orthogonality = orthogonality
        self.dropout = dropout
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 4, "training": Training(epochs=2)}

    def _module(self) -> PointNetwork:
        net = PointNetwork(
            self.n_features_in_,
            len(self.classes_),
            width=self.width,
            segment=self._segment,
            dropout=self.dropout,
        )
        return net.to(getattr(torch, self.dtype_))

    def _turned(self) -> TurnedCrossEntropy:
        return TurnedCrossEntropy(len(self.classes_), -1, self.orthogonality)

    def _batches(self, data: Data) -> RaggedBatches:
        return RaggedBatches(self._centred(data.X), *self._supervision(data))

    def _centred(self, sets: list[np.ndarray], device: Any = None) -> Ragged:
        """Return clouds with their centre at 0 and their farthest point at 1, as the published data have them."""
        flat, sizes = np.concatenate(sets), np.array([len(part) for part in sets])
        starts = np.cumsum(sizes) - sizes
        flat = flat - np.repeat(np.add.reduceat(flat, starts) / sizes[:, None], sizes, axis=0)
        radii = np.sqrt(np.maximum.reduceat((flat**2).sum(1), starts))
        flat /= np.repeat(np.where(radii > 0, radii, 1.0), sizes)[:, None]
        place = {
            "device": current().device if device is None else device,
            "dtype": getattr(torch, self.dtype_),
        }
        return Ragged(torch.from_numpy(flat).to(**place), torch.from_numpy(sizes))

    def _graph_call(self) -> Any:
        def call(x: Tensor, lengths: Tensor) -> Tensor:
            inside = padding_mask(lengths, x.shape[1], x.device)[..., None]
            x = (x - (x * inside).sum(1, keepdim=True) / lengths[:, None, None]) * inside
            radius = x.square().sum(2).amax(1).sqrt()[:, None, None]
            return self.module_(x / torch.where(radius > 0, radius, 1.0), lengths)[0]

        return call

    def _probabilities(self, X: list[np.ndarray]) -> list[np.ndarray]:
        data = self._centred(X, next(self.module_.parameters()).device)
        out: list[Any] = [None] * len(X)
        with torch.inference_mode():
            for rows, x, lengths in in_batches(data, POINTS):
                found = self.module_(x, lengths)[0].softmax(-1).cpu().numpy()
                for row, part, m in zip(rows.tolist(), found, lengths.tolist()):
                    out[row] = part[:m] if self._segment else part
        return out


class PointNet(GradientClassifier, _BasePointNet):
    """Classify point clouds.

    Parameters
    ----------
    width : int, default=32
        Width of the first layers; the published size is 64. Wider fits finer shapes.
    orthogonality : float, default=1e-3
        Weight of the penalty that keeps the learned transform of the features near an orthogonal matrix.
    dropout : float, default=0.3
        Share of activations dropped at random while training; more regularises more.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    module_ : PointNetwork
        The trained network; called with padded clouds and sizes it gives logits and the regulariser.
    n_features_in_ : int
        Width of a point.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy plus ``orthogonality`` times equation (2) of :mod:`corollary.sets.pointnet`. Clouds
    are centred and scaled to radius 1. O(points * width^2 * 40).

    References
    ----------
    .. [1] C. R. Qi, H. Su, K. Mo, L. J. Guibas (2017). PointNet: deep learning on point sets for 3D classification and
       segmentation. CVPR.

    Examples
    --------
    >>> from corollary import PointNet, Training
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(20, 3)) * [1, 1, 3.0 * (i % 2) + 0.1] for i in range(24)]
    >>> model = PointNet(8, training=Training(20, batch_size=8), random_state=0).fit(X, np.arange(24) % 2)
    >>> bool(model.score(X, np.arange(24) % 2) > 0.8)
    True
    """

    _criterion = _BasePointNet._turned

    def _predict_proba(self, X: list[np.ndarray]) -> np.ndarray:
        return np.stack(self._probabilities(X))


class PointNetSegmenter(GradientTagger, _BasePointNet):
    """Segment point clouds: label every point by the part it belongs to.

    Parameters
    ----------
    width : int, default=32
        Width of the first layers; the published size is 64.
    orthogonality : float, default=1e-3
        Weight of the penalty that keeps the learned transform of the features near an orthogonal matrix.
    dropout : float, default=0.3
        Share of activations dropped at random while training; more regularises more.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels of the parts.
    module_ : PointNetwork
        The trained network.
    n_features_in_ : int
        Width of a point.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    As :class:`PointNet`, with the cross-entropy over points.

    Examples
    --------
    >>> from corollary import PointNetSegmenter, Training
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(20, 3)) for _ in range(24)]
    >>> y = [(x[:, 0] > x[:, 0].mean()).astype(int) for x in X]
    >>> bool(PointNetSegmenter(8, training=Training(30), random_state=0).fit(X, y).score(X, y) > 0.9)
    True
    """

    _segment, _whole, _parts = True, "cloud", "points"
    _criterion = _BasePointNet._turned

    @classmethod
    def _test_data(cls) -> tuple[list[np.ndarray], list[np.ndarray]]:
        rng = np.random.default_rng(0)
        X = [rng.normal(size=(m, 3)) for m in rng.integers(2, 8, size=20)]
        return X, [(x[:, 0] > 0).astype(int) for x in X]
