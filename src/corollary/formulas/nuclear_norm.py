"""Matrix completion by singular values: projection, the nuclear norm, thresholding and exact recovery."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from corollary.formulas._completion_tools import (
    nuclear_completion,
    random_mask,
    samples_needed,
    singular_values,
    truncate,
)
from corollary.formulas._library_tools import fitted
from corollary.formulas.record import (
    Erratum,
    all_of,
    at_least,
    at_most,
    equal,
    exponent,
    formula,
)
from corollary.formulas.tools import jacobian, orthogonal


def _matrix(model, A, mask):
    """The matrix to which the library's model completes what is observed."""
    fitted(model, np.where(mask, A, np.nan))
    return (model.left_ * model.singular_values_) @ model.right_.T


@formula(
    "mcpl-svp",
    latex=r"A^{(t+1)} = \bigl[A^{(t)} + \eta\, \Pi_\Omega(A - A^{(t)})\bigr]_k",
    where="004 §2.2",
    right=lambda A, mask, B, eta, k: truncate(B + eta * mask * (A - B), k),
    wrong=lambda A, mask, B, eta, k: truncate(B - eta * mask * (A - B), k),
    systems=("svp",),
    functions=("corollary.completion.SingularValueProjection",),
)
def mcpl_svp(rng, claim):
    """A gradient step on the observed entries, then the nearest matrix of rank k.

    On an incoherent matrix of that rank with enough entries the iteration finds the missing ones.
    """
    from corollary.completion import SingularValueProjection

    n, k, share = 24, 2, 0.7
    A = rng.choice([-1, 1], size=(n, k)) @ rng.normal(size=(k, n))
    mask = (rng.random((n, n)) < share).astype(float)
    # One step from anywhere: rank k, and as near to the gradient step as its singular values allow.
    before, eta = rng.normal(size=(n, n)), rng.uniform(0.3, 0.7)
    moved = np.where(mask == 1, (1 - eta) * before + eta * A, before)
    step = claim(A, mask, before, eta, k)
    lost = np.sqrt((singular_values(moved)[k:] ** 2).sum())
    B = np.zeros((n, n))
    for _ in range(100):
        B = claim(A, mask, B, 1 / share, k)
    theirs = _matrix(SingularValueProjection(k, step=1 / share, max_iter=40, random_state=0), A, mask)
    return all_of(
        equal(np.linalg.norm(B - theirs) / np.linalg.norm(A), 0, tol=2e-3),
        equal(np.linalg.norm(B - A) / np.linalg.norm(A), 0, tol=1e-3),
        equal(singular_values(B)[k:], 0, tol=1e-9),
        equal(singular_values(step)[k:], 0, tol=1e-9),
        equal(np.linalg.norm(moved - step), lost, tol=1e-9),
    )


@formula(
    "mcpl-nuclear-norm",
    latex=r"\lVert M \rVert_* = \sum_i \sigma_i(M) = \lVert \sigma(M) \rVert_1, \qquad "
    r"\lVert M \rVert_F = \lVert \sigma(M) \rVert_2",
    where="004 §2.2",
    right=lambda M: (singular_values(M).sum(), np.linalg.norm(singular_values(M))),
    wrong=lambda M: ((singular_values(M) ** 2).sum(), np.linalg.norm(singular_values(M))),
    systems=("svt",),
)
def mcpl_nuclear_norm(rng, claim):
    """The nuclear norm sums the singular values; it is dual to the spectral norm.

    Its value is the largest inner product with a matrix of spectral norm one.
    """
    M, N = rng.normal(size=(2, 4, 5))
    nuclear, frobenius = claim(M)
    U, _, Vt = np.linalg.svd(rng.normal(size=(300, 4, 5)), full_matrices=False)
    isometries = U @ Vt
    values, vectors = np.linalg.eigh(M @ M.T)  # the best isometry is (M M^T)^(-1/2) M
    best = (vectors / np.sqrt(values)) @ vectors.T @ M
    return all_of(
        equal(nuclear, (best * M).sum(), tol=1e-8),
        at_least(nuclear, (isometries * M).sum(axis=(1, 2))),
        equal(frobenius, np.sqrt((M**2).sum()), tol=1e-10),
        at_most(claim(M + N)[0], nuclear + claim(N)[0]),
    )


