"""What the roles with targets share: the targets of a Dataset, and the weights of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import compute_class_weight, compute_sample_weight

from corollary import errors
from corollary.data.dataset import Dataset

__all__ = ["class_weights", "given_target"]


def given_target(owner: Any, X: Any, y: Any) -> Any:
    """Return y, or the target of a Dataset if y is left out."""
    if y is not None:
        return y
    if getattr(X, "y", None) is None or not isinstance(X, Dataset):
        must = "score needs targets"
        raise errors.value(type(owner).__name__, must, "none", "Pass y, or a Dataset with a target.")
    return X.y


def class_weights(class_weight: Any, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the weight of each sample's class, for codes (n,) or probabilities (n, n_classes)."""
    if y.ndim == 1:
        return np.asarray(compute_sample_weight(class_weight, classes[y]))
    if class_weight == "balanced":  # n / (n_classes * size of the class), whose sizes may be fractions here
        return np.asarray(y @ (len(y) / (y.shape[1] * y.sum(0).clip(np.finfo(float).tiny))))
    return np.asarray(y @ compute_class_weight(class_weight, classes=classes, y=classes))
