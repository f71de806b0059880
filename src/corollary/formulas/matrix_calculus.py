"""Matrix calculus: gradients and Jacobians of vector, matrix and tensor expressions.

Numerator layout unless said otherwise; every rule is compared with central differences.
"""

import numpy as np

from corollary.formulas.record import Erratum, all_of, equal, formula
from corollary.formulas.tools import gradient, jacobian, spd

NUMERIC = 1e-6  # central differences of step 1e-5 on functions of order one


def _vector_map(rng, n, m):
    """A random smooth map R^n -> R^m and its Jacobian, from the columns of its partial derivatives."""
    A, B = rng.normal(size=(2, m, n))

    def f(x):
        return np.sin(A @ x) + 0.5 * (B @ x) ** 2 + 1

    def columns(x):
        return [np.cos(A @ x) * A[:, j] + (B @ x) * B[:, j] for j in range(n)]

    return f, lambda x: np.stack(columns(x), axis=1), columns


@formula(
    "mc-layout",
    latex=r"f: \mathbb{R}^n \to \mathbb{R}^m: \quad \Big(\frac{\partial f}{\partial x}\Big)_{ij}"
    r" = \frac{\partial f_i}{\partial x_j} \in \mathbb{R}^{m \times n} \text{ (numerator)}, \quad"
    r" \text{its transpose} \in \mathbb{R}^{n \times m} \text{ (denominator)}",
    where="000, 001 §4.1; 001 §11.2; 002, 003 Backprop",
    right=lambda columns: (np.stack(columns, axis=1), np.stack(columns, axis=0)),
    errata=(
        Erratum(
            "E15",
            r"denominator layout lies in $\mathbb R^{m \times n}$",
            r"$\mathbb R^{n \times m}$",
            lambda columns: (np.stack(columns, axis=1), np.stack(columns, axis=1)),
            where="000 §4.1",
            kind="dimensions",
        ),
        Erratum(
            "E15",
            r"numerator layout lies in $\mathbb R^{n \times m}$",
            r"$\mathbb R^{m \times n}$",
            lambda columns: (np.stack(columns, axis=0), np.stack(columns, axis=0)),
            where="001 §4.1",
            kind="dimensions",
        ),
    ),
)
def layout(rng, claim):
    """Numerator layout has a row per output and acts on steps from the left; the other is its transpose."""
    f, _, columns = _vector_map(rng, 3, 2)
    x = rng.normal(size=3)
    numerator, denominator = claim(columns(x))
    true = jacobian(f, x)
    return all_of(equal(numerator, true, tol=NUMERIC), equal(denominator, true.T, tol=NUMERIC))


@formula(
    "mc-product-rule",
    latex=r"\nabla(uv) = u \nabla v + v \nabla u, \qquad"
    r" \partial(u\,\mathbf{f}) = u\, \partial\mathbf{f} + \mathbf{f}\, \partial u",
    where="000, 001 §4.2-4.3",
    right=lambda u, du, f, df: u * df + np.outer(f, du),
    wrong=lambda u, du, f, df: u * df + np.outer(du, f),
)
def product_rule(rng, claim):
    """Differentiate each factor in turn; a scalar factor adds an outer product to the Jacobian."""
    f, df, _ = _vector_map(rng, 3, 3)
    u, du, _ = _vector_map(rng, 3, 1)
    x = rng.normal(size=3)
    return all_of(
        equal(claim(u(x), du(x)[0], f(x), df(x)), jacobian(lambda x: u(x) * f(x), x), tol=NUMERIC),
        equal(
            claim(u(x), du(x)[0], f(x)[:1], df(x)[:1]),
            jacobian(lambda x: u(x) * f(x)[:1], x),
            tol=NUMERIC,
        ),
    )


