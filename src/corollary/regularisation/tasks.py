r"""Self-supervised pretext tasks for images: rotation prediction and jigsaw patches.

*Rotation*: every image :math:`x` is turned by :math:`0, 90, 180, 270` degrees, and the net says by how much,

.. math:: \mathcal L = -\frac{1}{4n} \sum_i \sum_{k=0}^{3} \log p_\theta(k \mid R^k x_i), \tag{1}

which it can only do by knowing what is in it. *Patches*: an image is cut into a grid of patches, these change places by one of
:math:`m` permutations :math:`\pi_1, \dots, \pi_m`, and the net says by which,

.. math:: \mathcal L = -\frac{1}{n} \sum_i \log p_\theta(j_i \mid \pi_{j_i} x_i), \qquad j_i \text{ uniform}. \tag{2}

The features are maps from before the end of the net, averaged over a grid of 4 x 4 cells: the last layers see what the task
asks and little else. Nets that end in a vector, as LeNet and the vision transformer, give what their last layer reads. A
*linear probe* tells what they are worth: the accuracy of a linear classifier on
them, beside that on the features of an untrained net.
"""

from __future__ import annotations

from itertools import islice, permutations
from math import factorial
from numbers import Integral
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary import errors
from corollary.base import Data, Transformer
from corollary.engine.batches import Batch
from corollary.engine.sources import batches_of
from corollary.engine.training import Training
from corollary.shapes import Array, Labels
from corollary.validation import to_numpy
from corollary.vision.classifier import BaseImageEstimator, ImageClassifier
from corollary.vision.nets import CLASSIFIERS

__all__ = ["PatchPretrainer", "RotationPretrainer", "linear_probe", "rotations", "shuffled"]


GRID = 4  # cells along each side in which maps are averaged

# --- equations -------------------------------------------------------------------------------------------


