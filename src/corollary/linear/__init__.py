"""Linear models and their networks. Names are imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "Autoencoder": "autoencoder",
    "DeepLinearNetwork": "deep_linear",
    "FactorAnalysis": "factor_analysis",
    "Lasso": "lasso",
    "LinearAutoencoder": "autoencoder",
    "LinearRegression": "regression",
    "LogisticRegression": "logistic",
    "PCA": "pca",
    "ProbabilisticPCA": "ppca",
    "Ridge": "regression",
    "SoftmaxRegression": "logistic",
    "critical_points": "deep_linear",
    "lasso_path": "lasso",
    "mode_trajectory": "deep_linear",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.linear.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.linear' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
