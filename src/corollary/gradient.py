"""Estimators that are trained by gradients: what they share beyond the contract of :mod:`corollary.base`.

A subclass stores ``training`` and ``random_state``, builds ``_module()`` from fitted sizes, and returns
``self._descend(objective, batches)`` from ``_learner``. Classifiers, regressors and taggers get weights, soft targets and
losses from the three classes at the end, so that every one of them takes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from corollary import errors
from corollary.base import Classifier, Data, Estimator, Regressor, Tagger, as_tensor
from corollary.engine.loop import EarlyStopping
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.shapes import Array, Count, Flag, Maybe, Module

__all__ = ["GradientClassifier", "GradientRegressor", "GradientTagger", "GradientTrained"]


class GradientTrained(Estimator):
    """Base of the estimators that descend: ``training`` is theirs to take."""

    _training_defaults: ClassVar[Mapping[str, Any]] = {}
    # What a model that starts from weights of another model keeps when it is cloned.
    _start: ClassVar[tuple[str, ...]] = ("pretrained_",)
    _fitted = {"module_": Module(), "pretrained_": Maybe(Flag())}
    training: Training | None

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``training__epochs=5`` works even where ``training`` is None."""
        if self.training is None and any(key.startswith("training__") for key in params):
            self.training = Training()
        super().set_params(**params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a network; weights to start from are none."""
        return hasattr(self, "module_")

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; one of a fine-tuned model starts from the same pre-trained weights."""
        copied = super().__sklearn_clone__()
        if hasattr(self, "pretrained_"):
            vars(copied).update({name: vars(self)[name] for name in self._start if name in vars(self)})
        return copied  # type: ignore[no-any-return]

    def _saved_attributes(self) -> dict[str, Any]:
        """Return what a file holds: the weights once; a loaded model is tuned further from its own."""
        kept = super()._saved_attributes()
        return {**kept, "pretrained_": True} if "pretrained_" in kept else kept

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        tuned = fitted.pop("pretrained_", False)
        super()._load_attributes(fitted)
        if tuned:
            self.pretrained_ = self._tuned_weights()

    def _tuned_weights(self) -> dict[str, Any]:
        """Return the weights of the network that a further fit starts from."""
        return dict(self.module_.state_dict())

    def _plan(self) -> Training:
        training = self.training if self.training is not None else Training()
        if not isinstance(training, Training):
            raise errors.kind(type(self).__name__, "training must be a Training", repr(training))
        return training.resolved(**self._training_defaults)

    def _stopping(self) -> EarlyStopping | None:
        return self._plan().stopping()

    def _total(self, learner: Any) -> int | None:
        return int(learner.training.epochs)

    def _descend(
        self,
        objective: Any,
        batches: Any,
        *,
        gradient: Any = None,
        validation: Any = None,
        rule: str | None = None,
    ) -> Any:
        """Return the gradient learner over batches, with a validation part if stopping asks for one.

        ``objective`` is one, or the players of a game with its ``rule``; ``validation`` are batches that the data bring.
        """
        from corollary.engine.batches import TensorBatches
        from corollary.engine.random import seeded
        from corollary.engine.sgd import CHUNK, GradientLearner, evaluate

        plan, seed, run = self._plan(), self._seed(), current()
        with seeded(seed):
            module = self._module()
        batches = batches.to(run.device)
        # What pads its batches is evaluated in batches of that size too.
        chunk = CHUNK if type(batches) is TensorBatches else plan.batch_size
        if validation is not None:
            validation = validation.to(run.device)
        elif plan.early_stopping:
            kept, held = _hold_out(batches, plan.validation_fraction, seed, type(self).__name__)
            batches, validation = batches.take(kept), batches.take(held)
        validate = None
        if validation is not None:
            validate = partial(evaluate, objective, batches=validation, batch_size=chunk)
        return GradientLearner(
            module,
            objective,
            batches,
            plan,
            run,
            seed=seed,
            owner=type(self).__name__,
            validate=validate,
            gradient=gradient,
            rule=rule,
        )

    def _adopt(self, learner: Any) -> None:
        self.module_ = learner.result()
        self.n_iter_ = learner.epoch

    def _as_weight(self, weight: np.ndarray | None) -> Any:
        """Return weights as a tensor of the network's type."""
        return None if weight is None else as_tensor(weight.astype(getattr(self, "dtype_", "float32")))

    def _forward(self, X: np.ndarray, call: Any = None, chunk: int = 4096) -> np.ndarray:
        """Return the module's output for rows of X, in chunks, as an array."""
        import torch

        call = call or self.module_
        like = next(self.module_.parameters())
        parts = []
        with torch.inference_mode():
            for begin in range(0, len(X), chunk):
                rows = as_tensor(X[begin : begin + chunk]).to(device=like.device, dtype=like.dtype)
                parts.append(call(rows).cpu())
        return torch.cat(parts).numpy()


def _hold_out(batches: Any, fraction: float, seed: int, owner: str) -> tuple[Any, Any]:
    """Return which samples are learned from and which are held out, with like shares of every class."""
    import torch
    from sklearn.model_selection import train_test_split

    n, target = len(batches), getattr(batches, "target", None)
    if n < 2 or int(n * fraction) < 1:
        raise errors.value(owner, f"early_stopping needs at least {int(1 / fraction) + 1} samples", n)
    stratify = None
    if isinstance(target, torch.Tensor) and target.ndim == 1 and not target.is_floating_point():
        stratify = target.cpu().numpy() if int(target.bincount().min()) >= 2 else None
    kept, held = train_test_split(np.arange(n), test_size=fraction, random_state=seed, stratify=stratify)
    return torch.from_numpy(np.sort(kept)), torch.from_numpy(np.sort(held))


# --- classes, numbers, labels of parts -------------------------------------------------------------------


class GradientClassifier(Classifier, GradientTrained):
    """A classifier whose criterion is the cross-entropy: weighted samples and classes, hard or soft targets."""

    _soft_targets = True

    def fit(self, X, y=None, sample_weight=None):
        """Train on X with labels y (n,), or probabilities y (n, n_classes), optionally weighted."""
        return self._fit(X, y, sample_weight)

    def _supervision(self, data: Data) -> tuple[Any, Any]:
        """Return targets and weights as tensors."""
        target = as_tensor(data.y)
        if target.is_floating_point():
            target = as_tensor(data.y.astype(getattr(self, "dtype_", "float32")))
        return target, self._as_weight(self._weights(data))

    def _criterion(self, axis: int = 1) -> Any:
        from corollary.losses import CrossEntropy

        return CrossEntropy(len(self.classes_), axis)


class GradientTagger(Tagger, GradientTrained):
    """A tagger whose criterion is the cross-entropy of every part, weighted by its sequence and its class."""

    def fit(self, X, y=None, sample_weight=None):
        """Train on X with one list of labels y for each, optionally weighted."""
        return self._fit(X, y, sample_weight)

    def _supervision(self, data: Data, codes: list[np.ndarray] | None = None) -> tuple[Any, Any]:
        """Return the classes of the parts, and their weights; both ragged, so that padding weighs nothing."""
        from corollary.engine.ragged import Ragged

        codes = data.y if codes is None else codes
        weights = self._weights(codes, data.sample_weight)
        return Ragged.of(codes), Ragged.of([w.astype(getattr(self, "dtype_", "float32")) for w in weights])

    def _criterion(self) -> Any:
        from corollary.losses import CrossEntropy

        return CrossEntropy(len(self.classes_), axis=-1)


class GradientRegressor(Regressor, GradientTrained):
    """A regressor with a choice of loss; targets are standardised while training, except where they are counts.

    A subclass has ``loss`` and ``quantile`` among its parameters.
    """

    _fitted = {
        "n_outputs_": Count(1),
        "target_ndim_": Count(1, 3),
        "target_mean_": Array("n_outputs_"),
        "target_scale_": Array("n_outputs_"),
    }

    def fit(self, X, y=None, sample_weight=None):
        """Train on X with targets y (n,), or (n, k) where the model takes several, optionally weighted."""
        return self._fit(X, y, sample_weight)

    def _criterion(self) -> Any:
        from corollary.losses import regression

        options = {"level": self.quantile} if self.loss == "quantile" else {}
        return regression(self.loss, type(self).__name__, **options)

    def _supervision(self, data: Data) -> tuple[Any, Any]:
        """Remember the targets' shape, shift and scale; return them (n, n_outputs), and the weights, as tensors."""
        y = np.asarray(data.y, dtype=np.float64).reshape(len(data.y), -1)
        self.target_ndim_, self.n_outputs_ = data.y.ndim, y.shape[1]
        if self.loss == "poisson":
            if y.min() < 0:
                must, do = "loss='poisson' needs targets that are not negative", "Use loss='squared'."
                raise errors.value(type(self).__name__, must, f"minimum {y.min():g}", do)
            self.target_mean_, self.target_scale_ = np.zeros(y.shape[1]), np.ones(y.shape[1])
        else:
            self.target_mean_ = np.average(y, axis=0, weights=data.sample_weight)
            spread = np.sqrt(np.average((y - self.target_mean_) ** 2, axis=0, weights=data.sample_weight))
            self.target_scale_ = np.where(spread > 0, spread, 1.0)
        scaled = ((y - self.target_mean_) / self.target_scale_).astype(getattr(self, "dtype_", "float32"))
        return as_tensor(scaled), self._as_weight(data.sample_weight)

    def _unscaled(self, output: np.ndarray) -> np.ndarray:
        """Return outputs of the network as targets."""
        if self.loss == "poisson":
            output = np.exp(output)
        y = output * self.target_scale_.astype(output.dtype) + self.target_mean_.astype(output.dtype)
        return y[:, 0] if self.target_ndim_ == 1 else y
