"""Linear algebra: definite matrices, norms, decompositions, linear maps, groups and permutations."""

from itertools import combinations, permutations

import numpy as np

from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import orthogonal

EXACT = 1e-10  # products of a few small matrices with entries of order one


def _factor(A, power=0.5):
    values, Q = np.linalg.eigh(A)
    return Q * np.maximum(values, 0) ** power


@formula(
    "la-psd",
    latex=r"A \succeq 0 \iff x^\top A x \ge 0\ \forall x \iff A = LL^\top;"
    r" \qquad \lambda_i \ge 0,\ \mathrm{Tr} A \ge 0,\ \det A \ge 0",
    where="000, 001 §3",
    right=_factor,
    wrong=lambda A: _factor(A, power=1),
    systems=("nngp", "ntk"),
)
def psd(rng, claim):
    """A symmetric matrix with no negative direction is a square LL', also when it is singular."""
    B = rng.normal(size=(5, 3))
    points = rng.normal(size=(5, 2))
    kernel = np.exp(-((points[:, None] - points) ** 2).sum(-1) / 2)
    x, outcomes = rng.normal(size=(20, 5)), []
    for A in (B @ B.T, kernel):  # the first is singular, where plain Cholesky fails
        L = claim(A)
        outcomes += [
            equal(L @ L.T, A, tol=EXACT),
            equal(((x @ L) ** 2).sum(1), np.einsum("ni,ij,nj->n", x, A, x), tol=EXACT),
            at_least([np.linalg.eigvalsh(A).min(), np.trace(A), np.linalg.det(A)], 0, tol=EXACT),
        ]
    C = B @ B.T - 2 * np.outer(x[0], x[0])
    indefinite = claim(C)
    return all_of(*outcomes, at_least(np.abs(indefinite @ indefinite.T - C).max(), 0.01))


def _minors(A, sets):
    return np.array([np.linalg.det(A[:, s][:, :, s]) for s in map(list, sets)]).round()


LEADING = ((0,), (0, 1), (0, 1, 2))
PRINCIPAL = [s for size in (1, 2, 3) for s in combinations(range(3), size)]


def _sylvester(A):
    """Rows: positive definite, positive semi-definite, negative definite, indefinite."""
    signs = np.array([-1, 1, -1])[:, None]
    sizes = np.array([len(s) for s in PRINCIPAL])[:, None]
    every = _minors(A, PRINCIPAL)
    semi = (every >= 0).all(0)
    negative_semi = ((-1) ** sizes * every >= 0).all(0)
    leading = _minors(A, LEADING)
    return np.array([(leading > 0).all(0), semi, (signs * leading > 0).all(0), ~semi & ~negative_semi])


def _leading_only(A):
    signs = np.array([-1, 1, -1])[:, None]
    leading = _minors(A, LEADING)
    positive, negative = (leading > 0).all(0), (signs * leading > 0).all(0)
    return np.array([positive, positive, negative, ~positive & ~negative])


def _leading_relaxed(A):
    right = _sylvester(A)
    return np.array([right[0], (_minors(A, LEADING) >= 0).all(0), right[2], right[3]])


@formula(
    "la-sylvester",
    latex=r"A \succ 0 \iff \text{leading minors} > 0; \quad"
    r" A \succeq 0 \iff \text{all principal minors} \ge 0; \quad A \prec 0 \iff (-1)^k \det A_k > 0",
    where="000, 001 §3",
    right=_sylvester,
    wrong=_leading_relaxed,
    errata=(
        Erratum(
            "E14",
            r"$A \succeq 0$ iff all leading minors are positive, otherwise indefinite",
            r"that is $A \succ 0$; $A \succeq 0$ iff all principal minors are $\ge 0$",
            _leading_only,
            where="000, 001 §3",
            kind="claim",
            counterexample=r"$\mathrm{diag}(1, 0)$ is semidefinite with a minor $0$; $\mathrm{diag}(0, -1)$ has "
            r"leading minors $0, 0$ and the eigenvalue $-1$",
        ),
    ),
)
def sylvester(rng, claim):
    """Leading minors decide definiteness; semi-definiteness needs every principal minor."""
    A = rng.integers(-2, 3, size=(200, 3, 3))
    A = np.tril(A) + np.swapaxes(np.tril(A, -1), 1, 2)
    B = rng.integers(-2, 3, size=(100, 3, 2))
    gram = B @ np.swapaxes(B, 1, 2)
    edge = np.array([np.diag([1, 0, 0]), np.diag([0, -1, 0]), np.zeros((3, 3))])
    A = np.concatenate([A, gram, -gram - np.eye(3, dtype=int), gram + np.eye(3, dtype=int), edge])
    low, *_, high = np.linalg.eigvalsh(A).round(9).T
    truth = np.array([low > 0, low >= 0, high < 0, (low < 0) & (high > 0)])
    return equal(claim(A), truth, tol=0.1)


