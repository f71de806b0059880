"""Networks for tables."""

from corollary.networks.mlp import MLP, MLPClassifier, MLPRegressor

__all__ = ["MLP", "MLPClassifier", "MLPRegressor"]
