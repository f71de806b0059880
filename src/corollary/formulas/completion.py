"""Matrix completion: factorisations of a partly observed matrix and their gradients.

``A`` is the matrix, ``mask`` is 1 where it is observed; rows are users and columns are items.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.integrate import solve_ivp

from corollary.formulas._completion_tools import (
    random_mask,
)
from corollary.formulas.record import (
    Erratum,
    all_of,
    at_most,
    equal,
    formula,
)
from corollary.formulas.tools import gradient, hessian, orthogonal


@formula(
    "mcpl-objective",
    latex=r"\ell(U, V) = \tfrac{1}{2} \lVert \Pi_\Omega(A - U V^\top) \rVert_F^2,"
    r"\qquad \Pi_\Omega(M) = M \odot \Omega",
    where="004 §2",
    right=lambda A, mask, U, V: ((mask * (A - U @ V.T)) ** 2).sum() / 2,
    wrong=lambda A, mask, U, V: ((mask * A - U @ V.T) ** 2).sum() / 2,
    systems=("als",),
)
def mcpl_objective(rng, claim):
    """A factorisation is judged on the observed entries only."""
    A, mask, U, V = (
        rng.normal(size=(5, 4)),
        random_mask(rng, 5, 4),
        rng.normal(size=(5, 2)),
        rng.normal(size=(4, 2)),
    )
    terms = [(A[i, j] - U[i] @ V[j]) ** 2 / 2 for i, j in np.argwhere(mask)]
    return equal(claim(A, mask, U, V), sum(terms), tol=1e-10)


def _observed_moments(A, mask):
    from corollary.completion.baseline import moments

    return moments(np.nonzero(mask)[0], A[mask == 1], len(A))


@formula(
    "mcpl-normalisation",
    latex=r"\mu_i = \frac{\sum_j \omega_{ij} a_{ij}}{\max\{1, \sum_j \omega_{ij}\}}, \qquad "
    r"z_{ij} = \frac{a_{ij} - \mu_i}{\sigma_i}",
    where="004 §2",
    right=_observed_moments,
    wrong=lambda A, mask: ((mask * A).mean(axis=1), _observed_moments(A, mask)[1]),
    systems=("baseline",),
    functions=("corollary.completion.baseline.moments",),
)
def mcpl_normalisation(rng, claim):
    """Rows (and columns alike) are standardised with the mean and deviation of what was seen of them.

    A row without an entry gets the mean zero instead of a division by zero.
    """
    A, mask = 3 + rng.normal(size=(6, 7)), random_mask(rng, 6, 7)
    mask[:, :2] = 1.0  # at least two entries, so that the deviation is not zero
    mask[0] = 0.0
    mean, deviation = claim(A, mask)
    seen = [(row[m == 1] - mu) / sigma for row, m, mu, sigma in zip(A, mask, mean, deviation)][1:]
    return all_of(
        equal(mean[0], 0, tol=0),
        equal([z.mean() for z in seen], 0, tol=1e-10),
        equal([z.std() for z in seen], 1, tol=1e-10),
    )


@formula(
    "mcpl-row-column-markov",
    latex=r"a_{ij} \perp \{a_{kl} : k \ne i,\ l \ne j\} \mid \{a_{il} : l \ne j\} \cup \{a_{kj} : k \ne i\}",
    where="004 §2",
    right=lambda i, j, k, l: (i == k) | (j == l),
    wrong=lambda i, j, k, l: i == k,
    systems=("baseline", "low-rank"),
)
def mcpl_row_column_markov(rng, claim):
    """Given the rest of its row and its column, an entry is taken to be independent of all others.

    The claim says which entries to condition on; a Gaussian field with couplings only along rows and
    columns must then have no covariance left with the remaining ones.
    """
    n, m = 3, 4
    row, column = (index.ravel() for index in np.indices((n, m)))
    along = (row[:, None] == row) | (column[:, None] == column)
    coupling = rng.uniform(0.05, 0.15, size=(n * m, n * m)) * along
    precision = (coupling + coupling.T) / 2 + np.eye(n * m)  # diagonally dominant
    covariance = np.linalg.inv(precision)
    left = []
    for entry in range(n * m):
        given = claim(row[entry], column[entry], row, column) & (np.arange(n * m) != entry)
        rest = ~given & (np.arange(n * m) != entry)
        S = covariance[np.ix_(given, given)]
        removed = covariance[entry, given] @ np.linalg.solve(S, covariance[np.ix_(given, rest)])
        left.append(np.abs(covariance[entry, rest] - removed).max())
    return equal(left, 0, tol=1e-12)


def _scalar_slopes(u, v, a, delta):
    cross = 2 * u * v - a
    return np.array([delta * v, delta * u]), np.array([[v**2, cross], [cross, u**2]])


@formula(
    "mcpl-scalar-gradients",
    latex=r"\ell = \tfrac{1}{2} (a - uv)^2,\ \delta = uv - a: \qquad \partial_u \ell = \delta v,\ "
    r"\partial_v \ell = \delta u, \qquad "
    r"\nabla^2 \ell = \begin{pmatrix} v^2 & 2uv - a \\ 2uv - a & u^2 \end{pmatrix}",
    where="004 §2.1",
    right=lambda u, v, a: _scalar_slopes(u, v, a, u * v - a),
    errata=(
        Erratum(
            "T15",
            printed=r"$\delta = uv - \delta u$",
            correction=r"$\delta = uv - a$",
            form=lambda u, v, a: _scalar_slopes(u, v, a, u * v / (1 + u)),
            where="004 §2.1",
            kind="typing",
        ),
    ),
    systems=("scalar-factorisation",),
)
def mcpl_scalar_gradients(rng, claim):
    """Already for numbers the factorisation loss is not convex: the origin is a saddle unless a is zero."""
    u, v, a = rng.uniform(0.5, 2, size=3) * rng.choice([-1, 1], size=3) + np.array([0, 0, 3])
    slope, curvature = claim(u, v, a)
    loss = lambda w: (a - w[0] * w[1]) ** 2 / 2
    return all_of(
        equal(slope, gradient(loss, np.array([u, v])), tol=1e-6),
        equal(curvature, hessian(loss, np.array([u, v])), tol=1e-5),
        equal(np.linalg.eigvalsh(claim(0.0, 0.0, a)[1]), [-abs(a), abs(a)], tol=1e-12),
    )


def _scalar_flow(a, c, t, rate=2.0):
    growth = c * np.exp(rate * a * t)
    return a * growth / (growth + a - c)


def _library_flow(a, c, t):
    from corollary.completion import scalar_flow

    return np.array([scalar_flow(*pair, t) for pair in zip(a, c)])


@formula(
    "mcpl-scalar-flow",
    latex=r"u_0 = v_0,\ x = uv: \quad \dot x = -2x(x - a), \quad "
    r"x(t) = a + \frac{ac - a^2}{c e^{2at} + a - c}, \quad c = x(0); \qquad x(\infty) = \max(a, 0)"
    r"\text{ for } c > 0",
    where="004 §2.1",
    right=lambda a, c, t: (_library_flow(a, c, t), np.where(c > 0, np.maximum(a, 0), 0)),
    wrong=lambda a, c, t: (_scalar_flow(a, c, t, rate=1.0), np.where(c > 0, np.maximum(a, 0), 0)),
    errata=(
        Erratum(
            "E36",
            printed=r"the balanced flow converges to $a$",
            correction=r"only for $a > 0$ and $x(0) > 0$; otherwise to 0, as $uv = u^2$ cannot be negative",
            form=lambda a, c, t: (_scalar_flow(a, c, t), a),
            where="004 §2.1",
            kind="claim",
            counterexample=r"$a = -1$: $x = u^2 \ge 0$ cannot reach it, and tends to $0$",
        ),
    ),
    systems=("scalar-factorisation",),
    functions=("corollary.completion.scalar_flow",),
)
def mcpl_scalar_flow(rng, claim):
    """Gradient flow of the scalar factorisation from equal factors follows a logistic curve.

    It ends at the target if that is positive and the start not zero, else at zero. The claim gives
    the product at a time and its limit.
    """
    a = np.array([1.0, 0.7, -1.0, -0.8, 1.2]) * rng.uniform(0.9, 1.1, size=5)
    c = np.append(rng.uniform(0.05, 0.5, size=4), 0.0)
    half = len(a)

    def flow(_, factors):
        u, v = factors[:half], factors[half:]
        return np.concatenate([-(u * v - a) * v, -(u * v - a) * u])

    start = np.tile(np.sqrt(c), 2)
    t = rng.uniform(0.4, 0.8)
    path = solve_ivp(flow, (0, 15), start, t_eval=[t, 15.0], rtol=1e-8, atol=1e-10).y
    soon, late = (path[:half] * path[half:]).T
    position, limit = claim(a, c, t)
    return all_of(equal(position, soon, tol=1e-6), equal(limit, late, tol=1e-3))  # exp(-2 * 0.6 * 15) is tiny


@formula(
    "mcpl-rank1-loss",
    latex=r"\tfrac{1}{2} \lVert A - u v^\top \rVert_F^2 = \tfrac{1}{2} \mathrm{Tr}(A^\top A) +"
    r"\tfrac{1}{2} \lVert u \rVert^2 \lVert v \rVert^2 - u^\top A v",
    where="004 §2.1",
    right=lambda A, u, v: np.trace(A.T @ A) / 2 + (u @ u) * (v @ v) / 2 - u @ A @ v,
    wrong=lambda A, u, v: np.trace(A.T @ A) / 2 + (u @ u) * (v @ v) / 2 - u @ A @ v / 2,
    systems=("low-rank",),
)
def mcpl_rank1_loss(rng, claim):
    """The rank-one loss is a constant, a product of squared lengths and a bilinear form."""
    A, u, v = rng.normal(size=(5, 4)), rng.normal(size=5), rng.normal(size=4)
    return equal(claim(A, u, v), ((A - np.outer(u, v)) ** 2).sum() / 2, tol=1e-10)


def _leading_pair(A):
    values, U = np.linalg.eigh(A @ A.T)
    v = np.linalg.eigh(A.T @ A)[1][:, -1]
    u = U[:, -1]
    return values[-1], u * np.sign(u @ A @ v), v


def _rank1(A, power):
    value, u, v = _leading_pair(A)
    return value**power * np.outer(u, v)


def _library_rank1(A):
    from corollary.completion import TruncatedSVD

    model = TruncatedSVD(1, random_state=0)
    return model.inverse_transform(model.fit_transform(A))


@formula(
    "mcpl-rank1-solution",
    latex=r"A A^\top u = \lambda_1 u,\ A^\top A v = \lambda_1 v,\ u^\top A v = \sqrt{\lambda_1}: \qquad "
    r"\arg\min_{\mathrm{rank} B = 1} \lVert A - B \rVert_F = \sqrt{\lambda_1}\, u v^\top",
    where="004 §2.1",
    right=lambda A: _library_rank1(A),
    wrong=lambda A: _rank1(A, 1.0),
    systems=("low-rank",),
    functions=("corollary.completion.TruncatedSVD",),
)
def mcpl_rank1_solution(rng, claim):
    """The best rank-one matrix pairs the principal eigenvectors of both Gram matrices.

    Alternating minimisation, which never looks at an eigenvector, ends at the same matrix.
    """
    A = (orthogonal(rng, 5)[:, :4] * [4, 2, 1, 0.5]) @ orthogonal(rng, 4).T
    v = rng.normal(size=4)
    for _ in range(100):
        u = A @ v / (v @ v)
        v = A.T @ u / (u @ u)
    return equal(claim(A), np.outer(u, v), tol=1e-8)


def _column_objective(U, a, seen, penalty, v):
    gram = (U.T * seen) @ U + penalty * np.eye(U.shape[1])
    return v @ gram @ v / 2 - (U.T @ (seen * a)) @ v


@formula(
    "mcpl-als-objective",
    latex=r"\ell(v_j) = \tfrac{1}{2} v_j^\top \Bigl(\sum_i \omega_{ij} u_i u_i^\top + \lambda I\Bigr) v_j -"
    r"\Bigl(\sum_i \omega_{ij} a_{ij} u_i\Bigr)^{\!\top} v_j + \mathrm{const}",
    where="004 §2.2",
    right=_column_objective,
    wrong=lambda U, a, seen, penalty, v: _column_objective(U, seen * a, np.ones(len(a)), penalty, v),
    systems=("als",),
)
def mcpl_als_objective(rng, claim):
    """With one factor fixed the penalised loss falls apart into one quadratic for each column.

    Moving one column of the other factor changes the whole loss by the change of its quadratic.
    """
    A, mask, U, V = (
        rng.normal(size=(6, 5)),
        random_mask(rng, 6, 5),
        rng.normal(size=(6, 2)),
        rng.normal(size=(5, 2)),
    )
    penalty, outcomes = rng.uniform(0.5, 1.5), []

    def loss(W):
        return ((mask * (A - U @ W.T)) ** 2).sum() / 2 + penalty / 2 * (W**2).sum()

    for j in range(5):
        moved = V.copy()
        moved[j] = rng.normal(size=2)
        change = claim(U, A[:, j], mask[:, j], penalty, moved[j]) - claim(
            U, A[:, j], mask[:, j], penalty, V[j]
        )
        outcomes.append(equal(change, loss(moved) - loss(V), tol=1e-9))
    return all_of(*outcomes)


def _solve_rows(A, mask, V, penalty):
    from corollary.completion.als_kernels import solve

    rows, columns = np.nonzero(mask)
    R = sparse.csr_matrix((A[rows, columns], (rows, columns)), shape=A.shape)
    U = np.zeros((len(A), V.shape[1]))  # explicit ratings are those with a negative alpha
    solve(R, U, np.ascontiguousarray(V), alpha=-1.0, damping=None, ridge=np.full(len(A), penalty), steps=20)
    return U


@formula(
    "mcpl-als-update",
    latex=r"u_i^* = \Bigl(\sum_j \omega_{ij} v_j v_j^\top + \lambda I\Bigr)^{-1}"
    r"\sum_j \omega_{ij} a_{ij} v_j \quad \text{and alike for } v_j",
    where="004 §2.2",
    right=_solve_rows,
    wrong=lambda A, mask, V, penalty: _solve_rows(mask * A, np.ones_like(mask), V, penalty),
    errata=(
        Erratum(
            "T6",
            printed=r"$u_i^*$ sums over $i$",
            correction=r"the sums for $u_i^*$ run over the columns $j$",
            form=lambda A, mask, V, penalty: _solve_rows(A.T, mask.T, V, penalty),
            where="004 §2.2",
            kind="typing",
        ),
    ),
    systems=("als",),
    functions=("corollary.completion.als_kernels.solve",),
)
def mcpl_als_update(rng, claim):
    """Each row of a factor is a ridge regression of the row's observed entries on the other factor.

    After the update the slope in that factor is zero, and alternating never raises the loss. The matrix
    is square, so that the misprint can be evaluated.
    """
    n, penalty = 6, 0.3
    A, mask = rng.normal(size=(n, n)), random_mask(rng, n, n)
    U, V = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))

    def loss(U, V):
        return ((mask * (A - U @ V.T)) ** 2).sum() / 2 + penalty / 2 * ((U**2).sum() + (V**2).sum())

    trace, slopes = [loss(U, V)], []
    for _ in range(3):
        U = claim(A, mask, V, penalty)
        slopes.append(gradient(lambda B, V=V: loss(B, V), U))
        V = claim(A.T, mask.T, U, penalty)
        slopes.append(gradient(lambda B, U=U: loss(U, B), V))
        trace.append(loss(U, V))
    return all_of(equal(slopes, 0, tol=1e-7), at_most(np.diff(trace), 0))


@formula(
    "mcpl-masked-gradient",
    latex=r"\nabla_B \tfrac{1}{2} \lVert \Pi_\Omega(A - B) \rVert_F^2 = -\Pi_\Omega(A - B)",
    where="004 §2.2",
    right=lambda A, mask, B: -mask * (A - B),
    wrong=lambda A, mask, B: B - mask * A,
    systems=("svp", "svt"),
)
def mcpl_masked_gradient(rng, claim):
    """Unobserved entries have no slope; the observed ones pull towards the data."""
    A, B, mask = rng.normal(size=(4, 5)), rng.normal(size=(4, 5)), random_mask(rng, 4, 5)
    loss = lambda M: sum((A[i, j] - M[i, j]) ** 2 / 2 for i, j in np.argwhere(mask))
    return equal(claim(A, mask, B), gradient(loss, B), tol=1e-7)
