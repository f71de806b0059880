"""Base of the generative models: tables or images, conditioning on labels, scaling with its change of the log-density.

A model here learns from a table or from images, whichever it is given; with ``conditional=True`` also from labels. It works
on scaled, dequantised data (:mod:`corollary.generative.scaling`), and what it says and draws is about the data as given.
A subclass learns its scaling in ``_measure(data)`` and writes ``_objective(module, batch)``, ``_module()`` from
``sample_shape_`` and ``n_classes_``, and ``_draw(n, labels, rng, *, step)``, which calls ``step()`` after each of its
``_passes()``. Draws are made in parts of ``_together`` samples, so that memory grows with what is returned only.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from corollary import errors
from corollary.base import Data, Generator, as_tensor
from corollary.data import kinds
from corollary.engine.batches import TensorBatches
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.generative.scaling import Scaling
from corollary.gradient import GradientTrained
from corollary.shapes import Array, Count, Dtype, Either, Labels, List, Maybe, Plain, Record
from corollary.validation import as_given, check_count, check_target, finite, to_numpy

__all__ = ["ExactDensity", "GenerativeModel"]

CHUNK = 4096  # samples that a network sees at a time outside training
FEW = 50  # with fewer samples none are held out unless that is asked for


class GenerativeModel(Generator, GradientTrained):
    """Base of the generative models: what goes in and out, scaled and labelled."""

    input: ClassVar[str] = "table"
    also: ClassVar[tuple[str, ...]] = ("image",)
    _fitted = {
        "sample_shape_": List(Count(1)),
        "n_samples_": Count(1),
        "n_classes_": Count(),
        "classes_": Maybe(Labels("n_classes_")),
        "dtype_": Dtype(),
        "scaling_": Maybe(Record(Either(Plain(), *(Array(*(None,) * sides) for sides in range(5))))),
    }
    conditional: bool = False  # a parameter of the models that take labels
    _together: ClassVar[int] = CHUNK  # samples that are drawn at a time

    def fit(self, X, y=None, *, validation=None):
        """Learn from a table (n, d) or images (n, h, w) or (n, c, h, w); labels y count if ``conditional``.

        ``validation`` is a tuple (X, y), or (X,), on which the loss is measured after every epoch.
        """
        return self._fit(X, y, validation=validation)

    # --- what goes in ------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> Any:
        name, fitted = type(self).__name__, None if reset else self.sample_shape_
        if _are_images(X):
            images = kinds.check_images(X, name, levels=self._pixel_levels())
            if fitted is not None and images.shape[1:] != tuple(fitted):
                must = f"samples must have the fitted shape {_shape(fitted)}"
                raise errors.value(name, must, _shape(images.shape[1:]))
            return images
        if fitted is not None and len(fitted) == 3:
            must = f"samples must be images of shape {_shape(fitted)}, as in fit"
            raise errors.value(
                name, must, f"shape {np.shape(X)}", f"Pass X.reshape(-1, {_shape(fitted)[1:-1]})."
            )
        return super()._check(X, reset)

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        shape = tuple(int(side) for side in data.X.shape[1:])
        self._warn_of_sameness(data.X)
        return {
            "sample_shape_": shape,
            "n_features_in_": math.prod(shape),
            "n_samples_": len(data.X),
            "n_classes_": len(getattr(self, "classes_", ())) if self.conditional else 0,
        }

    def _warn_of_sameness(self, X: np.ndarray) -> None:
        """Say that nothing can be learned of samples that are all the same, or of labels of which there is one."""
        name, found = type(self).__name__, []
        if len(X) > 1 and np.array_equal(X[0], X[-1]) and bool((X == X[:1]).all()):
            found.append(
                (
                    "samples must differ to be learned from",
                    f"{len(X)} that are all alike",
                    "Draws will be like them.",
                )
            )
        if self.conditional and len(self.classes_) == 1:
            one = f"{self.classes_[0]!s} in all of them"
            found.append(("conditional=True needs labels that differ", one, "Set conditional=False."))
        for must, got, do in found:
            warnings.warn(errors.wording(name, must, got, do), errors.CorollaryWarning, stacklevel=9)

    def _plan(self, n: int | None = None) -> Training:
        plan, asked = super()._plan(n), getattr(self.training, "early_stopping", None)
        if plan.early_stopping and asked is None and self.n_samples_ < FEW:
            return plan.overridden(early_stopping=False)
        return plan

    def _check_y(self, X: Any, y: Any) -> Any:
        if not self.conditional:
            return None
        name = type(self).__name__
        if y is None:
            do = "Pass y to fit, or set conditional=False."
            raise errors.value(name, "conditional=True needs labels", "y=None", do)
        y = check_target(self, X, y)
        if y.dtype.kind == "f" and (y != y.round()).any():
            got = f"{len(np.unique(y))} different numbers with fractions"
            do = "Bin them, or pass y.astype(str) if each is a class."
            raise errors.value(name, "conditional=True needs labels that name classes", got, do)
        self.classes_, codes = np.unique(y, return_inverse=True)
        return codes.astype(np.int64)

    def _known_y(self, X: Any, y: Any) -> Any:
        return self._codes(y, len(X)).numpy() if self.conditional else None  # type: ignore[union-attr]

    def _batches(self, data: Data) -> TensorBatches:
        x = as_tensor(data.X.astype(self.dtype_, copy=False))
        return TensorBatches(x, None if data.y is None else as_tensor(data.y))

    def _aim(self) -> Any:
        return self._objective  # type: ignore[attr-defined]

    def _codes(self, label: Any, n: int, rng: np.random.Generator | None = None) -> Tensor | None:
        """Return the classes (n,) of one label or of n; drawn evenly if there is none."""
        name = type(self).__name__
        if not self.conditional:
            if label is not None:
                do = "Fit with conditional=True and labels."
                raise errors.value(name, "only a conditional model takes labels", repr(label), do)
            return None
        if label is None:
            if rng is None:
                raise errors.value(name, "a conditional model needs y", "None", "Pass the samples' labels.")
            return torch.from_numpy(rng.integers(self.n_classes_, size=n))
        labels = np.broadcast_to(np.asarray(label), (n,)) if np.ndim(label) == 0 else np.asarray(label)
        if labels.shape != (n,):
            raise errors.value(name, f"labels must be one or {n}", f"shape {labels.shape}")
        strange = [str(value) for value in np.unique(labels) if value not in self.classes_]
        if strange:
            known = [str(value) for value in self.classes_]
            if strange[0] in known:  # the number 1 for "1", or the other way round
                like, got = type(self.classes_[0]).__name__, type(labels.flat[0]).__name__
                raise errors.value(
                    name, f"labels must be of their type in fit, {like}", f"{strange[0]} as {got}"
                )
            raise errors.unknown(name, "label", strange[0], known)
        return torch.from_numpy(np.searchsorted(self.classes_, labels))

    def _known(self, X: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return checked samples and which entries are known, both (n, ...); what stands in the others does not matter."""
        shape, mask = np.shape(X), self._mask(mask, np.shape(X))
        if not hasattr(X, "iloc") and np.asarray(X).dtype.kind == "f":  # gaps may be marked by NaN
            known = np.broadcast_to(mask, (len(X), *self.sample_shape_)).reshape(shape)
            X = np.where(known, np.asarray(X), 0).astype(np.asarray(X).dtype)
        given = self._query(X)
        return given, np.broadcast_to(mask, given.shape)

    def _mask(self, mask: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Return a mask for samples of a shape as booleans, (1 or n, *one sample); a mask (h, w) is for all channels."""
        name, sample, mask = type(self).__name__, tuple(self.sample_shape_), np.asarray(to_numpy(mask))
        images = len(sample) == 3
        channels_alike = (sample[1:], shape[:1] + sample[1:]) if images else ()
        if mask.shape not in (shape, shape[1:], shape[:1] + sample, sample, *channels_alike):
            must = f"mask must have the shape of X {_shape(shape)} or of one sample {_shape(sample)}"
            raise errors.value(name, must, _shape(mask.shape))
        if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
            got = f"{str(mask.flat[np.argmin(np.isin(mask, (0, 1)))])!r} among others"
            do = "For a picture of grey levels pass picture > 127."
            raise errors.value(name, "mask must hold True (known) and False only", got, do)
        if mask.shape != sample and mask.shape in channels_alike:
            mask = mask.reshape(-1, 1, *sample[1:]).repeat(sample[0], axis=1)
        return mask.reshape(-1, *sample).astype(bool)

    # --- scaling -----------------------------------------------------------------------------------------

    def _scale(self, X: np.ndarray, kind: str = "standard", dequantise: bool = True) -> Tensor:
        """Learn the scaling of the training data; return them as a tensor, still as given; images in single precision."""
        X = X.astype(np.float32) if X.ndim == 4 else X
        self.dtype_ = str(X.dtype)
        self.scaling_ = Scaling.learn(X, kind, dequantise).plain()
        return as_tensor(X)

    @property
    def _scaling(self) -> Scaling:
        return Scaling(**self.scaling_)

    def _mapped(self, X: np.ndarray, call: Any, y: Any = None, noise: Any = 0.5) -> np.ndarray:
        """Return ``call(z, log_det, codes)`` for samples as given, scaled and in chunks, as an array."""
        codes, parts = self._codes(y, len(X)), []
        like = next(self.module_.parameters())
        u = torch.as_tensor(noise, dtype=like.dtype, device=like.device)
        with torch.inference_mode():
            for begin in range(0, len(X), CHUNK):
                rows = slice(begin, begin + CHUNK)
                x = as_tensor(X[rows]).to(device=like.device, dtype=like.dtype)
                label = None if codes is None else codes[rows].to(like.device)
                parts.append(call(*self._scaling.forward(x, u), label).cpu())
        return torch.cat(parts).numpy()

    def _points(self, Z: Any, what: str, d: int) -> np.ndarray:
        """Return points (n, d) of a space of codes as an array of finite numbers."""
        name, given = type(self).__name__, np.asarray(to_numpy(Z))
        if given.ndim != 2 or given.shape[1] != d:
            raise errors.value(name, f"{what} must have shape (n, {d})", f"shape {given.shape}")
        if given.dtype.kind not in "biuf":
            raise errors.value(name, f"{what} must be numbers", f"type {given.dtype}")
        if not np.isfinite(given).all():
            got = f"{int((~np.isfinite(given)).sum())} of {given.size} that are not"
            raise errors.value(name, f"{what} must be finite", got, "Leave those rows out.")
        return given

    # --- what comes out ----------------------------------------------------------------------------------

    def sample(self, n_samples: int = 1, label: Any = None) -> Any:
        """Draw new samples, of one label or of n_samples labels if the model is conditional.

        With an integer ``random_state`` every call draws the same ones. Values lie on the data's grid where it had one.
        Of a frame with words or gaps the numbers are drawn that it became: ``data.table_of(drawn, model.columns_)`` is a frame
        like it.
        """
        check_is_fitted(self)
        check_count(self, "n_samples", n_samples)
        rng = self._rng()
        return self._sample(n_samples, rng, self._codes(label, n_samples, rng))

    def _sample(
        self, n: int, rng: np.random.Generator, codes: Tensor | None = None, **how: Any
    ) -> np.ndarray:
        device, found = next(self.module_.parameters()).device, []
        with torch.inference_mode(), self._progress(n, self._passes(**how)) as step:
            for rows in self._parts(n):
                label = None if codes is None else codes[rows].to(device)
                z = self._draw(rows.stop - rows.start, label, rng, step=step, **how)
                x = self._scaling.backward(z.reshape(-1, *self.sample_shape_))
                found.append(finite(self, x.cpu().numpy()))
        drawn = np.concatenate(found)
        return drawn.clip(0, 1) if len(self.sample_shape_) == 3 else drawn

    def _parts(self, n: int) -> Iterator[slice]:
        """Yield the samples that are drawn together."""
        for begin in range(0, n, self._together):
            yield slice(begin, min(n, begin + self._together))

    @contextmanager
    def _progress(self, n: int, passes: int) -> Iterator[Callable[[], None]]:
        """Yield a function to call after each of the passes over every part of n samples; it moves a progress bar."""
        done = itertools.count(1)
        with current().bar(type(self).__name__, passes * -(-n // self._together), 0) as show:
            yield lambda: show({"step": next(done)})

    def _passes(self, **how: Any) -> int:
        """Return how many steps a part of the samples takes."""
        return 1

    def _draw(
        self,
        n: int,
        labels: Tensor | None,
        rng: np.random.Generator,
        *,
        step: Callable[[], None],
        **how: Any,
    ) -> Tensor:
        """Return n samples in the scaled space; ``how`` is what the model's own ``sample`` passes on."""
        raise NotImplementedError

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
        """Return standard normal numbers of the network's type, on its device."""
        like = next(self.module_.parameters())
        return torch.from_numpy(rng.standard_normal(shape)).to(device=like.device, dtype=like.dtype)


class ExactDensity:
    """Has a density of the data as given. Hook: ``_log_density(z, codes)`` of scaled samples, (n,)."""

    role = "density"

    def score_samples(self, X: Any, y: Any = None) -> Any:
        """Return the log-density of each sample, in nats; given its label if the model is conditional.

        Values on a grid are taken in the middle of a step's noise, so that a score does not depend on chance.
        """
        return as_given(X, self._log_prob(self._query(X), y))  # type: ignore[attr-defined]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density per sample, in nats."""
        y = y if self.conditional else None  # type: ignore[attr-defined]
        return float(np.mean(np.asarray(self.score_samples(X, y), dtype=np.float64)))

    def bits_per_dimension(self, X: Any, y: Any = None, n_draws: int = 4) -> np.ndarray:
        """Return bits per dimension of each sample, eq. 2 of the scaling, averaged over draws of the noise.

        The discrete probability of data on a grid is at least two to the minus this many bits, times dimensions.
        """
        X = self._query(X)  # type: ignore[attr-defined]
        rng = np.random.default_rng(0)
        n_draws = n_draws if self._scaling.step.any() else 1  # type: ignore[attr-defined]
        noises = rng.random((n_draws, *self.sample_shape_))  # type: ignore[attr-defined]
        found = np.mean([self._log_prob(X, y, u) for u in noises], axis=0)
        return self._scaling.bits(found, self.n_features_in_)  # type: ignore[attr-defined]

    def _log_prob(self, X: np.ndarray, y: Any = None, noise: Any = 0.5) -> np.ndarray:
        def density(z: Tensor, log_det: Tensor, codes: Tensor | None) -> Tensor:
            found: Tensor = self._log_density(z, codes) + log_det  # type: ignore[attr-defined]
            return found

        return self._mapped(X, density, y, noise)  # type: ignore[attr-defined, no-any-return]


def _are_images(X: Any) -> bool:
    """Whether these are images, not rows of a table: three axes or more, or a list of pictures."""
    if hasattr(X, "shape"):
        return len(X.shape) >= 3
    return isinstance(X, list | tuple) and len(X) > 0 and (hasattr(X[0], "getbands") or np.ndim(X[0]) >= 2)


def _shape(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"