@formula(
    "mc-chain-rule",
    latex=r"\frac{\partial\, \mathbf{f}(\mathbf{g}(x))}{\partial x}"
    r" = \frac{\partial \mathbf{f}}{\partial \mathbf{g}} \frac{\partial \mathbf{g}}{\partial x}"
    r" \quad \text{(numerator layout; reversed order in denominator layout)}",
    where="000, 001 §4.1-4.3; 002",
    right=lambda outer, inner: outer @ inner,
    wrong=lambda outer, inner: inner @ outer,
)
def chain_rule(rng, claim):
    """Jacobians of composed maps multiply, the outermost first in numerator layout."""
    (f, df, _), (g, dg, _), (h, dh, _) = (_vector_map(rng, 3, 3) for _ in range(3))
    x = rng.normal(size=3) * 0.3
    y = g(x)
    two, three = jacobian(lambda x: f(g(x)), x), jacobian(lambda x: h(f(g(x))), x)
    return all_of(
        equal(claim(df(y), dg(x)), two, tol=1e-7, relative=True),
        equal(claim(dh(f(y)), claim(df(y), dg(x))), three, tol=NUMERIC, relative=True),
    )


@formula(
    "mc-inner-product",
    latex=r"\nabla_x [\mathbf{f}^\top A\, \mathbf{g}] = J_f^\top A\, \mathbf{g} + J_g^\top A^\top \mathbf{f}",
    where="001 §4.2",
    right=lambda A, f, Jf, g, Jg: Jf.T @ A @ g + Jg.T @ A.T @ f,
    wrong=lambda A, f, Jf, g, Jg: Jf.T @ A @ g + Jg.T @ A @ f,
)
def inner_product(rng, claim):
    """The gradient of a bilinear form of two maps moves one at a time, the second through the transpose."""
    (f, df, _), (g, dg, _), A = _vector_map(rng, 4, 3), _vector_map(rng, 4, 3), rng.normal(size=(3, 3))
    x = rng.normal(size=4)
    outcomes = [
        equal(claim(M, f(x), df(x), g(x), dg(x)), gradient(lambda x, M=M: f(x) @ M @ g(x), x), tol=1e-5)
        for M in (A, np.eye(3))
    ]
    return all_of(*outcomes)


@formula(
    "mc-linear-forms",
    latex=r"\nabla a^\top x = a, \quad \nabla x^\top x = 2x, \quad \nabla b^\top A x = A^\top b,"
    r" \quad \nabla x^\top A x = (A + A^\top) x",
    where="000, 001 §4.2",
    right=lambda a, b, A, x: (a, 2 * x, A.T @ b, (A + A.T) @ x),
    wrong=lambda a, b, A, x: (a, 2 * x, A.T @ b, 2 * A @ x),
)
def linear_forms(rng, claim):
    """Gradients of the linear and quadratic forms; the matrix of the last need not be symmetric."""
    a, b, x, A = *rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
    forms = (lambda x: a @ x, lambda x: x @ x, lambda x: b @ A @ x, lambda x: x @ A @ x)
    return all_of(*(equal(g, gradient(f, x), tol=NUMERIC) for g, f in zip(claim(a, b, A, x), forms)))


@formula(
    "mc-affine-product",
    latex=r"\nabla\big[(Ax + b)^\top C (Dx + e)\big] = D^\top C^\top (Ax + b) + A^\top C (Dx + e)",
    where="001 §4.2",
    right=lambda A, C, D, left, right: D.T @ C.T @ left + A.T @ C @ right,
    wrong=lambda A, C, D, left, right: D.T @ C @ left + A.T @ C @ right,
)
def affine_product(rng, claim):
    """The gradient of a product of two affine maps joined by a matrix."""
    A, C, D = rng.normal(size=(3, 4, 4))
    b, e, x = rng.normal(size=(3, 4))
    true = gradient(lambda x: (A @ x + b) @ C @ (D @ x + e), x)
    return equal(claim(A, C, D, A @ x + b, D @ x + e), true, tol=1e-5)


@formula(
    "mc-squared-norm",
    latex=r"\nabla \|\mathbf{f}(x)\|^2 = 2 J_f^\top \mathbf{f}(x)",
    where="000, 001 §4.2",
    right=lambda f, J: 2 * J.T @ f,
    wrong=lambda f, J: 2 * J @ f,
    systems=("linear-regression",),
)
def squared_norm(rng, claim):
    """The gradient of a squared length is twice the transposed Jacobian applied to the vector."""
    f, df, _ = _vector_map(rng, 3, 3)
    x = rng.normal(size=3)
    return equal(claim(f(x), df(x)), gradient(lambda x: (f(x) ** 2).sum(), x), tol=1e-7, relative=True)