@formula(
    "la-trace",
    latex=r"\mathrm{Tr} A = \sum_i a_{ii} = \sum_i \lambda_i = \mathrm{Tr} A^\top,"
    r" \qquad \mathrm{Tr}(ABC) = \mathrm{Tr}(BCA) = \mathrm{Tr}(CAB)",
    where="000, 001 §3; 004",
    right=lambda A, B, C: (np.trace(B @ C @ A), np.trace(C @ A @ B)),
    wrong=lambda A, B, C: (np.trace(B @ A @ C), np.trace(A @ C @ B)),
)
def trace(rng, claim):
    """The trace is the sum of the eigenvalues and does not mind a cyclic shift of its factors."""
    A, B, C = rng.normal(size=(3, 4, 4))
    c = rng.normal()
    linear = np.trace(A + c * B.T) - np.trace(A) - c * np.trace(B)
    return all_of(
        equal(claim(A, B, C), np.einsum("ij,jk,ki->", A, B, C), tol=EXACT),
        equal(np.linalg.eigvals(A).sum().real, np.trace(A), tol=EXACT),
        equal(linear, 0, tol=EXACT),
    )


@formula(
    "la-frobenius",
    latex=r"\|A\|_F^2 = \sum_{ij} a_{ij}^2 = \mathrm{Tr}(A^\top A) = \sum_i \sigma_i^2, \qquad"
    r" \|QA\|_F = \|A\|_F",
    where="000, 001 §3; 004 §2, Lemma 8",
    right=lambda A: (A**2).sum(),
    errata=(
        Erratum(
            "E35",
            r"$\|M\|_F^2 = \sum_{ij} m_{ij}$",
            r"$\sum_{ij} m_{ij}^2$",
            lambda A: A.sum(),
            where="004 §2",
            kind="formula",
        ),
    ),
    systems=("low-rank",),
)
def frobenius(rng, claim):
    """The squared Frobenius norm sums squared entries, or squared singular values; rotations keep it."""
    A, Q = rng.normal(size=(4, 3)), orthogonal(rng, 4)
    return all_of(
        equal(claim(A), (np.linalg.svd(A, compute_uv=False) ** 2).sum(), tol=EXACT),
        equal(claim(A), np.trace(A.T @ A), tol=EXACT),
        equal(claim(Q @ A), np.trace(A @ A.T), tol=EXACT),
    )


@formula(
    "la-spectral-norm",
    latex=r"\|A\|_2 = \sup_{\|x\| = 1} \|Ax\| = \sigma_1(A), \qquad \|AB\|_2 \le \|A\|_2 \|B\|_2",
    where="002 RNN; 003 RNN; 004 Lemma 9",
    right=lambda A: np.linalg.svd(A, compute_uv=False)[0],
    wrong=lambda A: np.abs(np.linalg.eigvals(A)).max(),
    systems=("spectral-penalty", "gradient-flow"),
)
def spectral_norm(rng, claim):
    """The largest stretch of a matrix is its top singular value, and products stretch no more."""
    A, B, x = *rng.normal(size=(2, 4, 4)), rng.normal(size=(200, 4))
    A[0] *= 3  # far from normal, so that eigenvalues say something else
    power = A.T @ A
    for _ in range(40):
        power = power @ power
        power /= np.linalg.norm(power)
    top = power[:, np.argmax(np.linalg.norm(power, axis=0))]
    Q = orthogonal(rng, 4)
    return all_of(
        equal(np.linalg.norm(A @ top) / np.linalg.norm(top), claim(A), tol=1e-8),
        at_most(np.linalg.norm(x @ A.T, axis=1), claim(A) * np.linalg.norm(x, axis=1)),
        at_most(claim(A @ B), claim(A) * claim(B)),
        equal(claim(A @ Q), claim(A), tol=EXACT),
    )


