"""Networks for tables, and anybody's modules as estimators."""

from corollary.networks.mlp import MLPClassifier, MLPRegressor
from corollary.networks.net import Net, NetClassifier, NetRegressor
from corollary.nn.mlp import MLP

__all__ = ["MLP", "MLPClassifier", "MLPRegressor", "Net", "NetClassifier", "NetRegressor"]
