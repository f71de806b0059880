"""Regressors trained by gradient descent: a choice of loss, and standardised targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.base import Data, Regressor, as_tensor
from corollary.gradient.trained import GradientTrained
from corollary.shapes import Array, Count

__all__ = ["GradientRegressor"]


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

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on X with targets y (n,), or (n, k) where the model takes several, optionally weighted.

        ``validation`` is a tuple (X, y) on which the loss is measured after every epoch.
        """
        return self._fit(X, y, sample_weight, validation=validation)

    def predict(self, X, *, dropout_samples=None, return_std=False):
        """Return the predicted targets.

        With ``dropout_samples`` they are the mean over so many passes with active dropout (Monte-Carlo dropout), and
        ``return_std`` adds their standard deviation.
        """
        if dropout_samples is None:
            return super().predict(X)
        check_is_fitted(self)
        found = self._sampled(dropout_samples, lambda: Regressor.predict(self, X))
        return (found.mean(0), found.std(0)) if return_std else found.mean(0)

    def _criterion(self) -> Any:
        from corollary.losses import regression

        options = {"level": self.quantile} if self.loss == "quantile" else {}
        return regression(self.loss, type(self).__name__, **options)

    def _supervision(self, data: Data) -> tuple[Any, Any]:
        """Return standardised targets (n, n_outputs), and the weights, as tensors."""
        y = np.asarray(data.y, dtype=np.float64).reshape(len(data.y), -1)
        if y.shape[1] != self.n_outputs_:
            raise errors.value(type(self).__name__, f"y must have {self.n_outputs_} columns", y.shape[1])
        scaled = ((y - self.target_mean_) / self.target_scale_).astype(getattr(self, "dtype_", "float32"))
        return as_tensor(scaled), self._as_weight(data.sample_weight)

    def _measure_targets(self, data: Data) -> None:
        """Keep shape, mean and standard deviation of the training targets."""
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

    def _unscaled(self, output: np.ndarray) -> np.ndarray:
        """Return outputs of the network in the units and the shape of the targets."""
        if self.loss == "poisson":
            output = np.exp(output)
        y = output * self.target_scale_.astype(output.dtype) + self.target_mean_.astype(output.dtype)
        return y[:, 0] if self.target_ndim_ == 1 else y

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        from corollary.export import Numbers

        like = next(self.module_.parameters())
        options = {"rates": self.loss == "poisson", "alone": self.target_ndim_ == 1}
        return self._graph_call(), Numbers(self.target_mean_, self.target_scale_, like, **options), {}
