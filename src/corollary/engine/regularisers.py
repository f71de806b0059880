"""Regularisers: small objects that change a batch, the loss, the gradients or the weights of an update.

========================================  =====================  ==========================================================
hook                                      may change             used by
========================================  =====================  ==========================================================
``on_batch(batch, module, rng)``          inputs, target,        input and target noise, label smoothing, mixing,
                                          weight                 augmentation, curricula, adversaries
``on_loss(loss, module, batch)``          the loss               spectral penalties, distillation
``on_gradient(vectors)``                  gradients              clipping, gradient noise
``after_step(vectors)``                   weights                l1, norm balls
========================================  =====================  ==========================================================

An object has any of the four. ``on_batch`` returns a batch and ``on_loss`` a loss; the other two work in place. What else it
may have: ``attach(learner)``, called once, where it can say that it does not fit the model; ``order(learner, order)``, which
chooses the samples of an epoch; ``around_gradient()``, a context in which the gradients of an update are taken; ``state()`` and
``restore(state)`` if it remembers anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.engine.batches import Batch
from corollary.engine.curriculum import Curriculum
from corollary.engine.noise import GradientNoise, InputNoise, TargetNoise, WeightNoise
from corollary.engine.regulariser import HOOKS, TINY, Regulariser
from corollary.engine.spectral import Spectral
from corollary.optim.directions import project, soft_threshold

__all__ = [
    "FIELDS",
    "HOOKS",
    "L1",
    "Augment",
    "ClipNorm",
    "Curriculum",
    "GradientNoise",
    "InputNoise",
    "LabelSmoothing",
    "Mixup",
    "NormBall",
    "Spectral",
    "TargetNoise",
    "WeightDecay",
    "WeightNoise",
    "regularisers",
    "smoothed",
]


# --- on the batch ----------------------------------------------------------------------------------------


def smoothed(target: Tensor, share: float, n_classes: int) -> Tensor:
    """Return soft targets of which a share is spread evenly over all classes, eq. 1 of :class:`LabelSmoothing`.

    >>> smoothed(torch.tensor([0.0, 1.0]), 0.5, 2)
    tensor([0.2500, 0.7500])
    """
    return (1 - share) * target + share / n_classes


class LabelSmoothing(Regulariser):
    r"""Spread a share of every class target over all classes: ``Training(label_smoothing=0.1)``.

    Parameters
    ----------
    share : float
        The share :math:`\varepsilon` in [0, 1). More keeps the logits smaller and the probabilities further from 0 and 1.

    Notes
    -----
    The class :math:`y` of :math:`K` becomes the soft target

    .. math:: (1 - \varepsilon)\, e_y + \varepsilon / K. \tag{1}

    The cross-entropy is then least where the probabilities are :math:`(1 - \varepsilon)\, p(y \mid x) + \varepsilon / K`, so
    that the logits of a class that is certain exceed the others by :math:`\log(1 + K (1 - \varepsilon) / \varepsilon)` and
    not by infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import MLPClassifier, Training
    >>> X = np.repeat(np.eye(2), 50, axis=0)
    >>> plan = Training(optimizer="lbfgs", label_smoothing=0.2)
    >>> MLPClassifier((), training=plan, random_state=0).fit(X, X[:, 1]).predict_proba(np.eye(2)).round(2)
    array([[0.9, 0.1],
           [0.1, 0.9]])
    """

    name = "label_smoothing"
    needs_target = True

    def __init__(self, share: float) -> None:
        self.share = share

    def attach(self, learner: Any) -> None:
        """Check that there are classes."""
        super().attach(learner)
        self._check(0.0, 1.0)
        criterion = self._criterion()
        if not hasattr(criterion, "smoothed") or max(getattr(criterion, "outputs", [2])) < 2:
            self._n_classes()

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with soft targets."""
        criterion = self._criterion()
        if hasattr(criterion, "smoothed"):  # several targets: each has classes of its own
            return batch._replace(target=criterion.smoothed(batch.target, self.share))
        soft = _softened(self, batch.target)
        return batch._replace(target=smoothed(soft, self.share, self._n_classes()))


