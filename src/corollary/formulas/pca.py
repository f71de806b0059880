"""Linear autoencoders, projections and principal components, with the algorithms that find them."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from corollary.formulas._library_tools import built, tensor
from corollary.formulas.record import (
    Erratum,
    all_of,
    at_least,
    at_most,
    equal,
    formula,
)
from corollary.formulas.tools import gradient, orthogonal


def _centred(rng, n, s):
    """A sample of ``s`` columns with mean zero and unequal variances."""
    X = rng.normal(size=(n, n)) @ rng.normal(size=(n, s))
    return X - X.mean(axis=1, keepdims=True)


def _basis(rng, n, m):
    """``m`` orthonormal columns in n-space."""
    return orthogonal(rng, n)[:, :m]


def _library_autoencoder(V, W):
    from corollary.linear.autoencoder import Linear

    return built(lambda: Linear(len(V), len(W), tied=False), V=V, W=W)


@formula(
    "ae-linear-model",
    latex=r"z = Wx,\ \hat x = Vz: \qquad \tfrac{1}{2} \mathbb E \lVert x - VWx \rVert^2 ="
    r"\tfrac{1}{2s} \lVert X - VWX \rVert_F^2",
    where="002, 003 Linear autoencoder; 004 §1.1",
    right=lambda X, V, W: ((X - V @ W @ X) ** 2).sum() / (2 * X.shape[1]),
    wrong=lambda X, V, W: ((X - V @ W @ X) ** 2).sum() / (2 * X.shape[0]),
    systems=("linear-autoencoder", "autoencoder"),
    functions=("corollary.linear.autoencoder.Linear", "corollary.linear.autoencoder.rebuilding_error"),
)
def ae_linear_model(rng, claim):
    """A linear autoencoder codes with one matrix and decodes with another.

    Its risk is half the mean squared distance between a sample and its reconstruction.
    """
    from corollary.linear.autoencoder import rebuilding_error

    X, V, W = rng.normal(size=(5, 20)), rng.normal(size=(5, 2)), rng.normal(size=(2, 5))
    one_by_one = [np.linalg.norm(x - V @ (W @ x)) ** 2 / 2 for x in X.T]
    by_feature = rebuilding_error(_library_autoencoder(V, W), tensor(X.T))
    return all_of(
        equal(claim(X, V, W), np.mean(one_by_one), tol=1e-10),
        equal(claim(X, V, W), 5 * by_feature, tol=1e-10),
    )


@formula(
    "ae-affine-degenerates",
    latex=r"\mathbb E[x] = 0: \qquad \mathbb E \lVert x - (Px + a) \rVert^2 ="
    r"\mathbb E \lVert x - Px \rVert^2 + \lVert a \rVert^2",
    where="004 §1.1",
    right=lambda linear_risk, a: linear_risk + a @ a,
    wrong=lambda linear_risk, a: linear_risk - a @ a,
    systems=("linear-autoencoder",),
)
def ae_affine_degenerates(rng, claim):
    """On centred data an offset only adds its squared length to the risk, so the best one is zero."""
    X, P, a = _centred(rng, 4, 30), rng.normal(size=(4, 4)), rng.normal(size=4)
    risk = [((X - P @ X - shift[:, None]) ** 2).sum(axis=0).mean() for shift in (0 * a, a)]
    return equal(claim(risk[0], a), risk[1], tol=1e-10)


@formula(
    "ae-nonidentifiable",
    latex=r"VW = (VA)(A^{-1}W) \quad \text{for every invertible } A",
    where="004 §1.1",
    right=lambda V, W, A: (V @ A, np.linalg.solve(A, W)),
    wrong=lambda V, W, A: (V @ A, A.T @ W),
    systems=("linear-autoencoder",),
)
def ae_nonidentifiable(rng, claim):
    """Code and decoder are known only up to a change of basis of the code; their product stays."""
    V, W, X = rng.normal(size=(5, 2)), rng.normal(size=(2, 5)), rng.normal(size=(5, 7))
    A = orthogonal(rng, 2) @ np.diag([1.5, 3.0]) @ orthogonal(rng, 2)
    decoder, encoder = claim(V, W, A)
    return equal(decoder @ (encoder @ X), V @ (W @ X), tol=1e-10)


@formula(
    "ae-rank-constraint",
    latex=r"\max\{0, \mathrm{rank} V + \mathrm{rank} W - m\} \le "
    r"\mathrm{rank}(VW) \le \min\{\mathrm{rank} V, \mathrm{rank} W\} \le m",
    where="002 Linear autoencoder; 004 §1.1",
    right=lambda v, w, m: (max(0, v + w - m), min(v, w)),
    wrong=lambda v, w, m: (max(0, v + w - m), m),
    errata=(
        Erratum(
            "E33",
            printed=r"$\mathrm{rank}\,P = \min\{\mathrm{rank}\,W, \mathrm{rank}\,W\}$",
            correction=r"$\mathrm{rank}\,P \le \min\{\mathrm{rank}\,V, \mathrm{rank}\,W\}$; "
            "the kernel of one factor may swallow the range of the other",
            form=lambda v, w, m: (w, w),
            where="004 §1.1",
            kind="formula",
        ),
    ),
    systems=("linear-autoencoder",),
)
def ae_rank_constraint(rng, claim):
    """The rank of a product is at most either factor's, reached in general position, and may be less.

    The claim gives least and largest rank from the ranks of the factors and the code size; both occur.
    """
    n, m, outcomes = 6, 3, []
    for v, w in ((1, 1), (1, 3), (3, 2), (2, 2)):
        low, high = claim(v, w, m)
        code = orthogonal(rng, m)
        V = rng.normal(size=(n, v)) @ code[:, :v].T
        aligned = rng.normal(size=(m, w)) @ rng.normal(size=(w, n))
        across = code[:, ::-1][:, :w] @ rng.normal(size=(w, n))  # the range of W starts in V's kernel
        outcomes += [
            equal(np.linalg.matrix_rank(V @ aligned, tol=1e-8), high, tol=0),
            equal(np.linalg.matrix_rank(V @ across, tol=1e-8), low, tol=0),
        ]
    return all_of(*outcomes)


def _autoencoder_slopes(V, W, x):
    by_P = (V @ W - np.eye(len(x))) @ np.outer(x, x)
    return V.T @ by_P, by_P @ W.T, by_P


@formula(
    "ae-gradients",
    latex=r"\nabla_W = V^\top (P - I) x x^\top, \qquad \nabla_V = (P - I) x x^\top W^\top, \qquad "
    r"\nabla_P = (P - I) x x^\top",
    where="002 Linear autoencoder; 004 §1.4",
    right=_autoencoder_slopes,
    errata=(
        Erratum(
            "E32",
            printed=r"$\nabla_W = (P-I)xx^\top W^\top$, $\nabla_V = V^\top(P-I)xx^\top$",
            correction=r"the two are interchanged",
            form=lambda V, W, x: tuple(_autoencoder_slopes(V, W, x)[i] for i in (1, 0, 2)),
            where="004 §1.4",
            kind="dimensions",
        ),
    ),
    systems=("linear-autoencoder",),
    functions=("corollary.linear.autoencoder.Linear", "corollary.linear.autoencoder.rebuilding_error"),
)
def ae_gradients(rng, claim):
    """Slopes of half the squared reconstruction error in the code, the decoder and their product P = VW."""
    from corollary.linear.autoencoder import rebuilding_error

    V, W, x = rng.normal(size=(4, 2)), rng.normal(size=(2, 4)), rng.normal(size=4)
    by_W, by_V, by_P = claim(V, W, x)
    module = _library_autoencoder(V, W).requires_grad_()
    (4 * rebuilding_error(module, tensor(x[None]))).backward()  # the library takes the mean over features
    return all_of(
        equal(by_W, module.W.grad, tol=1e-10),
        equal(by_V, module.V.grad, tol=1e-10),
        equal(by_W, gradient(lambda B: ((x - V @ B @ x) ** 2).sum() / 2, W), tol=1e-6),
        equal(by_V, gradient(lambda B: ((x - B @ W @ x) ** 2).sum() / 2, V), tol=1e-6),
        equal(by_P, gradient(lambda B: ((x - B @ x) ** 2).sum() / 2, V @ W), tol=1e-6),
    )


def _top_code(X, m):
    U = np.linalg.svd(X)[0][:, :m]
    return U.T, U


def _wrong_side_code(X, m):
    V = np.linalg.svd(X)[2][:m].T
    return V.T, V


@formula(
    "ae-optimal-solution",
    latex=r"X = U \Sigma V^\top: \qquad C = U_m^\top,\ D = U_m,\ DCX = X_m, \qquad "
    r"\lVert X - DCX \rVert_F^2 = \sum_{i > m} \sigma_i^2",
    where="002, 003 Linear autoencoder",
    right=_top_code,
    wrong=_wrong_side_code,
    systems=("linear-autoencoder", "pca"),
    functions=("corollary.completion.TruncatedSVD",),
)
def ae_optimal_solution(rng, claim):
    """Coding with the leading left singular vectors is optimal: only the other singular values are lost."""
    from corollary.completion import TruncatedSVD

    X, m = rng.normal(size=(5, 5)), 2
    C, D = claim(X, m)
    lost = ((X - D @ C @ X) ** 2).sum()
    # Alternating least squares goes to the same optimum without any decomposition, and never past it.
    V = rng.normal(size=(5, m))
    for _ in range(150):
        Z = np.linalg.lstsq(V, X)[0]
        V = np.linalg.lstsq(Z.T, X.T)[0].T
    model = TruncatedSVD(m, random_state=0)
    theirs = model.inverse_transform(model.fit_transform(X.T)).T  # the library has samples in rows
    return all_of(
        equal(D @ C @ X, theirs, tol=1e-7),
        equal(lost, np.linalg.eigvalsh(X @ X.T)[:-m].sum(), tol=1e-8),
        at_most(lost, ((X - V @ Z) ** 2).sum(), tol=1e-8),
    )


@formula(
    "proj-definition",
    latex=r"P x \in \mathcal U, \qquad P^2 = P, \qquad P = P^\top",
    where="004 Def 1",
    right=lambda P: np.allclose(P @ P, P) and np.allclose(P, P.T),
    wrong=lambda P: np.allclose(P @ P, P),
    systems=("pca",),
)
def proj_definition(rng, claim):
    """A matrix projects orthogonally just if it is idempotent and symmetric.

    In geometric terms: it leaves its range alone and what it removes is orthogonal to the range.
    """
    U, V = _basis(rng, 5, 2), rng.normal(size=(5, 2))
    candidates = [
        U @ U.T,
        np.eye(5) - U @ U.T,
        U @ np.linalg.solve(V.T @ U, V.T),  # oblique: idempotent only
        2 * U @ U.T,  # symmetric only
        orthogonal(rng, 5),
        np.zeros((5, 5)),
    ]
    x, y = rng.normal(size=(2, 5, 20))
    truth = [
        np.allclose(P @ (P @ y), P @ y) and np.allclose(((x - P @ x).T @ (P @ y)), 0) for P in candidates
    ]
    return equal([claim(P) for P in candidates], truth, tol=0)


@formula(
    "proj-nearest-point",
    latex=r"\Pi_{\mathcal U}(x) = \arg\min_{x' \in \mathcal U} \lVert x - x' \rVert",
    where="004 Def 2",
    right=lambda V, x: V @ np.linalg.solve(V.T @ V, V.T @ x),
    wrong=lambda V, x: V @ (V.T @ x),
    systems=("pca",),
)
def proj_nearest_point(rng, claim):
    """The nearest point of a subspace depends linearly on x, and the way there is orthogonal to it."""
    V, (x, y), a = rng.normal(size=(5, 2)), rng.normal(size=(2, 5)), rng.normal()
    nearest = claim(V, x)
    others = V @ (np.linalg.lstsq(V, nearest)[0][:, None] + rng.normal(size=(2, 100)))
    return all_of(
        equal(nearest, V @ np.linalg.lstsq(V, x)[0], tol=1e-10),
        at_most(np.linalg.norm(x - nearest), np.linalg.norm(x[:, None] - others, axis=0)),
        equal(V.T @ (x - nearest), 0, tol=1e-10),
        equal(claim(V, a * x + y), a * nearest + claim(V, y), tol=1e-10),
    )


@formula(
    "proj-orthonormal-basis",
    latex=r"P = U U^\top = \sum_i u_i u_i^\top",
    where="004 §1.2",
    right=lambda U: U @ U.T,
    wrong=lambda U: np.eye(len(U)) - U @ U.T,
    systems=("pca",),
)
def proj_orthonormal_basis(rng, claim):
    """With an orthonormal basis the projection is the sum of its outer products.

    It fixes the subspace and annihilates the complement.
    """
    Q = orthogonal(rng, 5)
    P = claim(Q[:, :2])
    return all_of(
        equal(P @ Q[:, :2], Q[:, :2], tol=1e-12),
        equal(P @ Q[:, 2:], 0, tol=1e-12),
        equal(P, sum(np.outer(u, u) for u in Q[:, :2].T), tol=1e-12),
    )


@formula(
    "proj-general-basis",
    latex=r"P = V V^+, \qquad V^+ = (V^\top V)^{-1} V^\top",
    where="004 §1.2",
    right=lambda V: V @ np.linalg.inv(V.T @ V) @ V.T,
    wrong=lambda V: V @ V.T,
    systems=("pca",),
)
def proj_general_basis(rng, claim):
    """With any basis the pseudo-inverse undoes its scales and angles."""
    V = rng.normal(size=(5, 3)) * np.array([0.5, 1, 3])
    Q, _ = np.linalg.qr(V)
    return all_of(
        equal(claim(V), Q @ Q.T, tol=1e-9),
        equal(claim(V), V @ np.linalg.pinv(V), tol=1e-9),
    )


@formula(
    "proj-risk-variance",
    latex=r"\tfrac{1}{2} \mathbb E \lVert x - Px \rVert^2 = \tfrac{1}{2} "
    r"(\mathrm{Var}[x] - \mathrm{Var}[Px]), "
    r"\qquad \mathrm{Var}[Px] = \mathrm{Tr}(P\, \mathbb E[x x^\top])",
    where="004 §1.2",
    right=lambda P, moment: (np.trace(moment) - np.trace(P @ moment)) / 2,
    wrong=lambda P, moment: np.trace(moment) - np.trace(P @ moment),
    systems=("pca",),
    functions=("corollary.linear.PCA",),
)
def proj_risk_variance(rng, claim):
    """What a projection loses of centred data is the variance it does not keep."""
    from corollary.linear import PCA

    X, U = _centred(rng, 5, 40), _basis(rng, 5, 2)
    P = U @ U.T
    lost = np.mean([np.linalg.norm(x - P @ x) ** 2 / 2 for x in X.T])
    kept = (P @ X).var(axis=1).sum()
    moment = X @ X.T / 40
    model = PCA(2).fit(X.T)
    left = 39 / 40 * (X.var(axis=1, ddof=1).sum() - model.explained_variance_.sum())
    return all_of(
        equal(claim(model.components_.T @ model.components_, moment), left / 2, tol=1e-10),
        equal(claim(P, moment), lost, tol=1e-10),
        equal(claim(P, moment), (X.var(axis=1).sum() - kept) / 2, tol=1e-10),
    )


def _eigenbasis(moment):
    values, Q = np.linalg.eigh(moment)
    return values[::-1], Q[:, ::-1]


@formula(
    "pca-theorem",
    latex=r"\mathbb E[x x^\top] = Q \Lambda Q^\top: \qquad \arg\max_{\mathrm{rank} P = m} \mathrm{Var}[Px] ="
    r"U U^\top, \quad U = (q_1, \dots, q_m)",
    where="004 Thm 4",
    right=lambda moment, m: _eigenbasis(moment)[1][:, :m] @ _eigenbasis(moment)[1][:, :m].T,
    wrong=lambda moment, m: np.linalg.eigh(moment)[1][:, :m] @ np.linalg.eigh(moment)[1][:, :m].T,
    systems=("pca",),
    functions=("corollary.linear.PCA",),
)
def pca_theorem(rng, claim):
    """Of all projections of rank m the one on the leading eigenvectors keeps most of the variance.

    It keeps the sum of the m largest eigenvalues.
    """
    from corollary.linear import PCA

    X, m = _centred(rng, 5, 40), 2
    P = claim(X @ X.T / 40, m)
    kept = (P @ X).var(axis=1).sum()
    near, _ = np.linalg.qr(np.linalg.svd(P)[0][:, :m] + 0.05 * rng.normal(size=(100, 5, m)))
    far, _ = np.linalg.qr(rng.normal(size=(200, 5, m)))
    rivals = ((np.concatenate([near, far]).mT @ X).var(axis=2)).sum(axis=1)
    rows = PCA(m).fit(X.T).components_
    return all_of(
        equal(P, rows.T @ rows, tol=1e-8),
        at_least(kept, rivals, tol=1e-9),
        equal(kept, (np.linalg.svd(X, compute_uv=False)[:m] ** 2).sum() / 40, tol=1e-9),
        equal(np.linalg.matrix_rank(P, tol=1e-8), m, tol=0),
    )


def _spectrum(A):
    values, Q = np.linalg.eig(A)
    order = np.argsort(-np.abs(values))
    return values[order].real, Q[:, order].real


def _power_limit(A, start):
    values, Q = _spectrum(A)
    share = np.linalg.solve(Q, start)
    lead = int(np.flatnonzero(np.abs(share) > 1e-9)[0])  # the first eigenvector that takes part
    return np.sign(share[lead]) * Q[:, lead]


def _power_rate(A):
    values, _ = _spectrum(A)
    return values[1] / values[0]


@formula(
    "pca-power-method",
    latex=r"v \leftarrow \frac{Av}{\lVert Av \rVert} \to \pm u_1 \iff c_1 \ne 0"
    r"\text{ in } v_0 = \sum_i c_i u_i, \qquad "
    r"\lVert v_t \mp u_1 \rVert = O\bigl((\lambda_2 / \lambda_1)^t\bigr)",
    where="004 §1.4, Lemma 5",
    right=lambda A, start: (_power_limit(A, start), _power_rate(A)),
    wrong=lambda A, start: (_power_limit(A, start), _power_rate(A) ** 2),
    errata=(
        Erratum(
            "E34",
            printed=r"tends to $u_1$ if $\langle v_0, u_1\rangle \ne 0$, for any diagonalisable $A$",
            correction=r"tends to $\pm u_1$ if $v_0$ has a $u_1$-coordinate in the eigenbasis",
            form=lambda A, start: (_spectrum(A)[1][:, 0], _power_rate(A)),
            where="004 Lemma 5",
            kind="claim",
            counterexample=r"$\begin{pmatrix} 2 & 1 \\ 0 & 1 \end{pmatrix}$ from $(1, -1)$, an eigenvector that "
            r"is not orthogonal to $u_1$, never moves",
        ),
    ),
    systems=("pca",),
    functions=("corollary.linear.PCA",),
)
def pca_power_method(rng, claim):
    """Repeated multiplication turns to the leading eigenvector that takes part in the start.

    The sign is that of its coordinate, and the error shrinks each step by the ratio of the two
    leading eigenvalues. For a matrix that is not symmetric the inner product with the start says nothing.
    """
    from corollary.linear import PCA

    def iterate(A, v, steps):
        for _ in range(steps):
            v = A @ v
            v = v / np.linalg.norm(v)
        return v

    Q = orthogonal(rng, 4)
    symmetric, oblique = (Q * [4, 2, 1, 0.5]) @ Q.T, np.array([[2.0, 1.0], [0.0, 1.0]])
    starts = [
        (symmetric, Q @ np.append(rng.uniform(0.5, 1, size=2), rng.normal(size=2))),
        (symmetric, Q @ np.append(-rng.uniform(0.5, 1, size=2), rng.normal(size=2))),
        (np.diag([3.0, 1.0]), np.array([-1, 0.5])),
        (oblique, np.array([-1.0, 1.0])),
    ]
    outcomes = [equal(iterate(A, v, 60), claim(A, v)[0], tol=1e-8) for A, v in starts]
    errors = [np.linalg.norm(iterate(symmetric, starts[0][1], t) - iterate(*starts[0], 60)) for t in (12, 16)]
    rate = (errors[1] / errors[0]) ** (1 / 4)
    # The library's power method on data with this covariance ends on the same axis.
    X = np.vstack([np.linalg.cholesky(symmetric).T, -np.linalg.cholesky(symmetric).T])
    found = PCA(1, svd_solver="power", tol=1e-12, random_state=0).fit(X).components_[0]
    outcomes.append(equal(abs(claim(*starts[0])[0] @ found), 1, tol=1e-8))
    # The next power, (1/4)^t, still bends the curve by its share 2^-12.
    return all_of(*outcomes, equal(claim(*starts[0])[1], rate, tol=1e-3))


@formula(
    "pca-deflation",
    latex=r"A \leftarrow A - \lambda_1 u_1 u_1^\top",
    where="004 §1.4",
    right=lambda A, value, u: A - value * np.outer(u, u),
    wrong=lambda A, value, u: A - np.outer(u, u),
    systems=("pca",),
    functions=("corollary.linear.PCA",),
)
def pca_deflation(rng, claim):
    """Taking a found component out of the matrix makes the next one the leading one."""
    from corollary.linear import PCA

    Q = orthogonal(rng, 4)
    A = (Q * [8, 4, 2, 1]) @ Q.T
    rest, found = A, []
    for _ in range(4):
        v = rng.normal(size=4)
        for _ in range(60):
            v = rest @ v
            v /= np.linalg.norm(v)
        found.append((v @ rest @ v, v))
        rest = claim(rest, *found[-1])
    values, vectors = np.array([value for value, _ in found]), np.array([v for _, v in found]).T
    # The library deflates too: the same values from data with this second moment.
    root = np.linalg.cholesky(A).T
    model = PCA(3, svd_solver="power", tol=1e-10, random_state=0).fit(np.vstack([root, -root]))
    return all_of(
        equal(values[:3], 7 / 2 * model.explained_variance_, tol=1e-6),
        equal(values, np.linalg.eigvalsh(A)[::-1], tol=1e-6),
        equal(np.abs(np.sum(vectors * Q, axis=0)), 1, tol=1e-6),
    )


@formula(
    "pca-gd-on-projection",
    latex=r"P \leftarrow P - \eta (P - I)\, \mathbb E[x x^\top] \quad \text{leaves the projections};"
    r"\qquad \text{descend in } V, W",
    where="004 §1.4",
    right=lambda P, moment, eta: P - eta * (P - np.eye(len(P))) @ moment,
    wrong=lambda P, moment, eta: P + eta * (P - np.eye(len(P))) @ moment,
    systems=("pca", "linear-autoencoder"),
    functions=("corollary.linear.PCA",),
)
def pca_gd_on_projection(rng, claim):
    """A gradient step on the projection itself is no projection any more, of full rank even.

    The same slope carried to the two factors keeps the rank and ends at the risk of PCA.
    """
    from corollary.linear import PCA

    n, m, eta = 4, 2, 0.1
    Q = orthogonal(rng, n)
    moment = (Q * [2.0, 1.5, 0.6, 0.3]) @ Q.T
    root = np.linalg.cholesky(moment)
    U = _basis(rng, n, m)
    P = U @ U.T
    step = claim(P, moment, eta)
    slope = gradient(lambda B: ((root - B @ root) ** 2).sum() / 2, P)
    anywhere = rng.normal(size=(n, n))
    slope_there = gradient(lambda B: ((root - B @ root) ** 2).sum() / 2, anywhere)
    V, W = 0.3 * rng.normal(size=(n, m)), 0.3 * rng.normal(size=(m, n))
    for _ in range(600):
        by_P = V @ W - claim(V @ W, moment, 1.0)
        V, W = V - eta * by_P @ W.T, W - eta * V.T @ by_P
    risk = ((root - V @ W @ root) ** 2).sum() / 2
    # The library ascends over orthonormal bases, and ends on the same subspace.
    data = np.hstack([root, -root]).T
    rows = PCA(m, svd_solver="gradient", tol=1e-10, random_state=0).fit(data).components_
    return all_of(
        equal(V @ W, rows.T @ rows, tol=0.02),
        equal(step, P - eta * slope, tol=1e-7),
        equal(claim(anywhere, moment, eta), anywhere - eta * slope_there, tol=1e-7),
        at_least(np.abs(step @ step - step).max(), 1e-3),
        equal(risk, np.linalg.eigvalsh(moment)[: n - m].sum() / 2, tol=1e-4),
    )


def _products(*shapes):
    """The multiplications in a chain of matrix products, each given as (rows, inner, columns)."""
    return sum(rows * inner * columns for rows, inner, columns in shapes)


def _counted_work(N, n, m, T, k):
    covariance = _products((n, N, n))
    # Householder's reduction to tridiagonal form, the cubic part: A v, then an update of rank two.
    eigenvectors = sum(_products((j, j, 1), (j, 1, j), (j, 1, j)) for j in range(n - 1, 0, -1))
    power = m * T * _products((n, n, 1))
    # The batch moment S, W S, the error V (W S) - S, and its two slopes; P = VW is never formed.
    descent = T * _products((n, k, n), (m, n, n), (n, m, n), (m, n, n), (n, n, m))
    return covariance, eigenvectors, power, descent


@formula(
    "pca-costs",
    latex=r"\underbrace{O(N n^2)}_{\text{covariance}},\quad \underbrace{O(n^3)}_{\text{eigenvectors}},\quad "
    r"\underbrace{O(T m n^2)}_{\text{power method}},\quad \underbrace{O(T (m + k) n^2)}_{\text{descent}}",
    where="004 §1.4",
    right=lambda N, n, m, T, k: (N * n**2, n**3, T * m * n**2, T * (m + k) * n**2),
    wrong=lambda N, n, m, T, k: (N * n**2, n**3, T * n**2, T * m * n**2),
    systems=("pca",),
)
def pca_costs(rng, claim):
    """How the work grows with samples N, dimension n, components m, iterations T and batch size k.

    Multiplications are counted in each algorithm; their share of the claim must not grow with any size.
    """
    base = {name: int(rng.integers(8, 13)) for name in ("N", "n", "m", "T", "k")}
    sizes = [base] + [base | {name: base[name] * factor} for name in base for factor in (4, 16, 64)]
    shares = np.array([_counted_work(**size) for size in sizes]) / [claim(**size) for size in sizes]
    # Constants differ by at most 4, the weight of m against that of k; a lost factor shows as 64.
    return at_most(shares.max(axis=0) / shares.min(axis=0), 4, tol=0.5)


@formula(
    "dimred-factor-form",
    latex=r"X \approx f(ZB), \qquad Z \in \mathbb R^{N \times K},\ B \in \mathbb R^{K \times D}",
    where="000 §16.3.3",
    right=lambda f, Z, B: f(Z @ B),
    wrong=lambda f, Z, B: f(Z) @ B,
    systems=("pca", "factor-analysis", "nmf"),
    functions=("corollary.linear.PCA",),
)
def dimred_factor_form(rng, claim):
    """Codes times loadings through a link: PCA, factor analysis, NMF and their exponential-family cousins.

    With the identity and the principal directions it is the truncated SVD; a logistic link is applied
    after the product.
    """
    from corollary.linear import PCA

    X = rng.normal(size=(20, 5))
    X -= X.mean(axis=0)
    K = 2
    B = _eigenbasis(X.T @ X)[1][:, :K].T
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    Z, loadings = rng.normal(size=(6, K)), rng.normal(size=(K, 4))
    bernoulli = [[expit(sum(z[k] * b[k] for k in range(K))) for b in loadings.T] for z in Z]
    model = PCA(K).fit(X)
    Y = model.transform(X)
    return all_of(
        equal(claim(lambda A: A, Y, model.components_), model.inverse_transform(Y) - model.mean_, tol=1e-10),
        equal(claim(lambda A: A, X @ B.T, B), (U[:, :K] * s[:K]) @ Vt[:K], tol=1e-10),
        equal(claim(expit, Z, loadings), bernoulli, tol=1e-10),
    )
