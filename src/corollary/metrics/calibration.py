"""The expected calibration error: how far confidences of a classifier are from its accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary import errors

__all__ = ["calibration_error"]


def calibration_error(chances: Any, code: Any, bins: int = 10) -> float:
    """Return the expected calibration error (ECE): mean distance between confidence and accuracy, over bins of confidence.

    Parameters
    ----------
    chances : array-like of shape (n, n_classes)
        Probabilities.
    code : array-like of int, shape (n,)
        The true classes, as columns of ``chances``.
    bins : int, default=10
        Equal bins of the confidence in the predicted class.

    Examples
    --------
    >>> round(calibration_error(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1])), 3)
    0.3
    """
    chances, code = np.asarray(chances, dtype=float), np.asarray(code)
    if chances.ndim != 2 or not len(chances) or not np.all((chances >= 0) & (chances <= 1)):
        must = "chances must be probabilities of shape (n, n_classes)"
        raise errors.value("calibration_error", must, f"shape {chances.shape}, or numbers outside [0, 1]")
    known = (
        code.shape == chances.shape[:1]
        and code.dtype.kind in "iu"
        and 0 <= code.min() <= code.max() < chances.shape[1]
    )
    if not known:
        must = f"code must number a column of chances for each of {len(chances)} samples"
        do = "Use np.searchsorted(model.classes_, y)."
        raise errors.value("calibration_error", must, f"{code.dtype} of shape {code.shape}", do)
    confidence, right = chances.max(1), chances.argmax(1) == code
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(place, confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(code))