@formula(
    "mcpl-convex-envelope",
    latex=r"\mathrm{env}_{\lVert M \rVert_2 \le 1}(\mathrm{rank}) = \lVert M \rVert_*",
    where="004 Def 11, Thm 12",
    right=lambda M: singular_values(M).sum(),
    wrong=lambda M: (M**2).sum(),
    systems=("svt",),
)
def mcpl_convex_envelope(rng, claim):
    """On the spectral unit ball the nuclear norm is the largest convex function below the rank.

    It is convex, never above the rank, and no convex minorant is larger: a matrix of the ball is a mix
    of partial isometries whose mean rank is just its nuclear norm.
    """
    outcomes = []
    for _ in range(5):
        U, V = orthogonal(rng, 4), orthogonal(rng, 4)
        s = np.sort(rng.uniform(0, 1, size=4))[::-1]
        s[3] *= rng.integers(2)
        M = (U * s) @ V.T
        # Draw a level uniformly and keep the singular values above it: a mix of isometries with mean M.
        weights = -np.diff(np.concatenate([[1.0], s, [0.0]]))
        isometries = [U[:, :r] @ V[:, :r].T for r in range(5)]
        other = (orthogonal(rng, 4) * rng.uniform(0, 1, size=4)) @ orthogonal(rng, 4).T
        outcomes += [
            equal(sum(w * B for w, B in zip(weights, isometries)), M, tol=1e-10),
            equal(claim(M), weights @ np.arange(5), tol=1e-10),
            equal([claim(B) for B in isometries], range(5), tol=1e-10),
            at_most(claim(M), np.linalg.matrix_rank(M, tol=1e-9), tol=1e-10),
            at_most(claim((M + other) / 2), (claim(M) + claim(other)) / 2, tol=1e-10),
        ]
    return all_of(*outcomes)


def _relaxed(A, mask, B, tau, gamma, size):
    return ((mask * (A - B)) ** 2).sum() / 2 + tau * size(B) + gamma * np.linalg.norm(B)


@formula(
    "mcpl-relaxed-objective",
    latex=r"\tfrac{1}{2} \lVert \Pi_\Omega(A - B) \rVert_F^2 + \tau \lVert B \rVert_* + "
    r"\gamma \lVert B \rVert_F,"
    r"\qquad \lVert B \rVert_2 \le \lVert B \rVert_F",
    where="004 §2.2",
    right=lambda A, mask, B, tau, gamma: _relaxed(A, mask, B, tau, gamma, lambda M: singular_values(M).sum()),
    wrong=lambda A, mask, B, tau, gamma: _relaxed(
        A, mask, B, tau, gamma, lambda M: np.linalg.matrix_rank(M, tol=1e-9)
    ),
    systems=("svt",),
    functions=("corollary.completion.SingularValueThresholding",),
)
def mcpl_relaxed_objective(rng, claim):
    """Nuclear and Frobenius norm stand in for the bounds on rank and spectral norm, and make it convex.

    With the rank itself the midpoint of two rank-one matrices costs more than they do.
    """
    from corollary.completion import SingularValueThresholding

    A, mask, tau, gamma = rng.normal(size=(4, 4)), random_mask(rng, 4, 4), rng.uniform(0.6, 0.8), 0.5
    f = lambda B: claim(A, mask, B, tau, gamma)
    gaps, sizes = [], []
    for _ in range(20):
        B, C = (0.1 * np.outer(rng.normal(size=4), rng.normal(size=4)) for _ in range(2))
        share = rng.uniform(0.2, 0.8)
        gaps.append(f(share * B + (1 - share) * C) - share * f(B) - (1 - share) * f(C))
        sizes.append(np.linalg.norm(B + C, 2) - np.linalg.norm(B + C))
    # On a positive semidefinite matrix the nuclear norm is the trace.
    S = (orthogonal(rng, 4) * rng.uniform(0.5, 1, size=4))[:, :3]
    S = S @ S.T
    value = ((A - S)[mask == 1] ** 2).sum() / 2 + tau * np.trace(S) + gamma * np.sqrt((S**2).sum())
    # without the Frobenius norm the library's soft-impute minimises it
    best = _matrix(SingularValueThresholding(tau, tol=1e-6, random_state=0), A, mask)
    others = [0.97 * best, 1.03 * best, *(best + 0.1 * rng.normal(size=(20, 4, 4)))]
    rivals = [claim(A, mask, other, tau, 0.0) for other in others]
    return all_of(
        at_most(gaps, 0, tol=1e-10),
        at_most(sizes, 0),
        equal(f(S), value, tol=1e-9),
        at_most(claim(A, mask, best, tau, 0.0), rivals),
    )


def _hard(M, tau):
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    return (U * np.where(s > tau, s, 0)) @ Vt


def _soft_impute(M, tau):
    """The library's soft-impute of a whole matrix, for which one step is all."""
    from corollary.completion import SingularValueThresholding

    return _matrix(SingularValueThresholding(tau, tol=1e-12, random_state=0), M, np.ones_like(M))