def rotations(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return images (n, c, s, s) in all four rotations (4n, c, s, s), and which each is, eq. 1."""
    turned = torch.cat([torch.rot90(x, k, (2, 3)) for k in range(4)])
    return turned, torch.arange(4, device=x.device).repeat_interleave(len(x))


def shuffled(x: Tensor, orders: Tensor, which: Tensor, grid: int) -> Tensor:
    """Return images (n, c, h, w) whose patches stand in ``orders[which]`` (m, grid^2), eq. 2."""
    n, c, h, w = x.shape
    patches = x.reshape(n, c, grid, h // grid, grid, w // grid).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    moved = patches[torch.arange(n, device=x.device)[:, None], orders.to(x.device)[which]]
    moved = moved.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5)
    return moved.reshape(n, c, h, w)


def linear_probe(features: Any, y: Any, *, folds: int = 5) -> float:
    """Return the cross-validated accuracy of a linear classifier on features.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> bool(linear_probe(X[:300], y[:300]) > 0.8)
    True
    """
    if y is None:
        do = "Pass the labels of some samples, and the features of these."
        raise errors.value("linear_probe", "a probe needs labels", "unlabelled data", do)
    y = np.asarray(to_numpy(y))
    if y.dtype.kind in "fO" and (missing := int(sum(label is None or label != label for label in y.ravel()))):
        do = "Leave them out."
        raise errors.value(
            "linear_probe", "every sample must have a label", f"{missing} of {len(y)} without", do
        )
    features = np.asarray(to_numpy(features), dtype=np.float64)
    if features.ndim != 2 or len(features) != len(y):
        must = f"features must be of shape ({len(y)}, n_features)"
        raise errors.value("linear_probe", must, features.shape, "Use model.transform(X).")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2 or counts.min() < folds:
        must = f"there must be at least two classes, and {folds} samples of each, one for every fold"
        got = f"{len(classes)} classes, the smallest of {counts.min()}"
        raise errors.value("linear_probe", must, got, "Pass more samples, or fewer folds.")
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return float(cross_val_score(probe, features, y, cv=folds).mean())


# --- the estimators --------------------------------------------------------------------------------------


class _BasePretrainer(Transformer, BaseImageEstimator):
    """A net that is trained on a task made from the images themselves."""

    _nets = CLASSIFIERS
    _fitted = {"classes_": Labels()}
    _parameter_constraints = {
        "net": [str],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "options": [None, dict],
        "random_state": ["random_state"],
    }

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"net": "resnet", "width": 4, "training": Training(epochs=2)}

    def _views(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _batches(self, data: Data) -> Any:
        return batches_of(data.X.astype(self.dtype_, copy=False))

    def _aim(self) -> Any:
        def objective(module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
            x, target = self._views(batch.inputs[0])
            logits = module(x)
            logits = logits[0] if isinstance(logits, tuple) else logits
            right = (logits.detach().argmax(1) == target).double().mean()
            return F.cross_entropy(logits, target), {"accuracy": right}

        return objective

    def _transform(self, X: np.ndarray) -> np.ndarray:
        """Return the last maps of at least GRID x GRID entries on that grid; of a net without maps, what its last layer reads."""
        net = self.module_[1]
        maps, ends, read = [], [], []

        def keep(_: Any, __: Any, out: Any) -> None:
            if isinstance(out, Tensor) and out.ndim == 4 and min(out.shape[2:]) >= GRID:
                maps.append(out)

        last = [part for part in net.modules() if isinstance(part, nn.Linear)][-1]
        handles = [part.register_forward_hook(keep) for part in net.modules()]
        handles.append(net.head.register_forward_pre_hook(lambda _, inputs: ends.append(inputs[0].ndim)))
        handles.append(last.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].flatten(1))))

        def call(x: Tensor) -> Tensor:
            for seen in (maps, ends, read):
                seen.clear()
            self.module_(x)
            on_maps = bool(maps) and ends == [4]  # of a vision transformer only the patches are maps
            return F.adaptive_avg_pool2d(maps[-1], GRID).flatten(1) if on_maps else read[-1]

        try:
            return self._logits(X, call)
        finally:
            for handle in handles:
                handle.remove()

    def fine_tune(self, X, y, *, freeze=None, rate_decay=1.0, training=None, random_state=None):
        """Return an :class:`ImageClassifier` for labelled images that starts from these weights.

        The parameters are those of :meth:`corollary.tuning.Tunable.fine_tune`.
        """
        check_is_fitted(self)
        seed = self.random_state if random_state is None else random_state
        model = ImageClassifier(
            self.net, width=self.width, options=self.options, training=training, random_state=seed
        )
        return model._start_from(self, freeze, rate_decay).fit(X, y)


class RotationPretrainer(_BasePretrainer):
    """Learn features of images by predicting their rotation, without labels.

    Parameters
    ----------
    net : str, default="resnet"
        One of the nets of :class:`ImageClassifier`.
    width : int, optional
        Channels of its first layer. Wider learn more, and cost with the square.
    options : dict, optional
        Further arguments of the net's class.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (4,)
        The rotations, in degrees.
    module_ : torch.nn.Module
        The trained net.
    history_ : list of dict
        Step, loss, accuracy on the task and seconds of every epoch.

    Notes
    -----
    Minimises (1). ``transform`` gives the features, ``fine_tune`` a classifier that starts from the weights. Images that
    look the same however they are turned teach nothing.

    References
    ----------
    .. [1] S. Gidaris, P. Singh, N. Komodakis (2018). Unsupervised representation learning by predicting image rotations.
       ICLR.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import RotationPretrainer, Training
    >>> X = load_digits().images / 16
    >>> model = RotationPretrainer("lenet", training=Training(epochs=2), random_state=0).fit(X)
    >>> model.transform(X).shape
    (1797, 84)
    """

    def __init__(self, net="resnet", *, width=None, options=None, training=None, random_state=None):
        self.net = net
        self.width = width
        self.options = options
        self.training = training
        self.random_state = random_state

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        self.classes_ = np.array([0, 90, 180, 270])
        _, h, w = self.image_shape_
        if h != w:
            must = "images must be square, so that they can be turned"
            raise errors.value(type(self).__name__, must, f"{h} x {w}", "Crop or pad them.")

    def _views(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return rotations(x)


class PatchPretrainer(_BasePretrainer):
    """Learn features of images by predicting how their patches were shuffled (jigsaw), without labels.

    Parameters
    ----------
    net : str, default="resnet"
        One of the nets of :class:`ImageClassifier`.
    grid : int, default=2
        Patches along each side; the sides of the images are multiples of it.
    n_permutations : int, default=24
        Orders to tell apart, at most (grid * grid)!. More are harder.
    width : int, optional
        Channels of its first layer. Wider learn more, and cost with the square.
    options : dict, optional
        Further arguments of the net's class.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout, and for the permutations of larger grids.

    Attributes
    ----------
    permutations_ : ndarray of shape (n_permutations, grid * grid)
        Where the patches of each order come from.
    classes_ : ndarray of shape (n_permutations,)
        Their numbers.
    module_ : torch.nn.Module
        The trained net.
    history_ : list of dict
        Step, loss, accuracy on the task and seconds of every epoch.

    Notes
    -----
    Minimises (2). ``transform`` gives the features, ``fine_tune`` a classifier that starts from the weights.

    References
    ----------
    .. [1] M. Noroozi, P. Favaro (2016). Unsupervised learning of visual representations by solving jigsaw puzzles. ECCV.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import PatchPretrainer, Training
    >>> X = load_digits().images / 16
    >>> model = PatchPretrainer("lenet", training=Training(epochs=2), random_state=0).fit(X)
    >>> model.permutations_.shape, model.transform(X).shape
    ((24, 4), (1797, 84))
    """

    _parameter_constraints = {
        **_BasePretrainer._parameter_constraints,
        "grid": [Interval(Integral, 2, None, closed="left")],
        "n_permutations": [Interval(Integral, 2, None, closed="left")],
    }
    _fitted = {"permutations_": Array("classes_", None, kind="iu", low=0)}

    def __init__(
        self,
        net="resnet",
        *,
        grid=2,
        n_permutations=24,
        width=None,
        options=None,
        training=None,
        random_state=None,
    ):
        self.net = net
        self.grid = grid
        self.n_permutations = n_permutations
        self.width = width
        self.options = options
        self.training = training
        self.random_state = random_state

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        owner, cells = type(self).__name__, self.grid**2
        _, h, w = self.image_shape_
        if h % self.grid or w % self.grid:
            must = f"the sides of the images must be multiples of grid={self.grid}"
            raise errors.value(owner, must, f"{h} x {w}", "Crop or pad them, or take another grid.")
        if self.n_permutations > factorial(cells):
            must = f"n_permutations must be at most {factorial(cells)}"
            raise errors.value(owner, must, self.n_permutations, "Raise grid.")
        if self.grid == 2:
            chosen = np.array([*islice(permutations(range(4)), self.n_permutations)])
        else:
            rng, found = self._rng(), {tuple(range(cells))}
            while len(found) < self.n_permutations:
                found.add(tuple(rng.permutation(cells).tolist()))
            chosen = np.array(sorted(found))
        self.permutations_, self.classes_ = chosen.astype(np.int64), np.arange(len(chosen))

    def _views(self, x: Tensor) -> tuple[Tensor, Tensor]:
        which = torch.randint(len(self.classes_), (len(x),)).to(x.device)
        return shuffled(x, torch.from_numpy(self.permutations_), which, self.grid), which
