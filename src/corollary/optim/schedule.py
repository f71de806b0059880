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

HORIZON = 1000  # steps that a schedule with an end is given where its long run is asked for
LONG_RUN = (10**12, 10**15)  # between which the power of a schedule is measured
POWER_ERROR = 1e-6  # of that power, from what is added to t and from rounding
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


def robbins_monro(rate: str | Callable[[int], float]) -> bool:
    r"""Whether the steps of a schedule are not summable while their squares are.

    Decided by the power :math:`p` with which the steps fall in the long run, :math:`\eta_t \sim t^{-p}`: the two sums
    demand :math:`1/2 < p \le 1`. Steps that end, or fall faster than any power, are summable.

    Parameters
    ----------
    rate : str or callable
        A schedule by name, or one's own: ``rate(t)`` is the step size at step t = 0, 1, ...

    Examples
    --------
    >>> robbins_monro("1/t"), robbins_monro("1/sqrt")
    (True, False)
    >>> robbins_monro(lambda t: 0.3 / (10 + t) ** 0.75)
    True
    """
    if isinstance(rate, str):
        name = rate
        rate = lambda t: schedule(name, t, HORIZON)  # noqa: E731
    early, late = (float(rate(t)) for t in LONG_RUN)
    if not (early > 0 and late > 0):
        return False
    power = math.log(early / late) / math.log(LONG_RUN[1] / LONG_RUN[0])
    return 0.5 + POWER_ERROR < power <= 1.0 + POWER_ERROR
