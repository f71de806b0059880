"""The expected calibration error: how far confidences of a classifier are from its accuracy."""

from __future__ import annotations

import numpy as np

__all__ = ["calibration_error"]


def calibration_error(chances: np.ndarray, code: np.ndarray, bins: int = 10) -> float:
    """Return the expected calibration error (ECE): mean distance between confidence and accuracy, over bins of confidence.

    Parameters
    ----------
    chances : ndarray of shape (n, n_classes)
        Probabilities.
    code : ndarray of int, shape (n,)
        The true classes, as columns of ``chances``.
    bins : int, default=10
        Equal bins of the confidence in the predicted class.

    Examples
    --------
    >>> round(calibration_error(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1])), 3)
    0.3
    """
    confidence, right = chances.max(1), chances.argmax(1) == code
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(place, confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(code))
