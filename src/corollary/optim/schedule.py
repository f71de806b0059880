r"""Step-size schedules: the factor on the learning rate at step :math:`t` of :math:`T`.

A schedule :math:`\eta_t` lets stochastic gradients converge if it is not summable but
square-summable (Robbins and Monro): :math:`\sum_t \eta_t = \infty`, :math:`\sum_t \eta_t^2 < \infty`.
Of those here only ``1/t`` is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from corollary.errors import unknown

__all__ = ["SCHEDULES", "robbins_monro", "schedule"]

STEP_EVERY = 1 / 3  # "step" divides the rate by ten after each third of the training

SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "constant": lambda t, T: 1.0,
    "step": lambda t, T: 10.0 ** -math.floor(t / max(1.0, T * STEP_EVERY)),
    "1/t": lambda t, T: 1.0 / (1 + t),
    "1/sqrt": lambda t, T: 1.0 / math.sqrt(1 + t),
    "cosine": lambda t, T: 0.5 * (1 + math.cos(math.pi * min(t / max(T, 1), 1.0))),
    "linear": lambda t, T: max(0.0, 1 - t / max(T, 1)),
}


def schedule(name: str, t: int, total: int, warmup: int = 0) -> float:
    """Return the factor at step ``t`` (from 0) of ``total``, after a linear warm-up.

    >>> [round(schedule("cosine", t, 4), 3) for t in range(5)]
    [1.0, 0.854, 0.5, 0.146, 0.0]
    >>> [schedule("constant", t, 4, warmup=2) for t in range(3)]
    [0.5, 1.0, 1.0]
    """
    if name not in SCHEDULES:
        raise unknown("optim.schedule", "schedule", name, SCHEDULES)
    if t < warmup:
        return (t + 1) / warmup
    return SCHEDULES[name](t - warmup, total - warmup)


def robbins_monro(name: str) -> bool:
    """Whether the schedule's steps are not summable while their squares are."""
    power = {"1/t": 1.0, "1/sqrt": 0.5, "constant": 0.0}.get(name)
    return power is not None and 0.5 < power <= 1.0