def _leibniz(A):
    n, total = len(A), 0.0
    for order in permutations(range(n)):
        inversions = sum(a > b for a, b in combinations(order, 2))
        total += (-1) ** inversions * np.prod(A[range(n), order])
    return total


@formula(
    "la-determinant",
    latex=r"\det A^\top = \det A, \qquad \det AB = \det A \det B, \qquad \det A^{-1} = \frac{1}{\det A}",
    where="002, 003 Background",
    right=lambda a, b: (a, a * b, 1 / a),
    wrong=lambda a, b: (a, a + b, 1 / a),
    systems=("flows",),
)
def determinant(rng, claim):
    """Determinants multiply, ignore transposition, and invert with the matrix."""
    A, B = rng.normal(size=(2, 4, 4)) + 2 * np.eye(4)
    true = [_leibniz(M) for M in (A.T, A @ B, np.linalg.inv(A))]
    return equal(claim(_leibniz(A), _leibniz(B)) / np.array(true), 1, tol=1e-8)


@formula(
    "la-spectral-theorem",
    latex=r"\Sigma = Q \Lambda Q^\top, \quad Q^\top Q = I, \quad \lambda_1 \ge \dots \ge \lambda_n \ge 0",
    where="004 Thm 3",
    right=lambda Q, values: Q @ np.diag(values) @ Q.T,
    wrong=lambda Q, values: Q.T @ np.diag(values) @ Q,
    systems=("pca",),
)
def spectral_theorem(rng, claim):
    """A symmetric positive semi-definite matrix is a rotation, a stretch along axes, and the way back."""
    B = rng.normal(size=(4, 3))
    Sigma = B @ B.T
    values, Q = np.linalg.eigh(Sigma)
    values, Q = values[::-1], Q[:, ::-1]
    return all_of(
        equal(claim(Q, values), Sigma, tol=EXACT),
        equal(claim(Q, values**2), Sigma @ Sigma, tol=1e-9),
        equal(Q.T @ Q, np.eye(4), tol=EXACT),
        at_least(values, 0, tol=EXACT),
    )


@formula(
    "la-svd",
    latex=r"A = U \Sigma V^\top, \qquad U^\top U = I, \quad V^\top V = I, \quad"
    r" \sigma_1 \ge \sigma_2 \ge \dots \ge 0",
    where="001 §11.3; 004 Thm 7",
    right=lambda U, s, V: U @ np.diag(s) @ V.T,
    wrong=lambda U, s, V: U @ np.diag(s) @ V,
    systems=("pca", "low-rank"),
)
def svd(rng, claim):
    """Every matrix is a rotation, a stretch along axes, and another rotation."""
    A = rng.normal(size=(4, 4))
    squares, V = np.linalg.eigh(A.T @ A)  # the factors from eigenvectors, not from a library's SVD
    s, V = np.sqrt(squares[::-1]), V[:, ::-1]
    U = A @ V / s
    return all_of(
        equal(claim(U, s, V), A, tol=1e-9),
        equal(U.T @ U, np.eye(4), tol=1e-6),  # squaring lost half of the digits of small values
        equal(s, np.linalg.svd(A, compute_uv=False), tol=1e-7),
    )


