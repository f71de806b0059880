"""Training settings: optimiser, learning rate, schedule, batch size, epochs, regularisers, early stopping.

All estimators trained by gradients take a :class:`Training`; where a fit runs is said by
:class:`~corollary.engine.run.Run`. A field left at ``None`` takes the estimator's own default.
"""

from __future__ import annotations

import inspect
from typing import Any

from sklearn.base import BaseEstimator

from corollary import errors
from corollary.engine.loop import EarlyStopping
from corollary.optim import NAMES, RULE_OPTIONS, RULES
from corollary.optim.schedule import SCHEDULES

__all__ = ["Training"]

# What holds where neither the user nor the estimator says otherwise.
DEFAULTS: dict[str, Any] = {
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "schedule": "constant",
    "warmup": 0,
    "batch_size": 128,
    "accumulate": 1,
    "epochs": 30,
    "weight_decay": 0.0,
    "optimizer_options": None,
    "clip_norm": None,
    "l1": None,
    "norm_ball": None,
    "label_smoothing": None,
    "input_noise": None,
    "target_noise": None,
    "weight_noise": None,
    "gradient_noise": None,
    "mixup": None,
    "augment": None,
    "curriculum": None,
    "spectral": None,
    "adversary": None,
    "regularisers": None,
    "average": None,
    "early_stopping": False,
    "validation_fraction": 0.1,
    "patience": 10,
    "shuffle": True,
    "warm_start": False,
    "compile": False,
}
WHOLE = 2**31 - 1  # a batch size that no data set exceeds
# What an optimiser asks for where the user does not say otherwise.
OF_OPTIMIZER: dict[str, dict[str, Any]] = {
    "gd": {"batch_size": WHOLE},
    "lbfgs": {"batch_size": WHOLE, "learning_rate": 1.0},
    "newton": {"batch_size": WHOLE, "learning_rate": 1.0},
    "subgradient": {"average": "polyak"},
}


