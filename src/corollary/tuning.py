"""Transfer learning: pre-training and fine-tuning of every gradient-trained estimator.

A model with ``pretrained_`` starts each fit from those weights, and reads its inputs (scales, columns, vocabulary) as the
pre-trained model did. ``tuning_`` holds the frozen layers, the decay of the learning rate from layer to layer
(:mod:`corollary.engine.transfer`), and the classes of the pre-trained head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.engine.training import Training
from corollary.shapes import Maybe, Plain

__all__ = ["Tunable"]


class Tunable:
    r"""Pre-training and fine-tuning, which every gradient-trained estimator has.

    ``model.fine_tune(X, y)`` returns a model that starts from the weights of a fitted one; ``model.pretrain(X, y)`` learns
    the weights that the next ``fit`` starts from.

    Notes
    -----
    The layers of a network are its parts in the order in which they were made; the last is the head, which is new where the
    classes are others. ``freeze`` takes layers out of training, statistics of batch normalisation included. With
    ``rate_decay`` :math:`\rho`, layer :math:`\ell` of :math:`L` moves at the rate

    .. math:: \eta_\ell = \rho^{L - \ell}\, \eta, \tag{1}

    so that what is general, near the inputs, changes least. How inputs are read (scales, columns, vocabularies) stays as it
    was when the weights were learned.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import MLPClassifier, Training
    >>> X, y = load_digits(return_X_y=True)
    >>> low, high = y < 5, y >= 5
    >>> base = MLPClassifier((64,), training=Training(epochs=20), random_state=0).fit(X[low] / 16, y[low])
    >>> few = X[high][:100] / 16, y[high][:100]
    >>> tuned = base.fine_tune(*few, rate_decay=0.5, training=Training(epochs=60, learning_rate=0.01))  # with a new head
    >>> tuned.classes_.tolist(), bool(tuned.score(X[high] / 16, y[high]) > 0.8)
    ([5, 6, 7, 8, 9], True)
    """

    # What a model that starts from weights of another model keeps of it: weights, and how it reads its inputs.
    _start: ClassVar[tuple[str, ...]] = tuple(
        "pretrained_ tuning_ n_features_in_ feature_names_in_ columns_ reading_ dtype_ kind_ alphabet_ n_codes_ n_layers_ "
        "feature_mean_ feature_scale_ vocabulary_ weighted_ normalized_ mean_nodes_ "
        "input_shape_ input_names_ input_kinds_".split()
    )
    # Whether `_module` itself puts the weights in that it starts from.
    _places_weights: ClassVar[bool] = False
    _fitted: ClassVar[Mapping[str, Any]] = {"tuning_": Maybe(Plain())}

    def pretrain(
        self, X: Any, y: Any = None, *, freeze: Any = None, rate_decay: float = 1.0, random_state: Any = None
    ) -> Self:
        """Pre-train: learn weights that the next ``fit`` starts from; other classes get a new last layer.

        Parameters
        ----------
        X, y
            As ``fit`` takes them.
        freeze, rate_decay
            As in ``fine_tune``.
        random_state : int or RandomState, optional
            Seed; by default this model's.

        Returns
        -------
        self
        """
        seed = self.random_state if random_state is None else random_state  # type: ignore[attr-defined]
        other = clone(self).set_params(random_state=seed)
        other.fit(X) if y is None else other.fit(X, y)
        return self._start_from(other, freeze, rate_decay)

    def fine_tune(
        self,
        X: Any,
        y: Any = None,
        *,
        freeze: Any = None,
        rate_decay: float = 1.0,
        training: Training | None = None,
        random_state: Any = None,
    ) -> Self:
        """Fine-tune: return a model that starts from these weights and is trained on other data.

        Parameters
        ----------
        X, y
            As ``fit`` takes them; the inputs have the features of those that the weights know. Where the classes are
            others the last layer is new.
        freeze : int, str or list of str, optional
            Layers that stay as they are: the first so many, -1 for all but the last; or parameters of ``module_`` by
            the beginning of their names or by patterns such as ``"*.bias"``.
        rate_decay : float, default=1.0
            Factor of the learning rate from each layer to the one below it; 0.5 halves it layer by layer.
        training : Training, optional
            Settings of gradient descent; by default as this model did.
        random_state : int or RandomState, optional
            Seed; by default this model's.

        Notes
        -----
        ``fit`` of what is returned, and of its clones, starts from these weights again. Its file holds the tuned ones
        only: ``fit`` of a model that was loaded goes on from those.
        """
        if not hasattr(self, "pretrained_"):
            check_is_fitted(self)
        seed = self.random_state if random_state is None else random_state  # type: ignore[attr-defined]
        model = clone(self).set_params(random_state=seed)
        if training is not None or type(self)._places_weights:
            model.set_params(training=training)
        model._start_from(self, freeze, rate_decay)
        return model.fit(X) if y is None else model.fit(X, y)  # type: ignore[no-any-return]

    def _start_from(self, other: Any, freeze: Any, rate_decay: float) -> Self:
        """Take over the weights of another model, and how it reads its inputs."""
        if isinstance(rate_decay, bool) or not 0 < rate_decay <= 1:
            raise errors.value(type(self).__name__, "rate_decay must lie in (0, 1]", repr(rate_decay))
        vars(self).update({name: vars(other)[name] for name in other._start if name in vars(other)})
        self.pretrained_ = other._tuned_weights() if hasattr(other, "module_") else other.pretrained_
        freeze = freeze if freeze is None or isinstance(freeze, int | str) else list(freeze)
        self.tuning_ = {"freeze": freeze, "rate_decay": float(rate_decay), "classes": other._head_knows()}
        return self

    def _go_on_tuning(self) -> None:
        """Let a further fit start from the weights that the network has now, its head included."""
        self.pretrained_ = self._tuned_weights()  # type: ignore[attr-defined]
        if hasattr(self, "tuning_"):
            self.tuning_ = {**self.tuning_, "classes": self._head_knows()}

    def _head_knows(self) -> Any:
        """Return the classes of the last layer as plain values; if fine-tuning has other classes, that layer is new."""
        classes = getattr(self, "classes_", None)
        return None if classes is None else np.asarray(classes).tolist()

    def _tuned(self, module: Any, plan: Training) -> Training:
        """Put the weights to start from into a module, freeze layers, and return the plan with the rates of the others."""
        from corollary.engine.transfer import LayerRates, freeze, place

        tuning = getattr(self, "tuning_", {"freeze": None, "rate_decay": 1.0, "classes": None})
        if not self._places_weights:
            same = tuning["classes"] is None or tuning["classes"] == self._head_knows()
            place(module, self.pretrained_, type(self).__name__, new_head=not same)
        if tuning["freeze"] is not None:
            freeze(module, tuning["freeze"], type(self).__name__)
        if tuning["rate_decay"] == 1.0:
            return plan
        rates = LayerRates(tuning["rate_decay"])
        return plan.overridden(regularisers=(*(plan.regularisers or ()), rates))
