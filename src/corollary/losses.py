r"""Losses: how wrong an output :math:`z` is about a target :math:`t`, one number per sample.

Every function takes ``(output, target)`` and returns the losses, unreduced over samples. Where a sample has several
numbers (a regression with several outputs) its losses are added; where it has parts with a class each (pixels, steps)
every part has its own. The exponential family with natural parameter :math:`\theta = z` and log-partition :math:`A` has

.. math:: \ell(z, t) = -\log p(t \mid z) = A(z) - z t - \log h(t), \tag{1}

whose derivative is mean minus target, :math:`A'(z) - t`; the terms without :math:`z` are left out unless they make it
a familiar loss. A softmax over :math:`z` with soft target :math:`q` has the cross-entropy

.. math:: \ell(z, q) = -\sum_k q_k \log \mathrm{softmax}(z)_k. \tag{2}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from corollary import errors

__all__ = [
    "FAMILIES",
    "REGRESSION",
    "CrossEntropy",
    "LabelwiseCrossEntropy",
    "absolute",
    "binary_cross_entropy",
    "cross_entropy",
    "exponential_family",
    "half_squared",
    "hinge",
    "huber",
    "logistic",
    "margin",
    "poisson",
    "quantile",
    "regression",
    "shares",
    "squared",
    "weighted_mean",
    "zero_one",
]

Criterion = Callable[[Tensor, Tensor], Tensor]


# --- means over samples ----------------------------------------------------------------------------------


def shares(weight: Tensor) -> Tensor:
    """Return weights divided by their sum; zeros where nothing in the batch weighs anything."""
    return weight / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)


def weighted_mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Return the weighted mean of the losses of samples (n,), or of their parts (n, ...).

    >>> weighted_mean(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0]))
    tensor(2.)
    """
    if weight is None:
        return losses.mean()
    if losses.ndim == 1:
        return losses @ shares(weight)
    weight = weight.reshape(weight.shape + (1,) * (losses.ndim - weight.ndim)).expand_as(losses)
    return (losses * shares(weight)).sum()


def _per_sample(losses: Tensor) -> Tensor:
    return losses if losses.ndim < 2 else losses.flatten(1).sum(1)


# --- numbers ---------------------------------------------------------------------------------------------


def squared(output: Tensor, target: Tensor) -> Tensor:
    """Return the squared error.

    >>> squared(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor([0., 4.])
    """
    return _per_sample((output - target).square())


def half_squared(output: Tensor, target: Tensor) -> Tensor:
    """Return half the squared error: eq. 1 for a normal distribution of variance one, without its constant."""
    return _per_sample(0.5 * (output - target).square())


def absolute(output: Tensor, target: Tensor) -> Tensor:
    """Return the absolute error; its minimiser is the median."""
    return _per_sample((output - target).abs())