class Training(BaseEstimator):  # type: ignore[misc]
    """Settings of gradient descent: optimiser, learning rate, epochs, batch size, regularisers, early stopping.

    A field left at None takes the estimator's own default; 0 or False turns a regulariser of its own off.

    Parameters
    ----------
    epochs : int, optional
        Passes over the data. More fit the training data better, and take longer.
    optimizer : str or class, optional
        A class of torch's or one's own that takes parameters and ``lr``, such as ``torch.optim.RAdam``; or by name: one
        of ``corollary.optim.NAMES``, "adam" unless the estimator says otherwise; or one that looks at the data more
        than once: "svrg", "extragradient", "sam" (sharpness-aware), "newton", "lbfgs"; or "subgradient", whose iterates are
        averaged. "gd", "newton" and "lbfgs" see all the data in each update.
    optimizer_options : dict, optional
        Further options of the optimiser: ``{"momentum": 0.9}``, ``{"betas": (0.9, 0.99)}``; for "sam" the radius ``rho``
        and the ``base`` optimiser, for "newton" ``damping``, ``max_iter`` and ``tol`` of the conjugate gradients, for
        "projected" the set and the ``base`` optimiser: ``{"radius": 3.0, "base": "adam"}``.
    learning_rate : float or "auto", optional
        Step size. Too small is slow, too large diverges. "auto" tries rates that grow from 1e-6 to 10 for a hundred
        updates, goes back to the start, and takes the one at which the smoothed loss fell fastest. "newton" and "lbfgs"
        take 1 unless told otherwise.
    schedule : {"constant", "step", "1/t", "1/sqrt", "cosine", "linear"}, optional
        How the step size falls over the updates.
    warmup : int, optional
        Updates over which the step size rises linearly to its value.
    batch_size : int, optional
        Samples per update. Larger batches have less noise and fewer updates.
    accumulate : int, optional
        Batches whose gradients make one update: as one batch so many times as large, in the memory of one. Layers that
        normalise over a batch still see one at a time.
    weight_decay : float, optional
        Decay of matrices towards zero (biases and gains are left alone); more regularises more. "adamw" and
        "muon" shrink them by ``learning_rate * weight_decay`` of their size at each update, every other optimiser adds
        ``weight_decay`` times the matrix to its gradient: the penalty ``weight_decay / 2 * sum of squares``.
    clip_norm : float, optional
        Largest norm of a gradient; a longer one is shortened to it.
    l1 : float, optional
        Penalty on the absolute sum of the weight matrices, by soft-thresholding after each step: more weights become
        exactly zero.
    norm_ball : float or NormBall, optional
        Largest norm of the weight matrices, together, or of each layer or unit: ``NormBall(3.0, per="layer")``.
    label_smoothing : float, optional
        Share of each class target that is spread over all classes.
    input_noise, target_noise, weight_noise, gradient_noise : float, optional
        Standard deviation of normal noise on real inputs, targets, weights (while the gradient is taken) and gradients;
        class targets are exchanged for random ones with this probability.
    mixup : float, optional
        Mix pairs of samples and their targets with shares from Beta(mixup, mixup).
    augment : dict or callable, optional
        Other views of images: options of :func:`corollary.data.augment.augment`, or ``transform(images, generator=rng)``.
    curriculum : array-like, "loss", "self-paced" or Curriculum, optional
        Begin with easy samples, by a score per sample or by the model's own loss.
    spectral : float, dict or Spectral, optional
        Penalty on half the squared largest singular value of every layer; with ``{"rate": 0.01, "of": "jacobian"}`` of the
        Jacobian at every sample.
    adversary : float, dict, PGD or FGSM, optional
        Train on the worst inputs that an attack finds near each sample: a radius in the l-infinity norm, a dict of
        :class:`corollary.attack.PGD`'s parameters, or the attack itself. For images ``{"eps": 0.1, "bounds": (0, 1)}``
        keeps pixels in their range.
    regularisers : sequence of objects, optional
        One's own, with any of the hooks of :mod:`corollary.engine.regularisers`.
    average : float or "polyak", optional
        Keep a running average of the weights and use it in the end: a decay such as
        0.999 for an exponential one, shorter in the first updates so that the start is forgotten; "polyak" for the
        plain mean.
    early_stopping : bool, optional
        Whether to hold out ``validation_fraction`` of the data and stop when its loss
        has not improved for ``patience`` epochs.
    validation_fraction : float, optional
        Share of the data held out.
    patience : int, optional
        Epochs without improvement before stopping.
    shuffle : bool, optional
        Whether each epoch visits the samples in a new order.
    warm_start : bool, optional
        Whether a further ``fit`` begins with the weights of the last one, if they have the same shapes.
    compile : bool or str, optional
        Whether to compile the module with ``torch.compile``; a string names the backend.
    """

    # Each may be None until `resolved` has set it, so the types are left open.
    epochs: Any
    optimizer: Any
    optimizer_options: Any
    learning_rate: Any
    schedule: Any
    warmup: Any
    batch_size: Any
    accumulate: Any
    weight_decay: Any
    clip_norm: Any
    l1: Any
    norm_ball: Any
    label_smoothing: Any
    input_noise: Any
    target_noise: Any
    weight_noise: Any
    gradient_noise: Any
    mixup: Any
    augment: Any
    curriculum: Any
    spectral: Any
    adversary: Any
    regularisers: Any
    average: Any
    early_stopping: Any
    validation_fraction: Any
    patience: Any
    shuffle: Any
    warm_start: Any
    compile: Any

    def __init__(
        self,
        epochs: int | None = None,
        *,
        optimizer: str | None = None,
        optimizer_options: dict[str, Any] | None = None,
        learning_rate: float | str | None = None,
        schedule: str | None = None,
        warmup: int | None = None,
        batch_size: int | None = None,
        accumulate: int | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        l1: float | None = None,
        norm_ball: Any = None,
        label_smoothing: float | None = None,
        input_noise: float | None = None,
        target_noise: float | None = None,
        weight_noise: float | None = None,
        gradient_noise: float | None = None,
        mixup: float | None = None,
        augment: Any = None,
        curriculum: Any = None,
        spectral: Any = None,
        adversary: Any = None,
        regularisers: Any = None,
        average: float | str | None = None,
        early_stopping: bool | None = None,
        validation_fraction: float | None = None,
        patience: int | None = None,
        shuffle: bool | None = None,
        warm_start: bool | None = None,
        compile: bool | str | None = None,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            raise errors.unknown("Training", "field", name, DEFAULTS)
        self.epochs = epochs
        self.optimizer = optimizer
        self.optimizer_options = optimizer_options
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.warmup = warmup
        self.batch_size = batch_size
        self.accumulate = accumulate
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.l1 = l1
        self.norm_ball = norm_ball
        self.label_smoothing = label_smoothing
        self.input_noise = input_noise
        self.target_noise = target_noise
        self.weight_noise = weight_noise
        self.gradient_noise = gradient_noise
        self.mixup = mixup
        self.augment = augment
        self.curriculum = curriculum
        self.spectral = spectral
        self.adversary = adversary
        self.regularisers = regularisers
        self.average = average
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.shuffle = shuffle
        self.warm_start = warm_start
        self.compile = compile

    def resolved(self, **defaults: Any) -> Training:
        """Return a copy with every field set and checked."""
        given = {key: value for key, value in self.get_params(deep=False).items() if value is not None}
        optimizer = given.get("optimizer", defaults.get("optimizer", DEFAULTS["optimizer"]))
        wanted = OF_OPTIMIZER.get(optimizer, {}) if isinstance(optimizer, str) else {}
        if optimizer != defaults.get("optimizer", DEFAULTS["optimizer"]):
            defaults = {**defaults, "optimizer_options": None}  # those of another optimiser
        full = Training(**{**DEFAULTS, **defaults, **wanted, **given})
        full._check()
        if optimizer == "gd" and "batch_size" in given:
            do = "Use optimizer='sgd' for batches."
            raise errors.value(
                "Training", "optimizer='gd' sees all the data", f"batch_size={given['batch_size']}", do
            )
        return full

    def overridden(self, **fields: Any) -> Training:
        """Return a copy of a resolved training with other values in some fields."""
        return Training(**{**self.get_params(deep=False), **fields}).resolved()

    # --- what the players ask ----------------------------------------------------------------------------

    @property
    def decays_in_optimizer(self) -> bool:
        """Whether the optimiser itself takes weight decay; otherwise it is added to the loss."""
        if isinstance(self.optimizer, type):
            return "weight_decay" in inspect.signature(self.optimizer).parameters
        return self.optimizer not in ("lbfgs", "newton")

    @property
    def splits_matrices(self) -> bool:
        """Whether matrices and biases are treated differently after or in a step."""
        return bool(self.weight_decay or self.l1 or self.norm_ball)

    def options(self) -> dict[str, Any]:
        """Return the options for torch's optimiser."""
        given = {**RULE_OPTIONS.get(self.optimizer, {}), **(self.optimizer_options or {})}
        own = set(RULE_OPTIONS.get(self.optimizer, {})) - {"base"}
        return {key: value for key, value in given.items() if key not in own}

    def _plain_params(self) -> dict[str, Any]:
        """Return the fields that a file can hold: all but objects of other packages, which only a further fit would need."""
        from corollary.engine.regulariser import HOOKS, Regulariser

        def plain(value: Any) -> bool:
            hooked = any(hasattr(value, hook) for hook in HOOKS) or callable(value)
            return not hooked or (
                isinstance(value, Regulariser) and type(value).__module__.startswith("corollary.")
            )

        params = self.get_params(deep=False)
        kept = {key: value if plain(value) else None for key, value in params.items()}
        kept["regularisers"] = None if self.regularisers is None else tuple(filter(plain, self.regularisers))
        return kept

    def stopping(self) -> EarlyStopping | None:
        """Return the stopping rule, if one is asked for."""
        return EarlyStopping("validation_loss", patience=self.patience or 1) if self.early_stopping else None

    def _check(self) -> None:
        if (
            not isinstance(self.optimizer, type)
            and self.optimizer not in NAMES
            and self.optimizer not in RULES
        ):
            raise errors.unknown("Training", "optimizer", str(self.optimizer), [*NAMES, *RULES])
        if self.schedule not in SCHEDULES:
            raise errors.unknown("Training", "schedule", str(self.schedule), SCHEDULES)
        for name, low in (
            ("epochs", 1),
            ("batch_size", 1),
            ("accumulate", 1),
            ("warmup", 0),
            ("patience", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise errors.value("Training", f"{name} must be an integer of at least {low}", repr(value))
        rate = self.learning_rate
        if rate != "auto" and (isinstance(rate, str) or not rate or rate <= 0):
            raise errors.value("Training", "learning_rate must be positive", repr(rate), "Or use 'auto'.")
        decay = self.weight_decay
        if isinstance(decay, bool) or not isinstance(decay, int | float) or not decay >= 0:
            raise errors.value("Training", "weight_decay must be a number at least 0", repr(decay))
        if not 0 < (self.validation_fraction or 0) < 1:
            raise errors.value(
                "Training", "validation_fraction must lie in (0, 1)", repr(self.validation_fraction)
            )
