r"""Semantic segmentation: a class for every pixel.

The net puts out logits :math:`f(x)` for each pixel; the loss is the mean cross-entropy over pixels. Masks are
compared by intersection over union, for each class :math:`k` over all pixels of all images:

.. math:: \mathrm{IoU}_k = \frac{|\{\hat y = k\} \cap \{y = k\}|}{|\{\hat y = k\} \cup \{y = k\}|}. \tag{1}
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from corollary.base import Data, as_tensor
from corollary.data.arrays import as_array
from corollary.engine.batches import TensorBatches
from corollary.engine.objective import with_accuracy
from corollary.engine.training import Training
from corollary.errors import kind, value
from corollary.export import Classes
from corollary.gradient import known_codes
from corollary.losses import CrossEntropy
from corollary.roles.targets import class_weights, given_target
from corollary.shapes import Labels
from corollary.validation import as_given
from corollary.vision.classifier import BaseImageEstimator
from corollary.vision.nets import SEGMENTERS
from corollary.vision.views import flips_of_masks, shift_of

__all__ = ["Segmenter", "intersection_over_union"]


def intersection_over_union(y_true: Any, y_pred: Any, classes: Any) -> np.ndarray:
    """Return the intersection over union of each class, eq. 1; NaN for a class in neither.

    >>> intersection_over_union([[0, 1], [1, 1]], [[0, 0], [1, 1]], [0, 1]).round(3)
    array([0.5  , 0.667])
    """
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    both = np.array([np.sum((y_true == k) & (y_pred == k)) for k in classes], dtype=float)
    either = np.array([np.sum((y_true == k) | (y_pred == k)) for k in classes], dtype=float)
    return np.divide(both, either, out=np.full(len(both), np.nan), where=either > 0)


class Segmenter(BaseImageEstimator):
    """Segment images (a class for every pixel) with a U-Net, or with a pre-trained SegFormer.

    Batch size and epochs follow from the number of images (:mod:`corollary.engine.budget`), and other views of images and
    masks are shown, moved by some pixels and mirrored where no class keeps to one side (:mod:`corollary.vision.views`).

    Parameters
    ----------
    net : {"unet", "segformer"}, default="unet"
        The net. "segformer" (-b0 to -b5) needs many images, or weights to start from (:meth:`from_transformers`).
    width : int, optional
        Channels of the first level (of a SegFormer's decoder). Wider fit more, and cost with the square. By default 64, and
        16 for images up to 64 pixels.
    options : dict, optional
        Further arguments of the net's class, such as ``{"depth": 3}``.
    class_weight : dict or "balanced", optional
        Weights of the classes, for every pixel.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights and order of samples.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels found in the masks.
    module_ : torch.nn.Module
        Standardisation and net; takes pixels in [0, 1], returns logits (n, n_classes, h, w).
    image_shape_ : (int, int, int)
        Channels, height and width.
    augment_ : dict
        Which other views the net was shown, as options of :func:`corollary.data.augment.augment`. Not there if
        ``Training(augment=)`` was given; ``augment=0`` shows none.
    channel_mean_, channel_scale_ : ndarray of shape (channels,)
        What the images are standardised with.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss, share of right pixels and seconds of every epoch.

    Notes
    -----
    ``score`` is the mean of (1) over classes. An epoch costs O(n h w * number of weights).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import Segmenter, Training
    >>> X = load_digits().images[:200] / 16
    >>> plan = Training(epochs=10, learning_rate=0.02)
    >>> model = Segmenter(width=4, training=plan, random_state=0).fit(X, X > 0.5)
    >>> bool(model.score(X, X > 0.5) > 0.5)
    True
    """

    role = "segmenter"
    _nets = SEGMENTERS
    _parameter_constraints = {
        "net": [str, type],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "options": [None, dict],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "random_state": ["random_state"],
    }
    _fitted = {"classes_": Labels()}

    def __init__(
        self, net="unet", *, width=None, options=None, class_weight=None, training=None, random_state=None
    ):
        self.net = net
        self.width = width
        self.options = options
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 4, "training": Training(epochs=3)}

    @classmethod
    def _test_data(cls) -> tuple[np.ndarray, np.ndarray]:
        X = np.random.default_rng(0).uniform(size=(12, 8, 8)).astype(np.float32)
        return X, (X > 0.5).astype(int)

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on images X, as :class:`~corollary.ImageClassifier` takes them, with masks y (n, h, w) of labels."""
        return self._fit(X, y, sample_weight, validation=validation)

    def _check_y(self, X: np.ndarray, y: Any) -> np.ndarray:
        masks = self._masks(X, y)
        self.classes_, codes = np.unique(masks, return_inverse=True)
        if len(self.classes_) < 2:
            raise value("Segmenter", "masks must have at least two classes", f"only {self.classes_[0]!r}")
        return codes.reshape(masks.shape)

    def _masks(self, X: np.ndarray, y: Any) -> np.ndarray:
        if y is None:
            raise value("Segmenter", "requires y to be passed: one mask per image", "None")
        masks = as_array(y)
        if masks.ndim == 4 and 1 in masks.shape[1::2]:  # one channel, first or last
            masks = masks[:, 0] if masks.shape[1] == 1 else masks[..., 0]
        if masks.dtype.kind == "f" and not np.isfinite(masks).all():
            absent = int(np.sum(~np.isfinite(masks)))
            do = "Give unknown pixels a label of their own, or leave those images out."
            raise value("Segmenter", "masks must have a label for every pixel", f"NaN for {absent}", do)
        if masks.dtype.kind == "f" and not np.array_equal(masks, np.round(masks)):
            do = "Pass whole numbers, for instance y > 0.5."
            raise kind("Segmenter", "masks must hold labels", f"fractions ({masks.dtype})", do)
        want = (len(X), *X.shape[2:])
        if masks.shape != want:
            do = "Every image needs a mask of its own height and width."
            raise value("Segmenter", f"masks must have shape {want}", f"shape {masks.shape}", do)
        return masks

    def _known_y(self, X: np.ndarray, y: Any) -> np.ndarray:
        masks = self._masks(X, y)
        return known_codes(self, masks.ravel()).reshape(masks.shape)

    def _batches(self, data: Data) -> TensorBatches:
        x = as_tensor(data.X.astype(self.dtype_, copy=False))
        return TensorBatches(x, as_tensor(data.y), self._as_weight(self._weights(data)))

    def _allowed_views(self, data: Data) -> dict[str, Any]:
        return {**flips_of_masks(data.X, data.y, len(self.classes_)), "shift": shift_of(*data.X.shape[2:])}

    def _aim(self) -> Any:
        return with_accuracy(CrossEntropy(len(self.classes_)))

    def _weights(self, data: Data) -> np.ndarray | None:
        """Return the weight of every image, or of every pixel if the classes have weights."""
        if self.class_weight is None:
            return data.sample_weight
        by_pixel = class_weights(self.class_weight, self.classes_, data.y.ravel()).reshape(data.y.shape)
        return by_pixel if data.sample_weight is None else by_pixel * data.sample_weight[:, None, None]

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        return self.module_, Classes(), {"classes": self.classes_.tolist()}

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self._logits(X, lambda x: self.module_(x).softmax(1).contiguous())

    def predict_proba(self, X):
        """Return the probability of each class for every pixel: (n, n_classes, h, w)."""
        return as_given(X, self._predict_proba(self._query(X)))

    def predict(self, X):
        """Return the most probable label of every pixel: (n, h, w)."""
        best = self._logits(self._query(X), lambda x: self.module_(x).argmax(1))
        return as_given(X, self.classes_[best])

    @classmethod
    def from_transformers(
        cls, source: Any, *, image_size: int | tuple[int, int] | None = None, **params: Any
    ) -> Segmenter:
        """Return a segmenter with the weights of a SegFormer of the package transformers.

        Parameters
        ----------
        source : model, or path
            A ``SegformerForSemanticSegmentation``, or a directory as ``save_pretrained`` writes it; nothing is downloaded.
            Its ``preprocessor_config.json``, if there is one, says how pixels are standardised.
        image_size : int or (int, int), optional
            The sides of the images; by default those that the configuration or the preprocessing says, or 224.
        **params
            ``training``, ``random_state`` and ``class_weight`` of the segmenter.

        Returns
        -------
        Segmenter
            Its classes are the checkpoint's labels. A model without a decoder has none: it is to be fitted first, which
            starts from its weights, as :meth:`fine_tune` does.
        """
        return cls._from_checkpoint(source, image_size, params)

    def score(self, X, y=None):
        """Return the mean intersection over union of the classes, eq. 1."""
        images = self._query(X)
        masks = self._masks(images, given_target(self, X, y))
        return float(np.nanmean(intersection_over_union(masks, as_array(self.predict(X)), self.classes_)))
