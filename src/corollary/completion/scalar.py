r"""The smallest matrix factorisation: one number as a product of two.

Gradient flow on :math:`\frac12 (a - uv)^2` is :math:`\dot u = (a - uv) v`, :math:`\dot v = (a - uv) u` (1); it
conserves :math:`u^2 - v^2`. Balanced, :math:`u(0) = v(0)`, the product :math:`x = uv` obeys

.. math::
    \dot x = 2x (a - x), \qquad
    x(t) = \frac{a\, c}{c + (a - c) e^{-2at}}, \qquad c = x(0) \ge 0, \tag{2}

and :math:`x(t) = c / (1 + 2ct)` for :math:`a = 0`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary import errors

__all__ = ["integrate_flow", "scalar_flow"]


def scalar_flow(a: float, c: float, t: Any) -> np.ndarray:
    """Return the balanced product at times t, eq. 2.

    Parameters
    ----------
    a : float
        The number to be factorised.
    c : float
        The product at time 0; not negative, since both factors are equal.
    t : array-like
        Times, from 0 on.

    Returns
    -------
    ndarray of the shape of t

    Notes
    -----
    It tends to a only if a > 0 and c > 0: for a < 0 the limit is 0, since equal factors have a
    product that is never negative, and c = 0 is a saddle from which nothing moves. Some notes
    say that it converges to a throughout.

    Examples
    --------
    >>> from corollary.completion import scalar_flow
    >>> scalar_flow(2.0, 0.1, [0, 1, 10]).round(3)
    array([0.1  , 1.484, 2.   ])
    """
    t = np.asarray(t, float)
    if c < 0:
        raise errors.value("scalar_flow", "c must not be negative", c, "Both factors are equal at time 0.")
    if t.size and t.min() < 0:
        raise errors.value("scalar_flow", "t must not be negative", f"minimum {t.min():g}")
    if c == 0:
        return np.zeros_like(t)
    if a == 0:
        return c / (1 + 2 * c * t)
    if a > 0:
        return a * c / (c + (a - c) * np.exp(-2 * a * t))
    grown = np.exp(2 * a * t)  # the same fraction times e^{2at}, which for a < 0 cannot overflow
    return a * c * grown / (c * grown + (a - c))


def integrate_flow(a: float, u: float, v: float, t: Any, steps: int = 1000) -> np.ndarray:
    """Integrate eq. 1 numerically from (u, v) and return the products at times t (rising).

    Classical Runge-Kutta steps, ``steps`` between any two times; it takes unbalanced starts too.
    """

    def slope(y: np.ndarray) -> np.ndarray:
        return (a - y[0] * y[1]) * y[::-1]

    y, now, out = np.array([u, v], float), 0.0, []
    for then in np.asarray(t, float):
        h = (then - now) / steps
        for _ in range(steps if h else 0):
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3))
        now = then
        out.append(y[0] * y[1])
    return np.array(out)