def _vector_jacobians(a, A, J):
    n = len(a)
    return np.diag(a), np.zeros((n, n)), np.eye(n), A, A.T, A @ J


@formula(
    "mc-vector-jacobians",
    latex=r"\partial(x \odot a) = \mathrm{diag}(a), \quad \partial a = 0, \quad \partial x = I, \quad"
    r" \partial(Ax) = A, \quad \partial(x^\top A) = A^\top, \quad"
    r" \partial(A\mathbf{f}) = A\,\partial\mathbf{f}",
    where="001 §4.3",
    right=_vector_jacobians,
    wrong=lambda a, A, J: (*_vector_jacobians(a, A, J)[:4], A, A @ J),
)
def vector_jacobians(rng, claim):
    """Jacobians of the elementary vector maps."""
    (f, df, _), a, A, x = (
        _vector_map(rng, 3, 3),
        rng.normal(size=3),
        rng.normal(size=(3, 3)),
        rng.normal(size=3),
    )
    maps = (lambda x: x * a, lambda x: a, lambda x: x, lambda x: A @ x, lambda x: x @ A, lambda x: A @ f(x))
    return all_of(*(equal(J, jacobian(g, x), tol=NUMERIC) for J, g in zip(claim(a, A, df(x)), maps)))


@formula(
    "mc-bilinear-in-matrix",
    latex=r"\nabla_X\, a^\top X b = a b^\top, \qquad \nabla_X\, a^\top X^\top b = b a^\top",
    where="000 §6.4; 001 §4.4",
    right=lambda a, b: (np.outer(a, b), np.outer(b, a)),
    errata=(
        Erratum(
            "E16",
            r"$\nabla_X\, a^\top X^\top b = a b^\top$",
            r"$b a^\top$",
            lambda a, b: (np.outer(a, b), np.outer(a, b)),
            where="001 §4.4",
            kind="dimensions",
        ),
    ),
)
def bilinear_in_matrix(rng, claim):
    """A bilinear form's gradient in its matrix is an outer product of the shape of the matrix."""
    outcomes = []
    for m, n in ((3, 3), (3, 2)):
        X, tall, wide = rng.normal(size=(m, n)), rng.normal(size=m), rng.normal(size=n)
        plain = gradient(lambda X, tall=tall, wide=wide: tall @ X @ wide, X)
        turned = gradient(lambda X, tall=tall, wide=wide: wide @ X.T @ tall, X)
        outcomes += [equal(claim(tall, wide)[0], plain, tol=NUMERIC)]
        outcomes += [equal(claim(wide, tall)[1], turned, tol=NUMERIC)]
    return all_of(*outcomes)


def _quadratic(X, a, b):
    ab, ba = np.outer(a, b), np.outer(b, a)
    return X @ (ab + ba), X.T @ ba + ba @ X.T


def _quadratic_printed(X, a, b):
    ab, ba = np.outer(a, b), np.outer(b, a)
    return X @ (ab + ba), X.T @ (ab + ba)


@formula(
    "mc-quadratic-in-matrix",
    latex=r"\nabla_X\, a^\top X^\top X b = X(ab^\top + ba^\top), \qquad"
    r" \nabla_X\, a^\top X^\top X^\top b = X^\top b a^\top + b a^\top X^\top",
    where="000 §6.4; 001 §4.4",
    right=_quadratic,
    wrong=lambda X, a, b: (2 * X @ np.outer(a, b), _quadratic(X, a, b)[1]),
    errata=(
        Erratum(
            "T3",
            r"$\nabla_X\, a^\top X^\top X^\top b = X^\top(ab^\top + ba^\top)$",
            r"$X^\top b a^\top + b a^\top X^\top$",
            _quadratic_printed,
            where="000 §6.4",
            kind="typing",
        ),
    ),
)
def quadratic_in_matrix(rng, claim):
    """Forms quadratic in a matrix give one term for each place where the matrix stands."""
    X, (a, b) = rng.normal(size=(3, 3)), rng.normal(size=(2, 3))
    forms = (lambda X: a @ X.T @ X @ b, lambda X: a @ X.T @ X.T @ b)
    return all_of(*(equal(g, gradient(f, X), tol=1e-5) for g, f in zip(claim(X, a, b), forms)))