class Mixup(Regulariser):
    r"""Mix each sample with another, :math:`\lambda x_i + (1 - \lambda) x_j`, and their targets alike.

    The share :math:`\lambda` is drawn from :math:`\mathrm{Beta}(\alpha, \alpha)`, anew for each batch.
    """

    name = "mixup"
    needs_target = True
    low = TINY

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the mixed batch."""
        if len(self._real(batch)) < len(batch.inputs):
            must = "mixup needs samples of one size"
            raise errors.value(self._learner.owner, must, "sequences, sets or graphs", "Leave mixup out.")
        n, device = len(batch.inputs[0]), batch.inputs[0].device
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        share = float(np.random.default_rng(seed).beta(self.alpha, self.alpha))
        other = torch.randperm(n, generator=rng, device=rng.device).to(device)

        def mixed(t: Tensor) -> Tensor:
            return share * t + (1 - share) * t[other]

        target = batch.target if batch.target.is_floating_point() else _softened(self, batch.target)
        weight = None if batch.weight is None else mixed(batch.weight)
        inputs = tuple(mixed(t) for t in batch.inputs)
        return batch._replace(inputs=inputs, target=mixed(target), weight=weight)


class Augment(Regulariser):
    """Show other views of the images: options of :func:`corollary.data.augment.augment`, or a function of one's own.

    A function is called as ``transform(images, generator=rng)``. Where the target is a mask, flips and shifts move it and
    the weights of its pixels along with the image.
    """

    name = "augment"

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with other views of its images."""
        images = batch.inputs[0]
        if not isinstance(self.transform, dict):
            return batch._replace(inputs=(self.transform(images, generator=rng), *batch.inputs[1:]))
        real = isinstance(images, Tensor) and images.is_floating_point()
        # a second input holds lengths, of sequences
        if not real or images.ndim not in (3, 4) or len(batch.inputs) > 1:
            must = "augment needs images"
            got = f"inputs of shape {tuple(getattr(images, 'shape', ()))}"
            raise errors.value(self._learner.owner, must, got, "Pass a function of your own instead.")
        from corollary.data import augment

        moves = {key: value for key, value in self.transform.items() if key in MOVES}
        other = {key: value for key, value in self.transform.items() if key not in MOVES}
        masks = _like_images(batch.target, images), _like_images(batch.weight, images)
        if any(masks) and {*other} & {"resize", "rotate", "crop", "padding"}:
            must = "images with masks can be mirrored and shifted"
            do = "Use flip, vertical_flip, shift, colour and noise."
            raise errors.value(self._learner.owner, must, ", ".join(sorted(other)), do)
        target, weight = batch.target, batch.weight
        drawn = augment.draw_moves(batch.size or len(images), rng, **moves)
        if drawn:
            mine = {key: value[batch.rows] for key, value in drawn.items()}
            images = augment.move(images, **mine)
            target, weight = (
                augment.move(t, **mine) if is_mask else t for t, is_mask in zip((target, weight), masks)
            )
        if other:
            images = augment.augment(images, generator=rng, **other)
        return batch._replace(inputs=(images, *batch.inputs[1:]), target=target, weight=weight)


MOVES = ("flip", "vertical_flip", "shift")  # what moves pixels and changes none


def _like_images(values: Any, images: Tensor) -> bool:
    """Whether there is a value for every pixel."""
    return (
        isinstance(values, Tensor)
        and values.ndim > 2
        and values.shape[-2:] == images.shape[-2:]
        and len(values) == len(images)
    )


# --- on the loss -----------------------------------------------------------------------------------------


