r"""Means with honest intervals, and differences that count.

Training parts of cross-validation overlap, so scores of the splits are not independent and their plain standard error
is too small. With :math:`J` splits of :math:`n_1` training and :math:`n_2` held-out examples the variance of the mean
is taken as (Nadeau and Bengio)

.. math:: \Big(\frac1J + \frac{n_2}{n_1}\Big) s^2, \tag{1}

and the interval of 95 % is that of Student's t with :math:`J - 1` degrees of freedom. Two systems are told apart by the
interval of their *paired* differences, split by split.

References
----------
.. [1] C. Nadeau, Y. Bengio (2003). Inference for the generalization error. Machine Learning 52, 239-281. Section 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

__all__ = ["differ", "interval"]


def interval(scores: Sequence[float], ratio: float) -> tuple[float, float]:
    """Return the half width of the 95 % interval of the mean, eq. 1, and the standard deviation of the splits.

    Parameters
    ----------
    scores : sequence of float
        One per split.
    ratio : float
        Held-out examples per training example.

    Examples
    --------
    >>> width, deviation = interval([0.8, 0.9, 0.85, 0.95, 0.9], ratio=0.25)
    >>> round(width, 3), round(deviation, 3)
    (0.106, 0.057)
    """
    J = len(scores)
    if J < 2:
        return float("nan"), float("nan")
    deviation = float(np.std(scores, ddof=1))
    if deviation < max(1e-12 * np.abs(scores).max(), 1e-15):  # scores that differ by rounding are equal
        deviation = 0.0
    return float(student.ppf(0.975, J - 1) * deviation * np.sqrt(1 / J + ratio)), deviation


def differ(a: Sequence[float], b: Sequence[float], ratio: float) -> bool:
    """Whether the 95 % interval of the paired differences leaves 0 out; one split tells nothing apart."""
    gaps = np.subtract(a, b)
    if len(gaps) < 2:
        return False
    return bool(abs(gaps.mean()) > interval(gaps, ratio)[0])
