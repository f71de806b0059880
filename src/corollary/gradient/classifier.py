"""Classifiers trained by gradient descent: hard or soft targets, several labels, weighted samples and classes."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.base import Classifier, Data, as_tensor
from corollary.data.multilabel import indicators
from corollary.gradient.codes import known_codes
from corollary.gradient.trained import GradientTrained
from corollary.validation import check_target

__all__ = ["GradientClassifier"]


class GradientClassifier(Classifier, GradientTrained):
    """A classifier whose criterion is the cross-entropy: weighted samples and classes, hard or soft targets."""

    _soft_targets = True

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on X with labels y (n,), or probabilities y (n, n_classes), optionally weighted.

        ``validation`` is a tuple (X, y) on which the loss is measured after every epoch.
        """
        return self._fit(X, y, sample_weight, validation=validation)

    def predict_proba(self, X, *, dropout_samples=None):
        """Return the probability of each class, in the order of ``classes_``.

        With ``dropout_samples`` it is the mean over so many passes with active dropout (Monte-Carlo dropout).
        """
        if dropout_samples is None:
            return super().predict_proba(X)
        check_is_fitted(self)
        return self._sampled(dropout_samples, lambda: Classifier.predict_proba(self, X)).mean(0)

    def _known_y(self, X: Any, y: Any) -> Any:
        if getattr(self, "multilabel_", False):
            return indicators(y, self.classes_, type(self).__name__)
        y = check_target(self, X, y, multi_output=True)
        if y.ndim == 2 and y.shape[1] > 1:
            if len(self.classes_) != y.shape[1]:
                must = f"y must have {len(self.classes_)} columns"
                raise errors.value(type(self).__name__, must, y.shape[1])
            return self._check_probabilities(y)
        return known_codes(self, y.reshape(-1))

    def _supervision(self, data: Data) -> tuple[Any, Any]:
        """Return targets, encoded as classes or probabilities, and sample weights, as tensors."""
        target = as_tensor(data.y)
        if target.is_floating_point():
            target = as_tensor(data.y.astype(getattr(self, "dtype_", "float32")))
        return target, self._as_weight(self._weights(data))

    def _criterion(self, axis: int = 1) -> Any:
        from corollary.losses import CrossEntropy, LabelwiseCrossEntropy

        if getattr(self, "multilabel_", False):
            return LabelwiseCrossEntropy(len(self.classes_))
        return CrossEntropy(len(self.classes_), axis)

    def _chances(self, logits: Any) -> Any:
        """Return probabilities from logits (n, n_classes): softmax over the classes, or sigmoid of each of several labels."""
        return logits.sigmoid() if getattr(self, "multilabel_", False) else logits.softmax(1)

    def _differentiable(self) -> tuple[Any, Any]:
        """Return the map from a tensor of checked inputs to logits, and a tensor of the type and device it takes.

        Sets and sequences come as (n, size, d), all of one size, so that nothing is padded.
        """
        import torch

        call, like = self._graph_call(), next(self.module_.parameters())
        if self.input in ("table", "image"):
            return call, like
        if self.input not in ("set", "sequence"):
            must = "only tables, images, sets and sequences of real numbers have a gradient to follow"
            raise errors.value(type(self).__name__, must, f"a model of kind {self.input!r}")
        return lambda x: call(x, torch.full((len(x),), x.shape[1])), like

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        from corollary.export import Classes, Several

        finish = Several() if getattr(self, "multilabel_", False) else Classes()
        return self._graph_call(), finish, {"classes": self.classes_.tolist()}
