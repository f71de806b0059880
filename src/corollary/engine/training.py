"""How to descend: optimiser, rate, schedule, batches, epochs, penalties, stopping.

One object shared by every estimator that is trained by gradients; where it runs is
:class:`~corollary.engine.run.Run`. A field left at ``None`` takes the estimator's own default.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from corollary import errors
from corollary.engine.loop import EarlyStopping
from corollary.optim import NAMES
from corollary.optim.schedule import SCHEDULES

__all__ = ["Training"]

# What holds where neither the user nor the estimator says otherwise.
DEFAULTS: dict[str, Any] = {
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "schedule": "constant",
    "warmup": 0,
    "batch_size": 128,
    "epochs": 30,
    "weight_decay": 0.0,
    "clip_norm": None,
    "average": None,
    "early_stopping": False,
    "validation_fraction": 0.1,
    "patience": 10,
    "shuffle": True,
}


class Training(BaseEstimator):  # type: ignore[misc]
    """How a gradient-trained estimator descends.

    Parameters
    ----------
    epochs : int, optional
        Passes over the data. More fit the training data better, and take longer.
    optimizer : str, optional
        One of ``corollary.optim.NAMES``; "adam" unless the estimator says otherwise.
    learning_rate : float, optional
        Step size. Too small is slow, too large diverges.
    schedule : {"constant", "step", "1/t", "1/sqrt", "cosine", "linear"}, optional
        How the step size falls over the updates.
    warmup : int, optional
        Updates over which the step size rises linearly to its value.
    batch_size : int, optional
        Samples per update. Larger batches have less noise and fewer updates.
    weight_decay : float, optional
        Decay of matrices towards zero (biases and gains are left alone); more regularises more. "adamw" and
        "muon" shrink them by ``learning_rate * weight_decay`` of their size at each update, every other optimiser adds
        ``weight_decay`` times the matrix to its gradient: the penalty ``weight_decay / 2 * sum of squares``.
    clip_norm : float, optional
        Largest norm of a gradient; a longer one is shortened to it.
    average : float or "polyak", optional
        Keep a running average of the weights and use it in the end: a decay such as
        0.999 for an exponential one, "polyak" for the plain mean.
    early_stopping : bool, optional
        Whether to hold out ``validation_fraction`` of the data and stop when its loss
        has not improved for ``patience`` epochs.
    validation_fraction : float, optional
        Share of the data held out.
    patience : int, optional
        Epochs without improvement before stopping.
    shuffle : bool, optional
        Whether each epoch visits the samples in a new order.
    """

    # Each may be None until `resolved` has set it, so the types are left open.
    epochs: Any
    optimizer: Any
    learning_rate: Any
    schedule: Any
    warmup: Any
    batch_size: Any
    weight_decay: Any
    clip_norm: Any
    average: Any
    early_stopping: Any
    validation_fraction: Any
    patience: Any
    shuffle: Any

    def __init__(
        self,
        epochs: int | None = None,
        *,
        optimizer: str | None = None,
        learning_rate: float | None = None,
        schedule: str | None = None,
        warmup: int | None = None,
        batch_size: int | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        average: float | str | None = None,
        early_stopping: bool | None = None,
        validation_fraction: float | None = None,
        patience: int | None = None,
        shuffle: bool | None = None,
    ) -> None:
        self.epochs = epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.warmup = warmup
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.average = average
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.shuffle = shuffle

    def resolved(self, **defaults: Any) -> Training:
        """Return a copy with every field set and checked."""
        given = {key: value for key, value in self.get_params().items() if value is not None}
        full = Training(**{**DEFAULTS, **defaults, **given})
        full._check()
        return full

    def stopping(self) -> EarlyStopping | None:
        """Return the stopping rule, if one is asked for."""
        return EarlyStopping("validation_loss", patience=self.patience or 1) if self.early_stopping else None

    def _check(self) -> None:
        if self.optimizer not in NAMES:
            raise errors.unknown("Training", "optimizer", str(self.optimizer), NAMES)
        if self.schedule not in SCHEDULES:
            raise errors.unknown("Training", "schedule", str(self.schedule), SCHEDULES)
        for name, low in (("epochs", 1), ("batch_size", 1), ("warmup", 0), ("patience", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise errors.value("Training", f"{name} must be an integer of at least {low}", repr(value))
        if not self.learning_rate or self.learning_rate <= 0:
            raise errors.value("Training", "learning_rate must be positive", repr(self.learning_rate))
        if not 0 < (self.validation_fraction or 0) < 1:
            raise errors.value(
                "Training", "validation_fraction must lie in (0, 1)", repr(self.validation_fraction)
            )
