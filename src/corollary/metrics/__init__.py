"""Measures of models: what scikit-learn's metrics do not have."""

from corollary.metrics.frechet import frechet_distance

__all__ = ["frechet_distance"]