@formula(
    "mcpl-shrink",
    latex=r"\arg\min_B \tfrac{1}{2} \lVert A - B \rVert_F^2 + \tau \lVert B \rVert_* ="
    r"U\, \mathrm{diag}(\sigma - \tau)_+ V^\top",
    where="004 Thm 13",
    right=lambda M, tau: _soft_impute(M, tau),
    wrong=_hard,
    systems=("svt",),
    functions=("corollary.completion.SingularValueThresholding",),
)
def mcpl_shrink(rng, claim):
    """Soft thresholding of the singular values is the proximal map of the nuclear norm.

    The optimum has a certificate: the rest, over tau, lies in the spectral unit ball and is aligned with
    the minimiser. A larger tau never gives a larger rank.
    """
    A = (orthogonal(rng, 5) * [3.0, 2.0, 1.0, 0.5, 0.2]) @ orthogonal(rng, 5)
    outcomes, ranks = [], []
    for tau in (0.1, 0.3, 0.8, 1.5, 4.0):
        B = claim(A, tau)
        rest = (A - B) / tau
        outcomes += [
            at_most(np.linalg.norm(rest, 2), 1, tol=1e-10),
            equal((rest * B).sum(), singular_values(B).sum(), tol=1e-10),
        ]
        ranks.append(np.linalg.matrix_rank(B, tol=1e-9))
    return all_of(*outcomes, at_most(np.diff(ranks), 0))


@formula(
    "mcpl-svt",
    latex=r"A^{(t+1)} = A^{(t)} + \eta_t \Pi_\Omega(A - \mathrm{shrink}_\tau(A^{(t)})): \qquad "
    r"\mathrm{shrink}_\tau(A^{(\infty)}) = \arg\min_{\Pi_\Omega(A - B) = 0}"
    r"\tau \lVert B \rVert_* + \tfrac{1}{2} \lVert B \rVert_F^2",
    where="004 §2.2",
    right=lambda B, tau: tau * singular_values(B).sum() + (B**2).sum() / 2,
    errata=(
        Erratum(
            "E37",
            printed=r"$\tau\lVert B\rVert_* + \frac{1}{2\tau}\lVert B\rVert_F^2$",
            correction=r"the Frobenius term has the weight $\frac{1}{2}$",
            form=lambda B, tau: tau * singular_values(B).sum() + (B**2).sum() / (2 * tau),
            where="004 §2.2",
            kind="formula",
        ),
    ),
    systems=("svt",),
    functions=("corollary.completion.SingularValueThresholding",),
)
def mcpl_svt(rng, claim):
    """Singular value thresholding, a dual ascent, ends at the matrix that minimises this under the data.

    With one missing entry of two by two the minimum is a line search.
    """
    from corollary.completion import SingularValueThresholding

    tau, mask = 0.3, np.array([[1, 1], [1, 0]])
    A = np.array([[1, 0.6], [0.5, 0]]) * rng.uniform(0.9, 1.1, size=(2, 2))
    options = {"method": "svt", "step": 1.2, "tol": 1e-12, "max_iter": 300, "random_state": 0}
    limit = _matrix(SingularValueThresholding(tau, **options), A, mask)[1, 1]
    fill = lambda x: A + np.array([[0, 0], [0, x]])
    best = minimize_scalar(
        lambda x: claim(fill(x), tau), bounds=(-2, 2), options={"xatol": 1e-9}, method="bounded"
    )
    return equal(best.x, limit, tol=1e-5)


def _degrees_of_freedom(n, k):
    from corollary.completion import degrees_of_freedom

    return degrees_of_freedom((n, n), k)


@formula(
    "mcpl-degrees-of-freedom",
    latex=r"k + 2 \sum_{i \le k} (n - i) = 2nk - k^2",
    where="004 §2.2",
    right=lambda n, k: _degrees_of_freedom(n, k),
    wrong=lambda n, k: 2 * n * k,
    systems=("exact-recovery",),
    functions=("corollary.completion.degrees_of_freedom",),
)
def mcpl_degrees_of_freedom(rng, claim):
    """So many numbers describe a square matrix of rank k: its singular values and two orthonormal bases.

    The product of the factors has just that many independent directions.
    """
    counted, summed, sizes = [], [], [(3, 1), (4, 2), (5, 3)]
    for n, k in sizes:
        U, V = rng.normal(size=(2, n, k))
        by_U = jacobian(lambda B, V=V: (B @ V.T).ravel(), U).reshape(n * n, -1)
        by_V = jacobian(lambda B, U=U: (U @ B.T).ravel(), V).reshape(n * n, -1)
        counted.append(np.linalg.matrix_rank(np.hstack([by_U, by_V]), tol=1e-6))
        summed.append(k + 2 * sum(n - i for i in range(1, k + 1)))
    claimed = [claim(n, k) for n, k in sizes]
    return all_of(equal(claimed, counted, tol=0), equal(claimed, summed, tol=0))


