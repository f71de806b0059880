r"""Exact matrix recovery: how many known entries determine a low-rank matrix.

An :math:`n \times m` matrix of rank :math:`k` has :math:`k (n + m - k)` degrees of freedom (1), so fewer known
entries can never do. With :math:`P`, :math:`Q` the projections on its column and row space and
:math:`E = \sum_i u_i v_i^\top`, it is :math:`\mu`-incoherent if

.. math::
    |P_{ij} - \tfrac kn \delta_{ij}| \le \mu \tfrac{\sqrt k}{n}, \qquad
    |Q_{ij} - \tfrac km \delta_{ij}| \le \mu \tfrac{\sqrt k}{m}, \qquad
    |E_{ij}| \le \mu \sqrt{\tfrac{k}{nm}}, \tag{2}

and then :math:`C \mu^2 n k \log^6 n` entries at random places suffice, with high probability, for

.. math::
    \min_B \lVert B \rVert_* \quad\text{s.t.}\quad \Pi_\Omega(B) = \Pi_\Omega(A) \tag{3}

to return it. (3) is solved here by Douglas-Rachford splitting, many matrices at once: with
:math:`B = \operatorname{shrink}(Y)`,

.. math::
    Y \leftarrow Y + \Pi_A(2B - Y) - B, \qquad \Pi_A(M) = M + \Pi_\Omega(A - M). \tag{4}
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from corollary import errors

__all__ = ["RecoveryCurve", "degrees_of_freedom", "incoherence", "recovery_curve"]

SUCCESS = 1e-3  # relative error below which a matrix counts as recovered


def degrees_of_freedom(shape: tuple[int, int], rank: int) -> int:
    """Return the dimension of the matrices of this shape and rank, eq. 1.

    >>> degrees_of_freedom((30, 30), 2)
    116
    """
    n, m = shape
    if not 0 <= rank <= min(n, m):
        must = f"rank must lie in 0 to {min(n, m)}"
        raise errors.value("degrees_of_freedom", must, rank)
    return rank * (n + m - rank)


def incoherence(A: Any, rank: int | None = None) -> float:
    """Return the smallest mu of eq. 2 for a matrix of this rank (by default its own).

    A spike has the largest, a matrix of signs the smallest.

    >>> spike = np.zeros((9, 9)); spike[0, 0] = 1.0
    >>> round(incoherence(spike), 6), round(incoherence(np.ones((9, 9))), 6)
    (9.0, 1.0)
    """
    A = np.asarray(A, float)
    if A.ndim != 2 or not A.any():
        got = f"shape {A.shape}" if A.ndim != 2 else "zeros"
        raise errors.value("incoherence", "A must be a matrix that is not zero", got)
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    own = int((s > s[0] * max(A.shape) * np.finfo(float).eps).sum())
    k = own if rank is None else rank
    if not 1 <= k <= own:
        raise errors.value("incoherence", f"rank must lie in 1 to the matrix's own ({own})", rank)
    (n, m), U, V = A.shape, U[:, :k], Vt[:k].T
    parts = (
        np.abs(U @ U.T - k / n * np.eye(n)).max() * n,
        np.abs(V @ V.T - k / m * np.eye(m)).max() * m,
        np.abs(U @ V.T).max() * np.sqrt(n * m),
    )
    return float(max(parts) / np.sqrt(k))


def least_nuclear_norm(A: Tensor, known: Tensor, max_iter: int = 1000, tol: float = 1e-6) -> Tensor:
    """Solve eq. 3 by eq. 4 for a batch of matrices (b, n, m) with boolean patterns of known entries."""
    A = torch.where(known, A, 0.0)
    tau = torch.linalg.matrix_norm(A, 2)[:, None] * 0.3
    Y = A.clone()
    for _ in range(max_iter):
        U, s, Vt = torch.linalg.svd(Y, full_matrices=False)
        B = (U * (s - tau).clamp(min=0)[:, None]) @ Vt
        change = torch.where(known, A, 2 * B - Y) - B
        Y = Y + change
        if bool((torch.linalg.matrix_norm(change) <= tol * torch.linalg.matrix_norm(Y)).all()):
            break
    return torch.where(known, A, B)


class RecoveryCurve(NamedTuple):
    """How often random matrices are recovered, by the number of known entries."""

    samples: np.ndarray
    """Known entries, (c,)."""
    success: np.ndarray
    """Share of the matrices that were recovered, (c,)."""
    degrees_of_freedom: int
    """Fewer entries than this can never do."""


def recovery_curve(
    n: int = 30, rank: int = 1, *, samples: Any = None, repeats: int = 10, random_state: Any = None
) -> RecoveryCurve:
    """Find how many known entries nuclear-norm minimisation needs to recover random matrices.

    Parameters
    ----------
    n : int, default=30
        Side of the square matrices. Raising it sharpens the transition.
    rank : int, default=1
        Their rank.
    samples : array-like of int, optional
        Numbers of known entries; by default ten from half the degrees of freedom to six times them.
    repeats : int, default=10
        Matrices per number.
    random_state : int or RandomState, optional
        Seed for matrices and places.

    Returns
    -------
    RecoveryCurve

    References
    ----------
    .. [1] E. Candès, T. Tao (2010). The power of convex relaxation: near-optimal matrix completion.
       IEEE Transactions on Information Theory 56(5), 2053-2080.

    Examples
    --------
    >>> from corollary.completion import recovery_curve
    >>> recovery_curve(12, 1, samples=[20, 130], repeats=3, random_state=0).success
    array([0., 1.])
    """
    freedom = degrees_of_freedom((n, n), rank)
    if samples is None:
        samples = np.unique(np.linspace(freedom // 2, min(6 * freedom, n * n), 10).astype(int))
    samples = np.asarray(samples)
    if samples.min() < 1 or samples.max() > n * n:
        got = f"{samples.min()} to {samples.max()}"
        raise errors.value("recovery_curve", f"samples must lie in 1 to {n * n}", got)
    seed = check_random_state(random_state).randint(2**31 - 1) if random_state is not None else None
    rng = np.random.default_rng(seed)
    rates = [_rate(rng, n, rank, int(count), repeats) for count in samples]
    return RecoveryCurve(samples, np.array(rates), freedom)


def _rate(rng: np.random.Generator, n: int, rank: int, count: int, repeats: int) -> float:
    A = torch.from_numpy(
        rng.standard_normal((repeats, n, rank)) @ rng.standard_normal((repeats, rank, n)),
    )
    places = np.argsort(rng.random((repeats, n * n)), axis=1)[:, :count]
    known = np.zeros((repeats, n * n), bool)
    np.put_along_axis(known, places, True, axis=1)
    B = least_nuclear_norm(A, torch.from_numpy(known.reshape(repeats, n, n)))
    errors_ = torch.linalg.matrix_norm(B - A) / torch.linalg.matrix_norm(A)
    return float((errors_ < SUCCESS).double().mean())