def _trace_rules(A, B, X):
    return np.eye(len(X)), A.T @ B.T, B @ A, 2 * X, B.T


def _trace_rules_slip(A, B, X):
    return np.eye(len(X)), (A @ B).T, B @ A, 2 * X, B.T


@formula(
    "mc-trace-rules",
    latex=r"\nabla \mathrm{Tr} X = I, \quad \nabla \mathrm{Tr}(AXB) = A^\top B^\top, \quad"
    r" \nabla \mathrm{Tr}(AX^\top B) = BA, \quad \nabla_A \mathrm{Tr}(AA^\top) = 2A, \quad"
    r" \nabla_A \mathrm{Tr}(AB) = B^\top",
    where="000 §13; 001 §4.4",
    right=_trace_rules,
    wrong=_trace_rules_slip,
)
def trace_rules(rng, claim):
    """Gradients of traces that are linear or quadratic in a matrix."""
    A, B, X = rng.normal(size=(3, 3, 3))
    forms = (
        np.trace,
        lambda X: np.trace(A @ X @ B),
        lambda X: np.trace(A @ X.T @ B),
        lambda X: np.trace(X @ X.T),
        lambda X: np.trace(X @ B),
    )
    return all_of(*(equal(g, gradient(f, X), tol=1e-5) for g, f in zip(claim(A, B, X), forms)))


@formula(
    "mc-trace-inverse",
    latex=r"\nabla_A \mathrm{Tr}(S A^{-1}) = -A^{-\top} S^\top A^{-\top}"
    r" \quad (= -A^{-1} S A^{-1} \text{ for symmetric } A, S)",
    where="000 §16",
    right=lambda inverse, S: -inverse.T @ S.T @ inverse.T,
    wrong=lambda inverse, S: -inverse @ S @ inverse,
    errata=(
        Erratum(
            "E17",
            r"$\nabla_A \mathrm{Tr}(S A^{-1}) = -A^{-1} S$",
            r"$-A^{-1} S A^{-1}$ for symmetric $A$ and $S$",
            lambda inverse, S: -inverse @ S,
            where="000 §16",
            kind="formula",
        ),
    ),
    systems=("factor-analysis", "ppca"),
)
def trace_inverse(rng, claim):
    """Differentiating through an inverse brings the inverse in on both sides, with a minus sign."""
    symmetric, S = spd(rng, 3), spd(rng, 3)
    tilted, T = spd(rng, 3) + 0.3 * np.triu(rng.normal(size=(3, 3)), 1), rng.normal(size=(3, 3))
    outcomes = []
    for A, M in ((symmetric, S), (tilted, T)):
        true = gradient(lambda A, M=M: np.trace(M @ np.linalg.inv(A)), A)
        outcomes.append(equal(claim(np.linalg.inv(A), M), true, tol=1e-7, relative=True))
    return all_of(*outcomes)


@formula(
    "mc-logdet",
    latex=r"\nabla_A \log\det A = A^{-\top}",
    where="000 §16",
    right=lambda A: np.linalg.inv(A).T,
    wrong=lambda A: np.linalg.inv(A),
    systems=("flows", "factor-analysis"),
)
def logdet(rng, claim):
    """The gradient of the log-determinant is the transposed inverse."""
    A = spd(rng, 3, 1, 2) + np.triu(rng.uniform(0.2, 0.5, size=(3, 3)), 1)
    return equal(claim(A), gradient(lambda A: np.linalg.slogdet(A)[1], A), tol=NUMERIC)