class WeightDecay(Regulariser):
    r"""The L2 penalty on the weight matrices: ``Training(weight_decay=1e-4)``.

    Biases and gains are left alone. Optimisers with a decay of their own do it there; for the others this class adds the
    penalty to the loss.

    Parameters
    ----------
    rate : float
        The factor :math:`\mu`. More makes weights smaller.

    Notes
    -----
    Minimises the loss plus half the squared norm, so that a gradient step shrinks the weights first:

    .. math::
        \mathcal R(\theta) + \tfrac{\mu}{2} \lVert \theta \rVert^2, \qquad
        \theta \leftarrow (1 - \eta \mu)\, \theta - \eta \nabla \mathcal R(\theta). \tag{1}

    Where the loss is a quadratic with Hessian :math:`H = Q \Lambda Q^\top` and minimum :math:`\theta^*`, the result is
    :math:`Q\, \mathrm{diag}\bigl(\lambda_i / (\lambda_i + \mu)\bigr)\, Q^\top \theta^*` (2): directions that the data
    say little about shrink most.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import MLPRegressor, Training
    >>> X = np.array([[-1.0], [1.0]])
    >>> plan = Training(optimizer="gd", learning_rate=0.3, weight_decay=0.25, epochs=100)
    >>> round(MLPRegressor((), training=plan, random_state=0).fit(X, X[:, 0]).coefs_[0].item(), 4)  # 1 / (1 + mu)
    0.8
    """

    name = "weight_decay"
    low = 0.0

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_loss(self, loss: Tensor, module: nn.Module, batch: Batch) -> Tensor:
        """Return the penalised loss."""
        for p in self._learner.players[0].matrices:
            loss = loss + 0.5 * self.rate * p.square().sum()
        return loss


# --- on the gradients ------------------------------------------------------------------------------------


class ClipNorm(Regulariser):
    r"""Shorten a gradient whose norm is larger than this: ``Training(clip_norm=1.0)``.

    Parameters
    ----------
    largest : float
        The largest norm :math:`c`, of all gradients of a player together. Smaller makes steps safer and slower.

    Notes
    -----
    The direction is kept, the length is not:

    .. math:: g \leftarrow g\, \min\{1, c / \lVert g \rVert\}. \tag{1}

    It is torch's ``clip_grad_norm_``. A cliff in the loss, as recurrent nets have, then moves the weights by at most
    ``learning_rate * largest`` under plain descent.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import MLPRegressor, Training
    >>> X = np.array([[1.0], [-1.0], [2.0], [-2.0]])
    >>> plan = Training(1, optimizer="gd", learning_rate=0.5, clip_norm=0.1)
    >>> start = MLPRegressor((), training=Training(1, optimizer="gd", learning_rate=1e-12), random_state=0)
    >>> before, after = (m.fit(X, 1e6 * X[:, 0]).coefs_[0] for m in (start, start.set_params(training=plan)))
    >>> bool(np.linalg.norm(after - before) <= 0.5 * 0.1 + 1e-6)
    True
    """

    name = "clip_norm"
    low = TINY

    def __init__(self, largest: float) -> None:
        self.largest = largest

    def on_gradient(self, vectors: Sequence[Tensor]) -> None:
        """Clip in place."""
        nn.utils.clip_grad_norm_(vectors, self.largest)


# --- on the weights --------------------------------------------------------------------------------------


class L1(Regulariser):
    r"""The L1 penalty on the weight matrices, which makes many of them exactly zero: ``Training(l1=1e-3)``.

    Parameters
    ----------
    rate : float
        The factor :math:`\mu` of the absolute sum. More weights become zero.

    Notes
    -----
    After each step of size :math:`\eta` the weights are soft-thresholded, the proximal map of the penalty:

    .. math:: \theta_i \leftarrow \mathrm{sign}(\theta_i)\, \max\{0, |\theta_i| - \eta \mu\}. \tag{1}

    With plain gradients this is the iterative shrinkage-thresholding algorithm (ISTA), and for a linear model the lasso.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import MLPRegressor, Training
    >>> X = np.array([[-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    >>> plan = Training(optimizer="gd", learning_rate=0.3, l1=0.2, epochs=100)
    >>> model = MLPRegressor((), training=plan, random_state=0).fit(X, X @ [1.0, 0.1])
    >>> bool(model.coefs_[0][1, 0] == 0.0)
    True
    """

    name = "l1"
    low = 0.0

    def __init__(self, rate: float) -> None:
        self.rate = rate

    @torch.no_grad()
    def after_step(self, vectors: Sequence[Tensor]) -> None:
        """Shrink in place; small weights become exactly zero."""
        player = self._player(vectors)
        step = player.optimizer.param_groups[0]["lr"] * self.rate
        for w in player.decayed:
            w.copy_(soft_threshold(w, step))


