"""Multi-layer perceptrons for tables, and any ``torch.nn.Module`` as an estimator."""

from corollary.networks.inputs import together
from corollary.networks.mlp import MLPClassifier, MLPRegressor
from corollary.networks.net import Net, NetClassifier, NetRegressor
from corollary.nn.mlp import MLP

__all__ = ["MLP", "MLPClassifier", "MLPRegressor", "Net", "NetClassifier", "NetRegressor", "together"]
