"""What the attacks share: any classifier as a differentiable map to logits, checked inputs, and the result.

A model is a ``torch.nn.Module`` in evaluation mode that gives logits (n, n_classes), or one logit of two classes; or a fitted
classifier of the library for tables, images, or sets and sequences of real numbers that have one size, whose labels and whose
form of inputs are then used: a network, a linear model, an infinitely wide network (NNGP, NTK), a posterior of weights, or what
is made of such. Whatever is done to an input before the network belongs to the model: standardisation inside ``module_`` is
attacked with it, and ``bounds`` are those of the raw inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary import errors
from corollary.attack.balls import lengths
from corollary.engine.random import generator
from corollary.gradient import known_codes
from corollary.validation import as_given, as_tensor, to_numpy

__all__ = [
    "Attack",
    "AttackResult",
    "Given",
    "check_bounds",
    "objective",
    "prepare",
    "scores_of",
    "two_columns",
]

SLACK = 1e-6  # share of the range by which rounding may put an input outside its bounds
Scores = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class AttackResult:
    """What an attack found, one entry per sample; arrays for arrays, tensors for tensors.

    Attributes
    ----------
    adversarial : array of the shape of X
        The changed inputs, within ``bounds``.
    success : array of bool, shape (n,)
        Whether the model no longer gives the label (or, for a targeted attack, gives the target).
    distance : array of shape (n,)
        Norm of the change.
    steps : array of int, shape (n,)
        Gradient steps until the returned input was found.
    loss : array of shape (n,)
        Cross-entropy (or margin) of the label, or of the target, at the returned input.
    size : array of shape (n,)
        Norm of the unchanged input.
    norm : str
        In which norm distances are measured.
    """

    adversarial: Any
    success: Any
    distance: Any
    steps: Any
    loss: Any
    size: Any
    norm: str

    @property
    def success_rate(self) -> float:
        """Share of the samples on which the attack succeeded."""
        return float(np.mean(to_numpy(self.success)))

    @property
    def robustness(self) -> float:
        """The score rho: mean over the successes of the change's norm divided by the input's; infinite if an input is zero."""
        won = np.asarray(to_numpy(self.success))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.asarray(to_numpy(self.distance)) / np.asarray(to_numpy(self.size))
        return float(ratio[won].mean()) if won.any() else float("inf")


@dataclass(frozen=True)
class Given:
    """A model and data as an attack works on them."""

    scores: Scores  # (n, ...) -> logits (n, n_classes)
    x: Tensor
    y: Tensor  # class numbers (n,)
    low: Tensor | None  # bounds that fit x, or None
    high: Tensor | None
    back: Callable[[Tensor], Any]  # changed inputs in the form of X
    like: Any  # what results take their form from
    labels: Any = None  # the classes of an estimator

    def result(
        self, adversarial: Tensor, success: Tensor, steps: Tensor, loss: Tensor, norm: str
    ) -> AttackResult:
        """Return what was found in the form in which the data came."""
        distance = lengths(adversarial - self.x, norm)
        per_sample = [success, distance, steps, loss, lengths(self.x, norm)]
        found = [as_given(self.like, each.cpu().numpy()) for each in per_sample]
        return AttackResult(self.back(adversarial), *found, norm)


class Attack(BaseEstimator):  # type: ignore[misc]
    """Base of the attacks as objects: parameters that are stored, and a call with a model and data."""

    def _search(self, given: Given, rng: torch.Generator) -> AttackResult:
        raise NotImplementedError

    def _check(self) -> None:
        """Raise if a parameter cannot be used."""

    def __call__(self, model: Any, X: Any, y: Any = None, *, random_state: Any = None) -> AttackResult:
        """Attack a model on inputs X with labels y, by default those that the model gives.

        Parameters
        ----------
        model : torch.nn.Module or fitted classifier
            A module must be in evaluation mode and return logits.
        X : array or tensor of shape (n, ...)
            Inputs, within ``bounds``.
        y : array of shape (n,), optional
            Labels of a classifier, or class numbers of a module; for a targeted attack, what it shall say.
        random_state : int or RandomState, optional
            Seed of the random starts.

        Returns
        -------
        AttackResult
        """
        self._check()
        name = type(self).__name__
        if y is None and getattr(self, "targeted", False):
            raise errors.value(name, "a targeted attack needs y, the classes to reach", "none")
        given = prepare(model, X, y, self.bounds, name)
        seed = int(check_random_state(random_state).randint(2**31 - 1)) if random_state is not None else None
        seed = int(np.random.default_rng().integers(2**31 - 1)) if seed is None else seed
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
            _check_gradient(given, name)
            return self._search(given, generator(seed, given.x.device))

    def _check_count(self, *names: str) -> None:
        for name in names:
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
                must = f"{name} must be an integer of at least 1"
                raise errors.value(type(self).__name__, must, repr(number))

    def _check_number(self, name: str, low: float, *, above: bool = False, optional: bool = False) -> None:
        number = getattr(self, name)
        if number is None and optional:
            return
        right = isinstance(number, Real) and not isinstance(number, bool) and np.isfinite(number)
        if not right or number < low or (above and number == low):
            bound = f"above {low:g}" if above else f"of at least {low:g}"
            raise errors.value(type(self).__name__, f"{name} must be a finite number {bound}", repr(number))


# --- the model -------------------------------------------------------------------------------------------


def prepare(model: Any, X: Any, y: Any, bounds: Any, owner: str) -> Given:
    """Return model and data as an attack works on them; raise if they cannot be attacked."""
    if isinstance(model, nn.Module):
        scores, x, back, labels = _module(model, X, owner)
    elif hasattr(model, "get_params") and hasattr(model, "predict"):
        scores, x, back, labels = _estimator(model, X, owner)
    else:
        must = "model must be a torch.nn.Module or a fitted classifier"
        raise errors.kind(owner, must, type(model).__name__)
    if not len(x):
        raise errors.value(owner, "X must hold at least one sample", f"shape {tuple(x.shape)}")
    if not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).flatten(1).any(1).sum())
        raise errors.value(owner, "X must be finite", f"NaN or infinity in {bad} samples", "Leave them out.")
    scores = two_columns(scores)
    first = _first(scores, x, owner)
    if not isinstance(first, Tensor) or first.ndim != 2 or len(first) != 1:
        got = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise errors.value(owner, "the model must return logits (n, n_classes)", f"{got} for one sample")
    low, high = check_bounds(bounds, x, owner)
    if y is None:
        codes = torch.cat([_say(scores, rows, owner) for rows in x.split(256)])
    elif labels is not None:
        codes = torch.as_tensor(known_codes(model, _column(to_numpy(y), x, owner)), device=x.device)
    else:
        codes = _codes(y, x, first.shape[1], owner)
    return Given(scores, x, codes, low, high, back, X, labels)


def _first(scores: Scores, x: Tensor, owner: str) -> Any:
    """Return the answer to the first sample."""
    try:
        with torch.no_grad():
            return scores(x[:1])
    except (IndexError, RuntimeError, TypeError) as error:
        must = f"the model must take samples of shape {tuple(x.shape[1:])}, those of X, in a batch"
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise errors.value(owner, must, text.rstrip(".")) from error


def _check_gradient(given: Given, owner: str) -> None:
    """Raise if the logits do not depend on the inputs in a way that torch can differentiate."""
    point = given.x[:1].clone().requires_grad_()
    z = given.scores(point)
    if not z.requires_grad or torch.autograd.grad(z.sum(), point, allow_unused=True)[0] is None:
        must = "the logits must have a gradient by the inputs"
        do = "Leave out detach(), no_grad() and NumPy inside the model."
        raise errors.value(owner, must, "logits that torch cannot differentiate", do)


def _module(model: nn.Module, X: Any, owner: str) -> tuple[Scores, Tensor, Callable[[Tensor], Any], None]:
    if any(part.training for part in model.modules()):
        must = "the model must be in evaluation mode, so that it gives one answer"
        raise errors.value(owner, must, "a model in training mode", "Call model.eval().")
    given = X if isinstance(X, Tensor) else as_tensor(np.asarray(X))
    if not given.is_floating_point():
        do = "Pass floats, such as X / 255 for pixels of one byte."
        raise errors.kind(owner, "X must hold real numbers", str(given.dtype).removeprefix("torch."), do)
    like = next((p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()), given)
    x = given.detach().to(device=like.device, dtype=like.dtype)

    def back(found: Tensor) -> Any:
        found = found.detach().to(device=given.device, dtype=given.dtype)
        return found if isinstance(X, Tensor) else found.numpy()

    return model, x, back, None


def _estimator(model: Any, X: Any, owner: str) -> tuple[Scores, Tensor, Callable[[Tensor], Any], Any]:
    check_is_fitted(model)
    scores, like = scores_of(model, owner)
    checked = model._query(X) if hasattr(model, "_query") else np.asarray(to_numpy(X), dtype=np.float64)
    if isinstance(checked, list):
        sizes = sorted({np.shape(part) for part in checked})
        if len(sizes) > 1:
            must = "sets and sequences must all have one size"
            raise errors.value(
                owner, must, f"shapes {sizes[0]} and {sizes[-1]}", "Attack those of each size."
            )
        checked = np.stack(checked)
    if not isinstance(checked, np.ndarray) or checked.dtype.kind != "f":
        must = "the inputs must be real numbers in arrays of one shape"
        raise errors.value(owner, must, f"codes or others, which {type(model).__name__} takes")
    shape = tuple(getattr(X, "shape", checked.shape))
    dtype = checked.dtype

    def back(found: Tensor) -> Any:
        array = found.detach().cpu().numpy().astype(dtype)
        if array.shape != shape and array.ndim == 4:  # one channel, or channels last
            array = array[:, 0] if len(shape) == 3 else np.moveaxis(array, 1, -1)
        return as_given(X, array)

    return scores, as_tensor(checked).to(device=like.device, dtype=like.dtype), back, model.classes_


def scores_of(model: Any, owner: str) -> tuple[Scores, Tensor]:
    """Return the map from checked inputs to logits of a fitted classifier, and a tensor of the type and device it takes."""
    if hasattr(model, "_differentiable"):
        return model._differentiable()  # type: ignore[no-any-return]
    if hasattr(model, "coef_") and hasattr(model, "classes_"):
        return _line(model)
    must, do = "the classifier must have a gradient", "Attack a network, a kernel machine or a linear model."
    raise errors.value(owner, must, type(model).__name__, do)


def _line(model: Any) -> tuple[Scores, Tensor]:
    """Return the scores of a linear classifier: of every class, or one of the second of two."""
    W, b = as_tensor(np.atleast_2d(model.coef_)).double(), as_tensor(np.atleast_1d(model.intercept_)).double()
    return lambda x: F.linear(x, W, b), W


def two_columns(scores: Scores) -> Scores:
    """Return logits of both classes where a model gives one of the second, and the first of several outputs."""

    def both(x: Tensor) -> Tensor:
        z = scores(x)
        z = z[0] if isinstance(z, tuple) else z
        if not isinstance(z, Tensor) or z.ndim > 2 or z.shape[1:] not in ((), (1,)):
            return z
        z = z.reshape(len(z))
        return torch.stack([torch.zeros_like(z), z], 1)

    return both


def _say(scores: Scores, x: Tensor, owner: str) -> Tensor:
    """Return the class numbers that a model gives."""
    with torch.no_grad():
        z = scores(x)
    if not torch.isfinite(z).all():
        raise errors.value(owner, "the model's logits must be finite", "NaN or infinity")
    return z.argmax(1)


# --- the data --------------------------------------------------------------------------------------------


def _column(y: Any, x: Tensor, owner: str) -> np.ndarray:
    array = np.asarray(y)
    if array.shape != (len(x),):
        raise errors.value(owner, f"y must have one label per sample ({len(x)})", f"shape {array.shape}")
    return array


def _codes(y: Any, x: Tensor, n_classes: int, owner: str) -> Tensor:
    array = _column(to_numpy(y), x, owner)
    if array.dtype.kind not in "iub":
        raise errors.kind(owner, "y must hold class numbers", f"dtype {array.dtype}", "Pass integers.")
    if array.min() < 0 or array.max() >= n_classes:
        got = array[(array < 0) | (array >= n_classes)][0]
        must = f"labels must lie between 0 and {n_classes - 1}, the model's last class"
        raise errors.value(owner, must, int(got))
    return torch.as_tensor(array.astype(np.int64), device=x.device)


def check_bounds(bounds: Any, x: Tensor, owner: str) -> tuple[Tensor | None, Tensor | None]:
    """Return the ends of the range of inputs; raise if an input lies outside."""
    if bounds is None:
        return None, None
    try:
        low, high = (torch.as_tensor(end, dtype=x.dtype, device=x.device) for end in bounds)
        shown = f"({', '.join(f'{float(end):g}' if end.ndim == 0 else '...' for end in (low, high))})"
        torch.broadcast_to(low, x[:1].shape), torch.broadcast_to(high, x[:1].shape)
    except (TypeError, ValueError, RuntimeError) as error:
        must = (
            f"bounds must be None or (low, high), numbers or arrays of a sample's shape {tuple(x.shape[1:])}"
        )
        raise errors.value(owner, must, repr(bounds)) from error
    if not bool((low < high).all()):
        raise errors.value(owner, "the lower bound must lie below the upper", f"bounds={shown}")
    slack = SLACK * (high - low).nan_to_num(posinf=0.0)
    do = "Put the normalisation inside the model, or pass other bounds=."
    for wrong, found in (
        (x < low - slack, f"minimum {float(x.min()):.4g}"),
        (x > high + slack, f"maximum {float(x.max()):.4g}"),
    ):
        if bool(wrong.any()):
            raise errors.value(owner, f"inputs must lie in bounds={shown}", found, do)
    return low, high


# --- what is maximised -----------------------------------------------------------------------------------


def objective(z: Tensor, y: Tensor, loss: str) -> Tensor:
    """Return the cross-entropy of the labels, or by how much another logit exceeds theirs, (n, K), (n,) -> (n,)."""
    if loss == "cross-entropy":
        return F.cross_entropy(z, y, reduction="none")
    own = z.gather(1, y[:, None])[:, 0]
    return z.scatter(1, y[:, None], -torch.inf).amax(1) - own