class NormBall(Regulariser):
    r"""Keep the norm of the weight matrices below a radius: ``Training(norm_ball=3.0)``.

    Parameters
    ----------
    radius : float
        The largest norm.
    per : {"model", "layer", "unit"}, default="model"
        Whether all matrices together, each of them, or each of their rows has at most this norm.

    Notes
    -----
    Projected gradient descent: after each step the weights go to the nearest point of the ball,

    .. math:: \Pi_r(\theta) = \min\{1, r / \lVert \theta \rVert\}\, \theta. \tag{1}

    Its limit minimises the loss on the ball, which is the minimum with some weight decay, or the free minimum if that lies
    inside.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import MLPClassifier, NormBall, Training
    >>> X, y = load_iris(return_X_y=True)
    >>> plan = Training(epochs=20, norm_ball=NormBall(2.0, per="layer"))
    >>> model = MLPClassifier((16,), training=plan, random_state=0).fit(X, y)
    >>> bool(max((W**2).sum() ** 0.5 for W in model.coefs_) < 2.0001)
    True
    """

    name = "norm_ball"
    low = 0.0

    def __init__(self, radius: float, per: str = "model") -> None:
        self.radius = radius
        self.per = per

    def attach(self, learner: Any) -> None:
        """Check the choice."""
        super().attach(learner)
        if self.per not in ("layer", "model", "unit"):
            raise errors.unknown("NormBall", "per", self.per, ("layer", "model", "unit"))

    @torch.no_grad()
    def after_step(self, vectors: Sequence[Tensor]) -> None:
        """Project in place."""
        player = self._player(vectors)
        if self.per == "model":
            project(player.decayed, self.radius)
        elif self.per == "layer":
            for W in player.matrices:
                project([W], self.radius)
        else:
            for W in player.matrices:
                W.copy_(W.flatten(1).renorm(2, 0, self.radius).view_as(W))


def _adversary(value: Any) -> Any:
    """Return the attack that a radius stands for."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        must = f"adversary must be a radius, a dict of PGD's parameters, or have one of {', '.join(HOOKS)}"
        raise errors.kind("Training", must, type(value).__name__)
    return import_module("corollary.attack").PGD(value)  # which stands above the engine


# --- the table -------------------------------------------------------------------------------------------

# The fields of Training that are regularisers, in the order in which they act.
FIELDS: dict[str, Any] = {
    "curriculum": Curriculum,
    "augment": Augment,
    "input_noise": InputNoise,
    "target_noise": TargetNoise,
    "label_smoothing": LabelSmoothing,
    "mixup": Mixup,
    "adversary": _adversary,
    "weight_noise": WeightNoise,
    "spectral": Spectral,
    "clip_norm": ClipNorm,
    "gradient_noise": GradientNoise,
    "l1": L1,
    "norm_ball": NormBall,
}


def regularisers(training: Any) -> list[Any]:
    """Return the regularisers that a training asks for, from its fields and then its own."""
    found = []
    for name, make in FIELDS.items():
        value = getattr(training, name)
        if value is None or (isinstance(value, int | float) and value == 0):
            continue
        found.append(value if _is_one(value) else _made(name, make, value))
    for value in training.regularisers or ():
        if not _is_one(value):
            do = "An unknown name may be a field of Training itself."
            raise errors.kind(
                "Training", f"regularisers must have one of {', '.join(HOOKS)}", repr(value), do
            )
        found.append(value)
    if training.weight_decay and not training.decays_in_optimizer:
        found.append(WeightDecay(training.weight_decay))
    return found


def _made(name: str, make: Any, value: Any) -> Any:
    """Return the regulariser of a field: from its one number, or from a dict of its parameters."""
    if not isinstance(value, dict) or name == "augment":  # whose dict are options of the augmentation
        return make(value)
    cls = import_module("corollary.attack").PGD if name == "adversary" else make
    known = cls._get_param_names()
    for key in value:
        if key not in known:
            raise errors.unknown("Training", f"parameter of {name}", str(key), known)
    return cls(**value)


def _is_one(value: Any) -> bool:
    return any(hasattr(value, hook) for hook in HOOKS)


def _softened(regulariser: Any, target: Tensor) -> Tensor:
    regulariser._n_classes()
    learner = regulariser._learner
    dtype = next(p.dtype for p in learner.module.parameters() if p.is_floating_point())
    return regulariser._criterion().soften(target, dtype)  # type: ignore[no-any-return]
