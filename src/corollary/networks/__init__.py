"""Networks for tables."""

from corollary.networks.mlp import MLPClassifier, MLPRegressor
from corollary.nn.mlp import MLP

__all__ = ["MLP", "MLPClassifier", "MLPRegressor"]
