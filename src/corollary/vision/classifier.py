r"""Image classification by any of the nets.

Images are standardised channel by channel with the statistics of the training images, inside the module, so that
``module_`` takes pixels in [0, 1]. The loss is the mean cross-entropy of the net's logits :math:`f`,

.. math:: \mathcal L = -\frac{1}{n} \sum_i \log \mathrm{softmax}(f(x_i))_{y_i}, \tag{1}

plus 0.3 times that of each auxiliary classifier where a net has some.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data, as_tensor
from corollary.data.kinds import check_images
from corollary.data.sources import Source
from corollary.engine.budget import Budget
from corollary.engine.building import sized
from corollary.engine.objective import with_accuracy
from corollary.engine.random import seeded
from corollary.engine.sources import batches_of
from corollary.engine.training import Training
from corollary.errors import value
from corollary.gradient import GradientClassifier, GradientTrained
from corollary.losses import CrossEntropy
from corollary.nn.pretrained import fill_pretrained
from corollary.shapes import Array, Count, Dtype, List, Maybe, Plain
from corollary.vision.net import Standardise, pair
from corollary.vision.nets import CLASSIFIERS, build, named
from corollary.vision.pretrained import place_weights, read_checkpoint, width_of
from corollary.vision.views import flips_of_labels, shift_of, some_of

__all__ = ["ImageClassifier"]

AUXILIARY_WEIGHT = 0.3
RATE = 2e-3
DECAY = {"resnet": 0.05, "densenet": 0.05}  # nets with normalised layers; it keeps others from learning
RATES = {"unet": 4e-3}  # where another one is better
UPDATES, UPDATES_TUNED = 600, 300  # that a net takes from the start, and from weights that are there already
PIXELS = 2**19  # pixels per channel that one chunk of a forward pass may have


class AuxiliaryCrossEntropy(CrossEntropy):
    """Eq. 1, with the auxiliary classifiers where the output has some."""

    def __call__(self, output: Tensor | tuple[Tensor, ...], target: Tensor) -> Tensor:
        """Return one loss per image."""
        logits, *side = output if isinstance(output, tuple) else (output,)
        losses = super().__call__(logits, target)
        for extra in side:
            losses = losses + AUXILIARY_WEIGHT * super().__call__(extra, target)
        return losses

    def accuracy(self, output: Tensor | tuple[Tensor, ...], target: Tensor) -> Tensor:
        """Return which guesses are right."""
        return super().accuracy(output[0] if isinstance(output, tuple) else output, target)


class BaseImageEstimator(GradientTrained):
    """What the estimators on images share: the validation of inputs, the standardisation and the net."""

    input = "image"
    _nets: ClassVar[set[str]]
    _start = ("pretrained_", "tuning_", "channel_mean_", "channel_scale_")
    _places_weights = True
    _fitted = {
        "image_shape_": List([Count(1), Count(1), Count(1)]),
        "dtype_": Dtype(),
        "channel_mean_": Array("image_shape_.0"),
        "channel_scale_": Array("image_shape_.0"),
        "augment_": Maybe(Plain()),
    }

    @property
    def _training_defaults(self) -> dict[str, Any]:
        family = str(self.net).lower().rstrip("0123456789")
        rate, decay = RATES.get(family, RATE), DECAY.get(family, 0.0)
        # slowly, so that what was learned is kept; narrow nets take larger steps
        if hasattr(self, "pretrained_"):
            rate, decay = min(RATE, 5e-5 * 768 / width_of(self.pretrained_)), 0.0
        views = getattr(self, "augment_", None) or None
        return {
            "epochs": 15,
            "learning_rate": rate,
            "weight_decay": decay,
            "batch_size": 64,
            "schedule": "cosine",
            "augment": views,
        }

    @property
    def _budget(self) -> Budget:
        return Budget(UPDATES_TUNED if hasattr(self, "pretrained_") else UPDATES)

    def _allowed_views(self, data: Data) -> dict[str, Any]:
        """Return the options of the augmentation that the labels allow."""
        return {}

    def _check(self, X: Any, reset: bool) -> np.ndarray:
        shape = getattr(self, "image_shape_", None)
        if reset or shape is None:
            return check_images(X, type(self).__name__, levels=self._pixel_levels())
        levels = self._pixel_levels()
        return check_images(X, type(self).__name__, channels=shape[0], size=shape[1:], levels=levels)

    def _measure(self, data: Data) -> None:
        """Remember the shape and the channels' statistics."""
        named(self.net, self._nets, type(self).__name__)
        if self.training is None or self.training.augment is None:
            self.augment_ = self._allowed_views(data)
        self.image_shape_ = tuple(data.X.shape[1:])
        self.dtype_ = str(data.X.dtype)
        if hasattr(self, "pretrained_"):  # the weights know pixels as they were standardised then
            if len(self.channel_mean_) != self.image_shape_[0]:
                must = f"images must have {len(self.channel_mean_)} channels, as those that the weights know"
                raise value(type(self).__name__, must, self.image_shape_[0], "Repeat or drop channels.")
            return
        self.channel_mean_, spread = _channels(data.X)
        self.channel_scale_ = np.where(spread > 0, spread, 1.0)

    def _module(self) -> nn.Sequential:
        """Return the standardisation and the net, with the channels last in memory."""
        options = {"width": self.width, **(self.options or {})}
        name = named(self.net, self._nets, type(self).__name__)
        net = build(name, self.image_shape_, len(self.classes_), **options)
        first = Standardise(self.image_shape_[0])
        first.mean.copy_(as_tensor(self.channel_mean_).reshape(1, -1, 1, 1))
        first.scale.copy_(as_tensor(self.channel_scale_).reshape(1, -1, 1, 1))
        if hasattr(self, "pretrained_"):
            inside = {name[2:]: weight for name, weight in self.pretrained_.items() if name.startswith("1.")}
            known = getattr(self, "tuning_", {}).get("classes")
            place_weights(net, inside, type(self).__name__, new_head=known != self.classes_.tolist())
        module = nn.Sequential(first, net)
        return module.to(getattr(torch, self.dtype_)).to(memory_format=torch.channels_last)

    @classmethod
    def _from_checkpoint(cls, source: Any, image_size: Any, params: dict[str, Any]) -> Any:
        """Return an estimator with the weights of a model of transformers, fitted if they have a head."""
        read = read_checkpoint(source, cls.__name__, cls._nets)
        model = cls(read["net"], options=read["options"], **params)
        sides = read["shape"][1:] if image_size is None else pair(image_size)
        model.image_shape_, model.dtype_ = (read["shape"][0], *sides), "float32"
        model.channel_mean_, model.channel_scale_ = read["mean"], read["scale"]
        model.history_, model.n_iter_ = [], 0
        if any(name.startswith("head.") for name in read["weights"]):
            model.classes_ = np.array(read["classes"])
            with seeded(0):
                sized(model._module, read["weights"], cls.__name__)
                module = model._module()
            fill_pretrained(module[1], read["weights"], cls.__name__)
            model.module_ = module.eval()
        else:
            model.pretrained_ = {f"1.{name}": weight for name, weight in read["weights"].items()}
        return model

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        like = next(self.module_.parameters())
        return {"X": torch.zeros(2, *self.image_shape_, dtype=like.dtype)}, {"X": {0: "n"}}

    def _logits(self, X: np.ndarray, call: Any) -> np.ndarray:
        chunk = max(1, PIXELS // (X.shape[2] * X.shape[3]))
        return self._forward(X, call, chunk)


class ImageClassifier(GradientClassifier, BaseImageEstimator):
    """Classify images with a convolutional net or a vision transformer.

    Every net takes its published size for large images; for images up to 64 pixels it keeps its layout, with a
    stem of 3 x 3 kernels and narrow layers that train on a laptop. Batch size and epochs follow from the number of images
    (:mod:`corollary.engine.budget`), and other views of the images are shown, moved by some pixels and mirrored where the
    labels allow it (:mod:`corollary.vision.views`); fields of ``training`` take their place.

    Parameters
    ----------
    net : str, default="resnet"
        One of "lenet", "alexnet", "vgg" (11, 13, 16, 19), "googlenet", "resnet" (18, 34, 50, 101, 152),
        "densenet" (121, 161, 169, 201) and "vit" (-tiny, -small, -base, -large), such as "resnet50". A short
        name takes the smallest depth; "resnet" and "densenet" are shallower still on images up to 64 pixels.
    width : int, optional
        Channels of the first layer (growth rate of a DenseNet, width of a ViT's tokens). Wider fit more, and
        cost with the square. By default chosen from the images' size.
    options : dict, optional
        Further arguments of the net's class, such as ``{"patch_size": 4}``.
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
    module_ : torch.nn.Module
        Standardisation and net; takes pixels in [0, 1], returns logits.
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
        Step, loss, accuracy and seconds of every epoch.

    Notes
    -----
    Minimises (1). Weights and images lie channels-last in memory, which makes convolutions about twice as
    fast on processors. An epoch costs O(n h w * number of weights).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import ImageClassifier, Training
    >>> X, y = load_digits().images / 16, load_digits().target
    >>> model = ImageClassifier("lenet", training=Training(epochs=8), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    _nets = CLASSIFIERS
    _reads_sources = True
    _parameter_constraints = {
        "net": [str, type],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "options": [None, dict],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        net="resnet",
        *,
        width=None,
        options=None,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        self.net = net
        self.width = width
        self.options = options
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"net": "resnet", "width": 4, "training": Training(epochs=3)}

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on images X with labels y (n,), optionally weighted.

        Images are (n, h, w), (n, c, h, w) or (n, h, w, c), bytes or floats in [0, 1], or a list of Pillow images.
        """
        return self._fit(X, y, sample_weight, validation=validation)

    def _batches(self, data: Data) -> Any:
        return batches_of(data.X.astype(self.dtype_, copy=False), *self._supervision(data))

    def _allowed_views(self, data: Data) -> dict[str, Any]:
        flips = flips_of_labels(*some_of(data.X, data.y, data.sample_weight))
        return {**flips, "shift": shift_of(*data.X.shape[2:])}

    def _aim(self) -> Any:
        return with_accuracy(AuxiliaryCrossEntropy(len(self.classes_)))

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self._logits(X, lambda x: self.module_(x).softmax(1))

    # --- from weights that are there already -------------------------------------------------------------

    @classmethod
    def from_transformers(
        cls, source: Any, *, image_size: int | tuple[int, int] | None = None, **params: Any
    ) -> ImageClassifier:
        """Return a classifier with the weights of a ViT or a ResNet of the package transformers.

        Parameters
        ----------
        source : model, or path
            A ``ViTForImageClassification`` or ``ResNetForImageClassification``, or a directory as ``save_pretrained``
            writes it; nothing is downloaded. Its ``preprocessor_config.json``, if there is one, says how pixels are
            standardised.
        image_size : int or (int, int), optional
            The sides of the images to classify; by default those that the net was trained on, or 224 where neither its
            configuration nor its preprocessing says.
        **params
            ``training``, ``random_state`` and ``class_weight`` of the classifier.

        Returns
        -------
        ImageClassifier
            Its classes are the checkpoint's labels. A bare model has none: it is to be fitted first, which starts from
            its weights, as :meth:`fine_tune` does.
        """
        return cls._from_checkpoint(source, image_size, params)


def _channels(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each channel, over blocks where the images lie on disk."""
    axes = (0, 2, 3)
    if not isinstance(X, Source):
        return X.mean(axes, dtype=np.float64), X.std(axes, dtype=np.float64)
    count, mean, square = 0, np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for block in X.blocks():  # sums of squares about the mean so far, joined block by block
        n, own = len(block), block.mean(axes, dtype=np.float64)
        square += n * block.var(axes, dtype=np.float64) + (own - mean) ** 2 * count * n / (count + n)
        mean += (own - mean) * n / (count + n)
        count += n
    return mean, np.sqrt(square / count)
