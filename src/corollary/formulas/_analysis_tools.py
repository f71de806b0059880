"""What the checks of analysis are made of: convex test functions and judgements on grids."""

import numpy as np
from scipy import special

EXACT = 1e-12


def convex_function(rng, d=1):
    """A random smooth convex function of the last axis, and its gradient."""
    A, b, q = rng.normal(size=(5, d)), rng.normal(size=5), rng.uniform(0.3, 1)

    def f(x):
        return special.logsumexp(x @ A.T + b, axis=-1) + q / 2 * (x**2).sum(-1)

    def g(x):
        return special.softmax(x @ A.T + b, axis=-1) @ A + q * x

    return f, g


def is_convex_on_grid(values):
    """Whether no second difference is negative."""
    return bool((values[:-2] + values[2:] - 2 * values[1:-1]).min() >= -1e-9)


def count_minimisers(f):
    """0, 1 or infinity (two or more), by comparing a grid with one twice as wide."""
    narrow, wide = f(np.linspace(-20, 20, 4001)), f(np.linspace(-40, 40, 8001))
    if wide.min() < narrow.min():
        return 0.0
    return 1.0 if np.sum(wide == wide.min()) == 1 else np.inf


def smoothness_class(f):
    """Whether f on [0, 1] is C1, Lipschitz, uniformly continuous, judged by two grids."""
    coarse, fine = f(np.linspace(0, 1, 2**8 + 1)), f(np.linspace(0, 1, 2**14 + 1))
    jump = [np.abs(np.diff(v)).max() for v in (coarse, fine)]
    steepest = [jump[0] * 2**8, jump[1] * 2**14]
    bend = [np.abs(np.diff(v, 2)).max() * n for v, n in ((coarse, 2**8), (fine, 2**14))]
    return bend[1] < 0.2 * bend[0], steepest[1] < 2 * steepest[0], jump[1] < 0.2 * jump[0]