@formula(
    "la-eckart-young",
    latex=r"A_k = \sum_{i \le k} \sigma_i u_i v_i^\top = \arg\min_{\mathrm{rank} B \le k} \|A - B\|_F,"
    r" \qquad \|A - A_k\|_F^2 = \sum_{i > k} \sigma_i^2",
    where="000 §6; 002, 003 Linear AE; 004 Thm 10",
    right=lambda sigma, k: (sigma[k:] ** 2).sum(),
    wrong=lambda sigma, k: sigma[k] ** 2,
    systems=("low-rank", "pca", "linear-autoencoder"),
    functions=("corollary.completion.TruncatedSVD",),
)
def eckart_young(rng, claim):
    """Cutting the SVD after k terms is the best rank-k approximation, with the tail as its error."""
    from corollary.completion import TruncatedSVD

    sigma, k = np.array([5, 4, 1.5, 1.2, 0.8]) * rng.uniform(0.8, 1.2), 2
    U, V = orthogonal(rng, 6)[:, :5], orthogonal(rng, 5)
    A = (U * sigma) @ V.T
    random = rng.normal(size=(100, 6, k)) @ rng.normal(size=(100, k, 5))
    R = rng.normal(size=(k, 5))
    for _ in range(30):  # alternating least squares, which knows nothing of the SVD
        L = A @ np.linalg.pinv(R)
        R = np.linalg.pinv(L) @ A
    cut = (U[:, :k] * sigma[:k]) @ V[:, :k].T
    best, model = claim(sigma, k), TruncatedSVD(k, random_state=0)
    theirs = model.inverse_transform(model.fit_transform(A))
    return all_of(
        equal(((A - theirs) ** 2).sum(), best, tol=1e-8),
        equal(((A - cut) ** 2).sum(), best, tol=1e-9),
        equal(((A - L @ R) ** 2).sum(), best, tol=1e-6),
        at_least(((A - random) ** 2).sum((1, 2)), best),
    )


@formula(
    "la-linear-map",
    latex=r"f(\alpha x + \beta y) = \alpha f(x) + \beta f(y) \iff f(x) = Wx,\ W \in \mathbb{R}^{m \times n};"
    r" \qquad W = W_2 W_1 \text{ for } f_2 \circ f_1",
    where="000 §6.1; 002 Linear; 004 §4",
    right=lambda images, x: np.stack(images, axis=1) @ x,
    wrong=lambda images, x: np.stack(images, axis=0) @ x,
    errata=(
        Erratum(
            "E18",
            r"$f: \mathbb R^n \to \mathbb R^m$ is linear iff $f(x) = w^\top x$",
            r"$f(x) = Wx$ with $W \in \mathbb R^{m \times n}$; a single $w$ only for $m = 1$",
            lambda images, x: np.array([image[0] for image in images]) @ x,
            where="000 §6.1",
            kind="dimensions",
        ),
    ),
)
def linear_map(rng, claim):
    """A linear map is the matrix whose columns are the images of the basis, and composition multiplies."""

    def first(x):
        return np.cumsum(x)

    def second(x):
        return np.roll(np.diff(x, append=0.0), 1) + 2 * x[::-1]

    x, (W1, W2) = rng.normal(size=5), ([f(e) for e in np.eye(5)] for f in (first, second))
    composed = [second(first(e)) for e in np.eye(5)]
    return all_of(
        equal(claim(W1, x), first(x), tol=1e-12),
        equal(claim(composed, x), second(first(x)), tol=1e-12),
        equal(claim(W2, claim(W1, x)) if np.ndim(claim(W1, x)) else np.inf, second(first(x)), tol=1e-12),
    )


@formula(
    "la-affine-map",
    latex=r"f \text{ affine} \iff f(\alpha x + \beta y) = \alpha f(x) + \beta f(y)"
    r" \ \text{ whenever } \alpha + \beta = 1",
    where="002 Linear",
    right=lambda a, b: abs(a + b - 1) < 1e-9,
    wrong=lambda a, b: True,
)
def affine_map(rng, claim):
    """An affine map respects exactly those combinations whose weights add up to one."""
    W, c = rng.normal(size=(3, 4)), rng.normal(size=3)
    x, y = rng.normal(size=(2, 4))
    u, v = rng.normal(size=2)
    weights = [(0.3, 0.7), (2.0, -1.0), (u, 1 - u), (1.0, 1.0), (0.5, 0.2), (u, 1.5 - u + abs(v))]
    gaps = [W @ (a * x + b * y) + c - a * (W @ x + c) - b * (W @ y + c) for a, b in weights]
    truth = np.abs(gaps).max(axis=1) < 1e-9
    return equal([claim(a, b) for a, b in weights], truth, tol=0.1)


