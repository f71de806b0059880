"""The base class of all estimators trained by gradient descent: the training plan, the learner, and further data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from corollary import errors
from corollary.base import Data, Estimator, as_tensor, check_count
from corollary.data.sources import Source
from corollary.engine.budget import Budget
from corollary.engine.loop import EarlyStopping
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.gradient.exporting import Exportable
from corollary.shapes import Flag, Maybe, Module
from corollary.tuning import Tunable

__all__ = ["GradientTrained"]


ENOUGH = 500  # rows from which on a tenth is held out for early stopping


class GradientTrained(Exportable, Tunable, Estimator):
    """Base of all estimators trained by gradient descent, with a parameter ``training``.

    One that makes its batches with ``corollary.engine.sources.batches_of`` says ``_reads_sources = True``.
    """

    _training_defaults: ClassVar[Mapping[str, Any]] = {}
    # Batch size and epochs from the number of samples, where the class has such a rule.
    _budget: ClassVar[Budget | None] = None
    _fitted = {"module_": Module(), "pretrained_": Maybe(Flag())}
    training: Training | None

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``training__epochs=5`` works even where ``training`` is None."""
        if self.training is None and any(key.startswith("training__") for key in params):
            self.training = Training()
        super().set_params(**params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a network has been trained; pre-trained weights to start from do not count."""
        return hasattr(self, "module_")

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; one of a fine-tuned model starts from the same pre-trained weights."""
        copied = super().__sklearn_clone__()
        if hasattr(self, "pretrained_"):
            vars(copied).update({name: vars(self)[name] for name in self._start if name in vars(self)})
        return copied  # type: ignore[no-any-return]

    def _saved_attributes(self) -> dict[str, Any]:
        """Return the attributes to save; of a fine-tuned model the weights once, since a loaded one starts from its own."""
        kept = super()._saved_attributes()
        return {**kept, "pretrained_": True} if "pretrained_" in kept else kept

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        tuned = fitted.pop("pretrained_", False)
        super()._load_attributes(fitted)
        if tuned:
            self._go_on_tuning()

    def _tuned_weights(self) -> dict[str, Any]:
        """Return the weights of the network that a further fit starts from."""
        return dict(self.module_.state_dict())

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : data of the estimator's input kind
            What to learn from.
        y : array-like, optional
            Targets, where the model has any.
        validation : tuple, optional
            ``(X, y)``, or ``(X,)`` without targets, on which the loss is measured after every epoch; early stopping then
            holds nothing out.

        Returns
        -------
        self
        """
        self._fit(X, y, validation=validation)
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one more epoch on these data, with the sizes, scales and classes of the first call.

        ``n_iter_`` and ``history_`` count on from call to call.

        Parameters
        ----------
        X, y, sample_weight
            As ``fit`` takes them.
        classes : array-like, optional
            All classes that there will be, at the first call of a classifier.

        Returns
        -------
        self
        """
        first = not hasattr(self, "module_")
        epochs, rows = (0, []) if first else (self.n_iter_, self.history_)
        self._going_on = {"first": first, "classes": classes}
        try:
            self._fit(X, y, sample_weight)
            self.n_iter_ += epochs
            self.history_ = _continued(rows, self.history_)
        finally:
            self.__dict__.pop("_going_on", None)
        return self

    # --- hooks -------------------------------------------------------------------------------------------

    def _measure(self, data: Data) -> None:
        """Learn from the training data what preprocessing needs, as fitted attributes: scales, vocabularies."""

    def _batches(self, data: Data) -> Any:
        """Return batches of training or validation data, with the scales and vocabularies of the training data."""
        raise NotImplementedError

    def _aim(self) -> Any:
        """Return the objective; by default the weighted mean of the criterion of a supervised model."""
        from corollary.engine.objective import Supervised

        return Supervised(self._criterion())

    def _criterion(self) -> Any:
        """Return the loss of each sample, as a function of output and target."""
        raise NotImplementedError

    def _explicit(self, data: Data) -> Any:
        """Return a function that writes gradients without automatic differentiation, if the model has one."""
        return None

    def _known_y(self, X: Any, y: Any) -> Any:
        """Return the targets of further data, encoded with the classes of the first fit."""
        return None if y is None else self._check_y(X, y)

    def _ready(self, data: Data) -> None:
        """Call ``_measure`` unless ``partial_fit`` goes on; a pre-trained model keeps the preprocessing of its weights."""
        if self.__dict__.get("_going_on", {}).get("first", True):
            kept = {name: vars(self)[name] for name in self._start if name in vars(self)}
            self._measure(data)
            if hasattr(self, "pretrained_"):
                vars(self).update(kept)

    def _learner(self, data: Data) -> Any:
        self._ready(data)
        validation = None if data.validation is None else self._batches(data.validation)
        gradient = None if hasattr(self, "pretrained_") else self._explicit(data)
        return self._descend(self._aim(), self._batches(data), gradient=gradient, validation=validation)

    # --- data after the first ----------------------------------------------------------------------------

    def _data(self, X: Any, y: Any, sample_weight: Any, extra: Any = None) -> Data:
        going_on = self.__dict__.get("_going_on")
        if going_on is None and hasattr(self, "pretrained_") and not self._places_weights:
            X = self._admit(self._read_again(X), reset=False)
            y = X.target if y is None and isinstance(X, Source) else y
            return Data(X, self._check_y(X, y), self._check_weight(X, sample_weight), extra)
        if going_on is None or (going_on["first"] and going_on["classes"] is None):
            return super()._data(X, y, sample_weight, extra)
        if going_on["first"]:
            X, y = self._read(X, y)
            X = self._admit(X, reset=True)
            self.classes_ = np.unique(going_on["classes"])
            weight = self._check_weight(X, sample_weight)
            return self._keep_sizes(Data(X, self._known_y(X, y), weight, extra))
        return self._further(X, y, sample_weight)

    def _further(self, X: Any, y: Any = None, sample_weight: Any = None) -> Data:
        X, y = self._read_batch(X, y, first=False)
        X = self._admit(X, reset=False)
        y = X.target if y is None and isinstance(X, Source) else y
        return Data(X, self._known_y(X, y), self._check_weight(X, sample_weight))

    def _validation(self, given: Any) -> Data:
        name = type(self).__name__
        if not isinstance(given, tuple) or not 1 <= len(given) <= 3:
            raise errors.kind(name, "validation must be a tuple (X, y)", type(given).__name__)
        return self._further(*given)

    def _perceptron_defaults(self) -> dict[str, Any]:
        """Return the training defaults of perceptrons: early stopping if ``training`` is not given and there are ENOUGH rows."""
        alone = self.training is None and "_going_on" not in vars(self)
        stops = alone and getattr(self, "n_samples_", 0) >= ENOUGH
        return {"epochs": 100, "learning_rate": 1e-3, "batch_size": 32, "early_stopping": stops}

    def _plan(self, n: int | None = None) -> Training:
        """Return the complete training settings; a model with a budget takes batch size and epochs from the sample count."""
        training = self.training if self.training is not None else Training()
        if not isinstance(training, Training):
            raise errors.kind(type(self).__name__, "training must be a Training", repr(training))
        defaults, budget = dict(self._training_defaults), self._budget
        if n is not None and budget is not None:
            defaults["batch_size"] = budget.batch_size(n)
        plan = training.resolved(**defaults)
        if n is not None and budget is not None and training.epochs is None:
            plan.epochs = budget.passes(n, plan.batch_size)
        return plan if "_going_on" not in self.__dict__ else plan.overridden(epochs=1)

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
        validation_objective: Any = None,
        validate: Any = None,
        rule: str | None = None,
    ) -> Any:
        """Return the gradient learner; with early stopping, a part of the batches is held out for validation.

        ``objective`` is one objective, or the players of a game with its ``rule``. ``validation`` are batches to validate on,
        with ``validation_objective`` if that differs. ``validate(module)`` replaces them by any other measure.
        """
        from corollary.engine.batches import TensorBatches
        from corollary.engine.random import seeded
        from corollary.engine.sgd import CHUNK, GradientLearner, evaluate

        plan, seed, run = self._plan(len(batches)), self._seed(), current()
        with seeded(seed):
            module = self._module()
        going_on = self.__dict__.get("_going_on", {})
        again = not going_on.get("first", True)
        if again or (plan.warm_start and _same_shapes(module, getattr(self, "module_", None))):
            module.load_state_dict(self.module_.state_dict())
        elif hasattr(self, "pretrained_"):
            plan = self._tuned(module, plan)
        batches = batches.to(run.device)
        # What pads its batches is evaluated in batches of that size too.
        chunk = CHUNK if type(batches) is TensorBatches else plan.batch_size
        if validation is not None:
            validation = validation.to(run.device)
        elif plan.early_stopping:
            kept, held = _hold_out(batches, plan.validation_fraction, seed, type(self).__name__)
            batches, validation = batches.take(kept), batches.take(held)
        if validation is not None:
            aim = objective if validation_objective is None else validation_objective
            validate = partial(evaluate, aim, batches=validation, batch_size=chunk)
        learner = GradientLearner(
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
        if again and "_optimizer_states" in self.__dict__:
            for player, state in zip(learner.players, self._optimizer_states):
                player.restore(state)
        return learner

    def _adopt(self, learner: Any) -> None:
        self.module_ = learner.result()
        self.n_iter_ = learner.epoch
        if "_going_on" in self.__dict__:
            self._optimizer_states = [player.state() for player in learner.players]

    def _sampled(self, count: int, call: Any) -> Any:
        """Return the results of several calls with active dropout, stacked along a new first axis."""
        import torch

        from corollary.engine.dropout import dropping
        from corollary.engine.random import seeded

        check_count(self, "dropout_samples", count)
        device = next(self.module_.parameters()).device
        with seeded(self._seed(), device), dropping(self.module_, type(self).__name__):
            found = [call() for _ in range(count)]
        return torch.stack(found) if isinstance(found[0], torch.Tensor) else np.stack(found)

    def _as_weight(self, weight: np.ndarray | None) -> Any:
        """Return sample weights as a tensor of the network's type."""
        return None if weight is None else as_tensor(weight.astype(getattr(self, "dtype_", "float32")))

    def _forward(self, X: np.ndarray, call: Any = None, chunk: int = 4096, keep: bool = False) -> np.ndarray:
        """Return the module's output for rows of X, in chunks, as an array; ``keep`` leaves their type alone."""
        import torch

        from corollary.engine.sources import chunks

        call = call or self.module_
        like = next(self.module_.parameters())
        parts = []
        with torch.inference_mode():
            for rows in chunks(X, chunk):
                inputs = [as_tensor(part) for part in (rows if isinstance(rows, tuple) else (rows,))]
                inputs = [x.to(device=like.device, dtype=x.dtype if keep else like.dtype) for x in inputs]
                parts.append(call(*inputs).cpu())
        return torch.cat(parts).numpy()

    def _by_blocks(self, hook: Any, X: Any) -> Any:
        return hook(X)  # `_forward` reads sources in chunks itself


def _continued(before: list[dict[str, float]], rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the histories of two fits as one; steps and seconds go on counting."""
    if not before:
        return rows
    step, seconds = before[-1]["step"], before[-1]["seconds"]
    return [
        *before,
        *({**row, "step": row["step"] + step, "seconds": row["seconds"] + seconds} for row in rows),
    ]


def _same_shapes(module: Any, fitted: Any) -> bool:
    """Whether two modules have parameters of the same names and shapes."""
    if fitted is None:
        return False
    a, b = module.state_dict(), fitted.state_dict()
    return a.keys() == b.keys() and all(a[key].shape == b[key].shape for key in a)


def _hold_out(batches: Any, fraction: float, seed: int, owner: str) -> tuple[Any, Any]:
    """Return the indices of training and of validation samples, split with the same shares of every class."""
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
