"""Fewer errors on new data by other means than penalties: ensembles, distillation, transfer, self-supervision."""

from corollary.regularisation.bagging import Bagging, BaggingClassifier, BaggingRegressor

__all__ = ["Bagging", "BaggingClassifier", "BaggingRegressor"]