@formula(
    "mc-vector-by-matrix",
    latex=r"\frac{\partial (Xa)_i}{\partial X_{jk}} = \delta_{ij} a_k, \qquad"
    r" \nabla_X \ell(Xa) = \delta\, a^\top, \quad \delta = \nabla \ell",
    where="000 §6.5; 001 §4.5",
    right=lambda a, m: np.einsum("ij,k->ijk", np.eye(m), a),
    wrong=lambda a, m: np.einsum("ik,j->ijk", np.eye(m), a),
    systems=("mlp",),
)
def vector_by_matrix(rng, claim):
    """A matrix moves only its own row's output; back-propagated, the gradient is an outer product."""
    X, a, target = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)
    delta = np.cos(X @ a) - target  # the slope of sum(sin(y)) - target . y

    def loss(X):
        return np.sin(X @ a).sum() - target @ X @ a

    tensor = claim(a, 3)
    return all_of(
        equal(tensor, jacobian(lambda X: X @ a, X), tol=NUMERIC),
        equal(np.tensordot(delta, tensor, 1), gradient(loss, X), tol=NUMERIC),
        equal(np.outer(delta, a), gradient(loss, X), tol=NUMERIC),
    )


def _flattened(P, Q, n):
    """Contract the last n axes of P with the first n of Q as one matrix product."""
    inner = int(np.prod(Q.shape[:n]))
    return (P.reshape(-1, inner) @ Q.reshape(inner, -1)).reshape(P.shape[:-n] + Q.shape[n:])


@formula(
    "mc-tensor-product",
    latex=r"T_{i_1 \dots i_a k_1 \dots k_c} = \sum_{j_1 \dots j_b} P_{i_1 \dots i_a j_1 \dots j_b}"
    r" Q_{j_1 \dots j_b k_1 \dots k_c}",
    where="000 §IV; 001 §18",
    right=_flattened,
    wrong=lambda P, Q, n: _flattened(P, np.swapaxes(Q, 0, 1), n),
)
def tensor_product(rng, claim):
    """Contracting shared axes of two tensors is a matrix product of their flattened forms."""
    P, Q = rng.normal(size=(2, 4, 3, 3)), rng.normal(size=(3, 3, 5))
    true = np.zeros((2, 4, 5))
    for index in np.ndindex(3, 3):
        true += np.multiply.outer(P[(..., *index)], Q[index])
    return equal(claim(P, Q, 2), true, tol=1e-12)


@formula(
    "mc-tensor-chain-rule",
    latex=r"\frac{\partial L}{\partial W_{kl}} = \sum_{ij} \frac{\partial L}{\partial y_{ij}}\, T_{ijkl},"
    r" \qquad T_{ijkl} = \frac{\partial y_{ij}}{\partial W_{kl}}",
    where="000 §IV; 001 §18",
    right=lambda by_output, by_weight, tensor: np.einsum("ij,ijkl->kl", by_output, tensor),
    wrong=lambda by_output, by_weight, tensor: np.einsum("kl,ijkl->ij", by_output, tensor),
    errata=(
        Erratum(
            "T4",
            r"$\partial L / \partial W = \partial L / \partial W \times \partial y / \partial W$",
            r"the first factor on the right is $\partial L / \partial y$",
            lambda by_output, by_weight, tensor: np.einsum("ij,ijkl->kl", by_weight, tensor),
            where="001 §18",
            kind="typing",
        ),
    ),
    systems=("mlp",),
)
def tensor_chain_rule(rng, claim):
    """A matrix-to-matrix map sends gradients back by contracting its four-axis derivative."""
    W, X, C = rng.normal(size=(3, 3, 3))
    y = np.tanh(W @ X)
    by_weight = gradient(lambda W: (C * np.tanh(W @ X) ** 2).sum(), W)
    tensor = np.einsum("ij,ik,lj->ijkl", 1 - y**2, np.eye(3), X)
    return all_of(
        equal(claim(2 * C * y, by_weight, tensor), by_weight, tol=NUMERIC),
        equal(tensor, jacobian(lambda W: np.tanh(W @ X), W), tol=NUMERIC),
    )