def _incoherence(U, V):
    from corollary.completion import incoherence

    return incoherence(U @ V.T)


@formula(
    "mcpl-incoherence",
    latex=r"\Bigl\lvert P_{ij} - \frac{k}{n} \delta_{ij} \Bigr\rvert,\ "
    r"\Bigl\lvert Q_{ij} - \frac{k}{n} \delta_{ij} \Bigr\rvert,"
    r"\ \lvert E_{ij} \rvert \le \frac{\mu \sqrt{k}}{n},"
    r"\qquad P = U U^\top,\ Q = V V^\top,\ E = U V^\top",
    where="004 Def 14",
    right=_incoherence,
    wrong=lambda U, V: _incoherence(U, V) / np.sqrt(U.shape[1]),
    systems=("exact-recovery",),
    functions=("corollary.completion.incoherence",),
)
def mcpl_incoherence(rng, claim):
    """How evenly the singular vectors are spread: the least mu that bounds these entries.

    A single spike has the worst value n, a constant matrix the best, 1.
    """
    n, k = 8, 3
    U, V = orthogonal(rng, n)[:, :k], orthogonal(rng, n)[:, :k]
    entries = [abs(sum(U[i] * V[j])) for i in range(n) for j in range(n)]
    for B in (U, V):
        entries += [abs(sum(B[i] * B[j]) - (k / n if i == j else 0)) for i in range(n) for j in range(n)]
    spike, flat = np.eye(n)[:, :1], np.full((n, 1), n**-0.5)
    mu = claim(U, V)
    return all_of(
        at_most(entries, mu * np.sqrt(k) / n, tol=1e-12),
        equal(max(entries), mu * np.sqrt(k) / n, tol=1e-12),  # the least such mu
        equal(claim(spike, spike), n, tol=1e-12),
        equal(claim(flat, flat), 1, tol=1e-12),
    )


@formula(
    "mcpl-exact-recovery",
    latex=r"S \ge C \mu^2 n k \log^6 n \;\Longrightarrow\; A = \arg\min_{\Pi_\Omega(B) = \Pi_\Omega(A)}"
    r"\lVert B \rVert_* \quad \text{w.p.} \ge 1 - n^{-3}",
    where="004 Thm 15",
    right=lambda n, k: (n * k, 2 * n * k - k**2),
    wrong=lambda n, k: (n**2 * k, 2 * n * k - k**2),
    systems=("exact-recovery",),
    functions=("corollary.completion.recovery_curve",),
)
def mcpl_exact_recovery(rng, claim):
    """An incoherent matrix is the one of least nuclear norm once about nk entries, times logs, are seen.

    The claim is the order of that number without its logarithms, and the degrees of freedom, with less than
    which nothing can do. The order is measured through dual certificates; one logarithm already explains
    the rest of its growth. The degrees of freedom are the dimension of the directions in which the rank stays.
    """
    from corollary.completion import recovery_curve

    sizes, ranks = [16, 32, 64], [1, 2, 4]
    by_n = [np.median([samples_needed(rng, n, 1)[3] for _ in range(7)]) / np.log(n) for n in sizes]
    by_k = [np.median([samples_needed(rng, 32, k)[3] for _ in range(3)]) for k in ranks]
    seed, many = int(rng.integers(2**31)), min(8 * 8, 7 * claim(8, 1)[0])
    curve = recovery_curve(8, 1, samples=(claim(8, 1)[1] - 1, many), repeats=4, random_state=seed)
    dimensions = []
    for k in ranks:
        P, Q = rng.normal(size=(2, 8, k))
        moves = np.hstack([np.kron(np.eye(8), Q), np.kron(P, np.eye(8))])
        dimensions.append(np.linalg.matrix_rank(moves))
    U, V, order, needed = samples_needed(rng, 16, 1)
    A = U @ V.T
    error = [
        np.linalg.norm(nuclear_completion(A, order < count) - A)
        for count in (needed, claim(16, 1)[1] - 1)  # enough, and one less than the degrees of freedom
    ]
    # Seven trials leave 0.06 in the slope in n; in k the order is reached from below, with slope -0.2.
    return all_of(
        exponent(sizes, by_n / np.array([claim(n, 1)[0] for n in sizes]), 0.0, tol=0.3),
        exponent(ranks, by_k / np.array([claim(32, k)[0] for k in ranks]), 0.0, tol=0.5),
        equal([claim(8, k)[1] for k in ranks], dimensions, tol=0),
        equal(curve.success, [0.0, 1.0], tol=0.5),  # Gaussian matrices may be spiky
        equal(error[0], 0, tol=0.02),
        at_least(error[1], 0.1),
    )