@formula(
    "la-hyperplane",
    latex=r"H = \{x : \langle w, x - p \rangle = 0\} = \{x : \langle w, x \rangle = b\},"
    r" \qquad b = \langle w, p \rangle",
    where="000 §6.2",
    right=lambda w, p: w @ p,
    wrong=lambda w, p: w @ p / np.linalg.norm(w),
    systems=("perceptron",),
)
def hyperplane(rng, claim):
    """A hyperplane through p with normal w is a level set of the inner product with w."""
    w, p = rng.normal(size=5) * 3, rng.normal(size=5) + 1
    tangent = np.linalg.svd(w[None])[2][1:]  # a basis of the directions orthogonal to w
    x = p + rng.normal(size=(50, 4)) @ tangent
    off = x + 0.1 * w
    return all_of(
        equal(x @ w, claim(w, p), tol=EXACT),
        equal((off - p) @ w, off @ w - claim(w, p), tol=EXACT),
        at_least(np.abs(off @ w - claim(w, p)), 0.05 * w @ w),
    )


def _group_axioms(table, inverses=True, associative=True):
    """Judge a Cayley table of 0..n-1; an entry outside means that the operation leaves the set."""
    n = len(table)
    if table.min() < 0 or table.max() >= n:
        return False
    if associative and not np.array_equal(table[table, :], table[:, table]):
        return False
    units = [e for e in range(n) if (table[e] == range(n)).all() and (table[:, e] == range(n)).all()]
    if not units:
        return False
    to_unit = table == units[0]
    return bool(not inverses or (to_unit & to_unit.T).any(axis=1).all())


@formula(
    "la-group",
    latex=r"a \cdot b \in G, \quad (ab)c = a(bc), \quad ea = ae = a, \quad a a^{-1} = a^{-1} a = e",
    where="001 §3; 003 Geometric",
    right=_group_axioms,
    wrong=lambda table: _group_axioms(table, inverses=False),
    systems=("equivariance",),
    functions=("corollary.theory.symmetry.cyclic", "corollary.theory.symmetry.symmetric"),
)
def group(rng, claim):
    """A group is closed and associative, has a neutral element, and every element has an inverse."""
    from corollary.theory.symmetry import cyclic, symmetric

    n = int(rng.integers(4, 9))
    i = np.arange(n)
    tables = {
        "addition": (cyclic(n).product.numpy(), True),
        "S3": (symmetric(3).product.numpy(), True),
        "multiplication": (np.outer(i, i) % n, False),  # zero has no inverse
        "units mod 8": (np.outer([1, 3, 5, 7], [1, 3, 5, 7]) % 8 // 2, True),
        "subtraction": ((i[:, None] - i) % n, False),
        "maximum": (np.maximum.outer(i, i), False),
        "plain sum": (i[:, None] + i, False),
        "loop": (_loop(), False),
    }
    order = rng.permutation(n)  # names of the elements do not matter
    renamed = np.empty((n, n), dtype=int)
    renamed[np.ix_(order, order)] = order[tables["addition"][0]]
    tables["renamed"] = (renamed, True)
    said = [claim(table) for table, _ in tables.values()]
    return equal(said, [truth for _, truth in tables.values()], tol=0.1)


def _loop():
    """A Latin square with unit and two-sided inverses that is not associative."""
    return np.array([[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [2, 4, 0, 1, 3], [3, 2, 4, 0, 1], [4, 3, 1, 2, 0]])


@formula(
    "la-permutation",
    latex=r"P_{i \sigma(i)} = 1: \qquad P^{-1} = P^\top, \quad (PX)_i = X_{\sigma(i)},"
    r" \quad (XP^\top)_{\cdot j} = X_{\cdot \sigma(j)}",
    where="001 §16.1",
    right=lambda sigma: np.eye(len(sigma), dtype=int)[sigma],
    wrong=lambda sigma: np.eye(len(sigma), dtype=int)[:, sigma],
    systems=("deep-sets", "gcn"),
)
def permutation(rng, claim):
    """A permutation matrix reorders rows from the left, columns by its transpose, and is orthogonal."""
    sigma, tau = np.roll(np.arange(6), 1), rng.permutation(6)  # the cycle is not its own inverse
    X, outcomes = rng.integers(0, 100, size=(6, 6)), []
    for order in (sigma, tau):
        P = claim(order)
        outcomes += [
            equal(P @ X, [X[i] for i in order], tol=0.1),
            equal(X @ P.T, np.stack([X[:, j] for j in order], axis=1), tol=0.1),
            equal(P @ P.T, np.eye(6), tol=0.1),
        ]
    both = [sigma[t] for t in tau]  # two-line notation: first tau, then sigma
    return all_of(*outcomes, equal(claim(tau) @ claim(sigma), claim(both), tol=0.1))