def huber(output: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    """Return the Huber loss: half the square up to ``delta``, linear beyond."""
    return _per_sample(F.huber_loss(output, target, reduction="none", delta=delta))


def quantile(output: Tensor, target: Tensor, level: float = 0.5) -> Tensor:
    """Return the quantile (pinball) loss; its minimiser is the quantile of this level.

    >>> quantile(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 1.0]), level=0.9)
    tensor([0.9000, 0.1000])
    """
    under = target - output
    return _per_sample(torch.maximum(level * under, (level - 1) * under))


def poisson(output: Tensor, target: Tensor) -> Tensor:
    """Return eq. 1 for counts, ``exp(output) - target * output``: the output is the logarithm of the rate."""
    return _per_sample(output.exp() - target * output)


# --- classes ---------------------------------------------------------------------------------------------


def cross_entropy(output: Tensor, target: Tensor, axis: int = 1) -> Tensor:
    """Return eq. 2 for logits with their classes on ``axis``; targets are class indices, or soft: shaped as the output.

    >>> cross_entropy(torch.zeros(1, 4), torch.tensor([2])), cross_entropy(torch.zeros(1, 4), torch.full((1, 4), 0.25))
    (tensor([1.3863]), tensor([1.3863]))
    """
    if output.ndim > 2 and axis in (-1, output.ndim - 1):  # as rows, which lie one after the other in memory
        target = target.flatten(0, -2) if target.is_floating_point() else target.flatten()
        found = F.cross_entropy(output.flatten(0, -2), target, reduction="none")
        return found.view(output.shape[:-1])
    if axis not in (1, -output.ndim + 1):
        output = output.movedim(axis, 1)
        target = target.movedim(axis, 1) if target.is_floating_point() else target
    return F.cross_entropy(output, target, reduction="none")


def zero_one(output: Tensor, target: Tensor) -> Tensor:
    """Return 1 where the class is wrong and 0 where it is right: scores (n, k) with indices, or (n,) with signs."""
    guess = output.sign() if output.shape == target.shape else output.argmax(1)
    return (guess != target).to(output.dtype)


def logistic(output: Tensor, target: Tensor) -> Tensor:
    """Return ``log(1 + exp(-target * output))`` for targets of -1 or 1."""
    return _per_sample(F.softplus(-target * output))


def binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Return the logistic loss for targets of 0 or 1, or between: eq. 1 for a Bernoulli distribution."""
    return _per_sample(F.binary_cross_entropy_with_logits(output, target, reduction="none"))


def hinge(output: Tensor, target: Tensor) -> Tensor:
    """Return ``max(0, 1 - target * output)`` for targets of -1 or 1."""
    return _per_sample((1 - target * output).clamp_min(0))


def margin(output: Tensor, target: Tensor) -> Tensor:
    """Return the hinge loss for several classes: the mean over k of ``max(0, 1 - z_target + z_k)``."""
    return F.multi_margin_loss(output, target, reduction="none")


# The log-partition A of eq. 1, with the terms that complete a familiar loss left to the functions above.
FAMILIES: dict[str, Callable[[Tensor], Tensor]] = {
    "bernoulli": F.softplus,
    "exponential": lambda z: -torch.log(-z),
    "gaussian": lambda z: 0.5 * z.square(),
    "geometric": lambda z: -torch.log(-torch.expm1(z)),
    "poisson": torch.exp,
}


def exponential_family(output: Tensor, target: Tensor, family: str) -> Tensor:
    """Return eq. 1, without log h, for a family by name; the output is the natural parameter.

    >>> exponential_family(torch.tensor([0.0]), torch.tensor([1.0]), "bernoulli")
    tensor([0.6931])
    """
    if family not in FAMILIES:
        raise errors.unknown("losses", "family", family, FAMILIES)
    return _per_sample(FAMILIES[family](output) - output * target)


# --- criteria that estimators use ------------------------------------------------------------------------

# draw(torch.rand or torch.randn, like): random numbers of a tensor's shape
Draw = Callable[[Any, Tensor], Tensor]


def exchanged(target: Tensor, share: float, draw: Draw) -> Tensor:
    """Return probabilities (..., n_classes) of which a share of rows, at random, is one class drawn evenly."""
    n_classes = target.shape[-1]
    other = (n_classes * draw(torch.rand, target[..., 0])).long().clamp(max=n_classes - 1)
    turned = draw(torch.rand, target[..., 0]) < share
    return torch.where(turned[..., None], F.one_hot(other, n_classes).to(target.dtype), target)


def tossed(target: Tensor, share: float, draw: Draw) -> Tensor:
    """Return zeros and ones of which a share, at random, is replaced by the toss of a coin."""
    coin = (draw(torch.rand, target) < 0.5).to(target.dtype)
    return torch.where(draw(torch.rand, target) < share, coin, target)


@dataclass(frozen=True)
class CrossEntropy:
    """Eq. 2 as a criterion that knows its classes, so that class indices can become soft targets.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    axis : int, default=1
        Where the classes lie in the output.
    """

    n_classes: int
    axis: int = 1

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return one loss per sample, or per part."""
        return cross_entropy(output, target, self.axis)

    def soften(self, target: Tensor, dtype: torch.dtype) -> Tensor:
        """Return targets as probabilities, classes on ``axis``; indices become indicators."""
        if target.is_floating_point():
            return target
        soft = torch.zeros(*target.shape, self.n_classes, dtype=dtype, device=target.device)
        return soft.scatter_(-1, target.unsqueeze(-1), 1.0).movedim(-1, self.axis)

    def accuracy(self, output: Tensor, target: Tensor) -> Tensor:
        """Return which guesses are right; a soft target counts as its most probable class."""
        wanted = target.argmax(self.axis) if target.is_floating_point() else target
        return output.detach().argmax(self.axis) == wanted


@dataclass(frozen=True)
class LabelwiseCrossEntropy:
    """The mean over the labels of each one's own cross-entropy, for samples that have any number of labels.

    Parameters
    ----------
    n_classes : int
        Number of labels.
    """

    n_classes: int

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return one loss per sample, of logits (n, n_classes) and zeros and ones, or probabilities, alike."""
        return F.binary_cross_entropy_with_logits(output, target, reduction="none").mean(1)

    def soften(self, target: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the targets, which are probabilities already."""
        return target.to(dtype)

    def smoothed(self, target: Tensor, share: float) -> Tensor:
        """Return targets of which a share is spread over yes and no."""
        return (1 - share) * target + share / 2

    def with_noise(self, target: Tensor, share: float, draw: Draw) -> Tensor:
        """Return targets of which a share, at random, is drawn anew."""
        return tossed(target, share, draw)

    def accuracy(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the share of each sample's labels that are right."""
        return ((output.detach() > 0) == (target > 0.5)).to(output.dtype).mean(1)


# The names of losses that regressors take.
REGRESSION: dict[str, Criterion] = {
    "absolute": absolute,
    "huber": huber,
    "poisson": poisson,
    "quantile": quantile,
    "squared": half_squared,
}


def regression(name: str, owner: str = "losses", **options: Any) -> Criterion:
    """Return the criterion of a regressor by name."""
    if name not in REGRESSION:
        raise errors.unknown(owner, "loss", name, REGRESSION)
    if not options:
        return REGRESSION[name]
    from functools import partial

    return partial(REGRESSION[name], **options)
