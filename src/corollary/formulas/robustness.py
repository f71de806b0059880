"""Adversarial robustness: minimal perturbations, attacks in norm balls, and operator norms."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from corollary.formulas._library_tools import built, tensor
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import orthogonal

NORMS = (1.5, 2.0, 3.0, np.inf)
NAMES = {2.0: "l2", np.inf: "linf"}  # the library's norms
SIGNS = (-1, 1)  # the labels of two classes, in their order


def dual(p):
    """The exponent p* with 1/p + 1/p* = 1."""
    return 1.0 if p == np.inf else np.inf if p == 1 else p / (p - 1)


def norm(x, p):
    """The l_p norms along the last axis."""
    return np.linalg.norm(x, p, axis=-1)


def ball(rng, n, d, p, radius):
    """Random points of the l_p ball, many of them on its surface."""
    x = rng.normal(size=(n, d))
    return radius * x / norm(x, p)[:, None] * np.minimum(1, rng.uniform(0.2, 1.8, size=(n, 1)))


def named(p):
    """The library's name of a norm."""
    if p not in NAMES:
        raise ValueError(f"no norm {p}")
    return NAMES[p]


def library_ball(what, z, p, size):
    """A function of the library's norm balls, for one vector."""
    from corollary.attack import balls

    return getattr(balls, what)(tensor(z)[None], named(p), float(size))[0].numpy()


def vertices(d, radius):
    """The corners of the cube."""
    return radius * np.array(list(product([-1.0, 1.0], repeat=d)))


def circle(n):
    """Unit vectors of the plane, evenly spread."""
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    return np.column_stack([np.cos(angle), np.sin(angle)])


@formula(
    "adv-definition",
    latex=r"\min_r \lVert r\rVert_p \text{ s.t. } k(x + r) \ne k(x), \qquad "
    r"\hat\rho_{adv} = \frac1n \sum_i \frac{\lVert r(x_i)\rVert_2}{\lVert x_i\rVert_2}",
    where="002, 003 Adversarial robustness",
    right=lambda R, X: np.mean(norm(R, 2) / norm(X, 2)),
    wrong=lambda R, X: np.sum(norm(R, 2)) / np.sum(norm(X, 2)),
    systems=("deepfool",),
)
def definition(rng, claim):
    """Robustness is the mean over inputs of the smallest change of class, relative to the input's size.

    For a linear classifier the change is the distance to the nearest boundary, here also found by
    walking in every direction of the plane.
    """
    W, b, X = rng.normal(size=(4, 2)), rng.normal(size=4), rng.normal(size=(6, 2))
    X *= np.linspace(0.4, 3.0, 6)[:, None]
    smallest, walked = [], []
    for x in X:
        scores = W @ x + b
        k = np.argmax(scores)
        others = [i for i in range(4) if i != k]
        rays = circle(20000) @ (W[others] - W[k]).T  # how fast each rival gains along each direction
        gaps = scores[k] - scores[others]
        exits = np.where(rays > 0, gaps / np.where(rays > 0, rays, 1.0), np.inf).min()
        walked.append(exits / norm(x, 2))
        steps = [(scores[k] - scores[i]) / norm(W[i] - W[k], 2) ** 2 * (W[i] - W[k]) for i in others]
        smallest.append(min(steps, key=lambda r: norm(r, 2)))
    # 20000 directions miss the best by at most pi / 20000, an error of the order of its square.
    return equal(claim(np.array(smallest), X), np.mean(walked), tol=1e-6, relative=True)


def nearest_right(gap, w_true, w_i):
    """The library's step to the boundary of one rival."""
    from corollary.attack.deepfool import nearest_boundary

    return nearest_boundary(tensor([[-gap]]), tensor((w_i - w_true)[None, None]), "l2")[0].numpy()


@formula(
    "adv-deepfool-linear",
    latex=r"r_i = \frac{f_{true}(x) - f_i(x)}{\lVert w_{true} - w_i\rVert_2^2}(w_i - w_{true}), \qquad "
    r"r^* = \arg\min_i \lVert r_i\rVert_2",
    where="003 Adversarial robustness",
    right=nearest_right,
    wrong=lambda gap, w_true, w_i: gap / np.sqrt(np.sum((w_true - w_i) ** 2)) * (w_i - w_true),
    systems=("deepfool",),
    functions=("corollary.attack.deepfool.nearest_boundary",),
)
def deepfool_linear(rng, claim):
    """The shortest step to a rival of a linear classifier is along the difference of the two weight vectors.

    It ends on the boundary, and nothing shorter than the best rival's step changes the class.
    """
    W, b, x = rng.normal(size=(5, 4)), rng.normal(size=5), rng.normal(size=4)
    scores = W @ x + b
    k = int(np.argmax(scores))
    outcomes, lengths = [], []
    for i in set(range(5)) - {k}:
        r = claim(scores[k] - scores[i], W[k], W[i])
        least = np.linalg.pinv((W[i] - W[k])[None]) @ [scores[k] - scores[i]]  # least-norm solution
        outcomes.append(equal(r, least, tol=1e-10))
        lengths.append(norm(r, 2))
    tries = x + ball(rng, 2000, 4, 2, 0.999 * min(lengths))
    flipped = np.argmax(tries @ W.T + b, axis=1) != k
    return all_of(*outcomes, equal(np.mean(flipped), 0.0, tol=1e-12))


def deepfool_lp_right(h, g, p):
    """Smallest l_p step that brings h + g.r to zero, h < 0."""
    q = dual(p)
    return np.abs(h) / norm(g, q) ** q * np.abs(g) ** (q - 1) * np.sign(g)


@formula(
    "adv-deepfool-lp",
    latex=r"h = f_2 - f_1 < 0: \quad r^* = \frac{|h|}{\lVert\nabla h\rVert_{p^*}^{p^*}}\,"
    r"|\nabla h|^{p^* - 1} \odot \mathrm{sgn}(\nabla h), \quad "
    r"\lVert r^*\rVert_p = \frac{|h|}{\lVert\nabla h\rVert_{p^*}}",
    where="002 Adversarial robustness",
    right=deepfool_lp_right,
    errata=(
        Erratum(
            "E88",
            r"the binary step with $\nabla f_1 - \nabla f_2$, away from the boundary",
            r"$\nabla f_2 - \nabla f_1$",
            lambda h, g, p: deepfool_lp_right(h, -g, p),
            where="002 DeepFool",
            kind="formula",
        ),
    ),
    systems=("deepfool",),
)
def deepfool_lp(rng, claim):
    """The smallest l_p step to the boundary of a linear decision raises the rival's lead to zero."""
    outcomes = []
    for p in NORMS:
        g, h = rng.normal(size=5), -float(rng.uniform(0.5, 2.0))
        r = claim(h, g, p)
        shorter = h + ball(rng, 500, 5, p, 0.999 * norm(r, p)) @ g
        outcomes += [
            equal(h + g @ r, 0.0, tol=1e-10),
            equal(norm(r, p), -h / norm(g, dual(p)), tol=1e-10),
            at_most(shorter, 0.0),
        ]
    return all_of(*outcomes)


def steepest_right(z, p):
    """The unit vector of l_p with the largest inner product with z; the library's, where it has the norm."""
    if p in NAMES:
        return library_ball("steepest", z, p, 1.0)
    q = dual(p)
    return np.sign(z) * np.abs(z) ** (q - 1) / norm(z, q) ** (q - 1)


@formula(
    "adv-steepest-ascent",
    latex=r"\arg\max_{\lVert v\rVert_p \le 1} v^\top z = "
    r"\frac{\mathrm{sgn}(z) \odot |z|^{p^* - 1}}{\lVert z\rVert_{p^*}^{p^* - 1}}, \qquad "
    r"\max = \lVert z\rVert_{p^*}",
    where="002, 003 Adversarial robustness",
    right=steepest_right,
    wrong=lambda z, p: np.sign(z) * np.abs(z) ** (dual(p) - 1) / norm(z, dual(p)),
    systems=("pgd", "fgsm"),
    functions=("corollary.attack.balls.steepest",),
)
def steepest_ascent(rng, claim):
    """The steepest direction in an l_p ball uses the dual exponent and attains the dual norm."""
    outcomes = []
    for p in NORMS:
        z = rng.normal(size=5)
        v = claim(z, p)
        outcomes += [
            equal(norm(v, p), 1.0, tol=1e-10),
            equal(v @ z, norm(z, dual(p)), tol=1e-10),
            at_most(ball(rng, 500, 5, p, 1.0) @ z, v @ z),
        ]
    return all_of(*outcomes)


def project(z, epsilon, p):
    """The library's nearest point of the ball, for p = 2 and p = infinity."""
    return library_ball("project", z, p, epsilon)


@formula(
    "adv-pgd",
    latex=r"x_k = \Pi_{B^p_\epsilon(x)}(x_{k-1} + \alpha v_k), \qquad x_0 \sim U(B^p_\epsilon(x))",
    where="002, 003 Adversarial robustness",
    right=lambda x, here, v, alpha, epsilon, p: x + project(here + alpha * v - x, epsilon, p),
    wrong=lambda x, here, v, alpha, epsilon, p: here + project(alpha * v, epsilon, p),
    systems=("pgd",),
    functions=("corollary.attack.balls.project",),
)
def pgd(rng, claim):
    """Projected ascent climbs the loss and returns to the ball around the clean input after every step.

    On a convex loss no step goes down, a start at the one-step attack included; a linear loss is maximised.
    """
    d, epsilon = 5, 0.5
    x, w, W = rng.normal(size=d), rng.normal(size=d), rng.normal(size=(6, d))
    outcomes = []
    for p in (2.0, np.inf):
        inner = x + ball(rng, 1, d, p, 0.3 * epsilon)[0]
        v = steepest_right(w, p)
        outcomes.append(equal(claim(x, inner, v, 0.1, epsilon, p), inner + 0.1 * v, tol=1e-12))  # far inside
        here = x + ball(rng, 1, d, p, epsilon)[0]
        for _ in range(40):
            here = claim(x, here, steepest_right(w, p), 0.1, epsilon, p)
            outcomes.append(at_most(norm(here - x, p), epsilon, tol=1e-10))
        best = epsilon * norm(w, dual(p))
        # On the sphere the last stretch is geometric; forty steps leave about 1e-7 of it.
        outcomes.append(equal(w @ (here - x), best, tol=1e-3 * best))

        def convex(z):
            return np.log(np.exp(W @ z).sum())

        here = x + epsilon * np.sign(W.T @ np.exp(W @ x)) * (1 if p == np.inf else d**-0.5)
        for _ in range(10):
            slope = W.T @ np.exp(W @ here - convex(here))
            after = claim(x, here, steepest_right(slope, p), 0.2, epsilon, p)
            outcomes.append(at_least(convex(after), convex(here), tol=1e-10))
            here = after
    return all_of(*outcomes)


@formula(
    "adv-projection",
    latex=r"\Pi_{B^2_\epsilon}(z) = \min\Big\{1, \frac{\epsilon}{\lVert z\rVert_2}\Big\} z, \qquad "
    r"\Pi_{B^\infty_\epsilon}(z) = \mathrm{clip}(z, -\epsilon, \epsilon)",
    where="002, 003 Adversarial robustness",
    right=project,
    errata=(
        Erratum(
            "E89",
            r"$\Pi_p z = \epsilon z / \lVert z\rVert_p$",
            r"$\min\{1, \epsilon / \lVert z\rVert_2\}\,z$ and clipping",
            lambda z, epsilon, p: epsilon * z / norm(z, p),
            where="003 Adversarial",
            kind="formula",
        ),
    ),
    systems=("pgd",),
    functions=("corollary.attack.balls.project",),
)
def projection(rng, claim):
    """The nearest point of a ball scales (l_2) or clips (l_infinity) only what sticks out.

    A point is nearest exactly if no feasible direction makes an acute angle with what is left over.
    """
    d, epsilon = 4, rng.uniform(1.5, 2.5)
    outcomes = []
    for p in (2.0, np.inf):
        feasible = np.vstack([ball(rng, 300, d, p, epsilon), np.zeros((1, d))])
        if p == np.inf:
            feasible = np.vstack([feasible, vertices(d, epsilon)])
        for size in (0.3, 0.7, 1.5, 3.0):
            z = rng.normal(size=d)
            z *= size * epsilon / norm(z, p)
            nearest = claim(z, epsilon, p)
            outcomes += [
                at_most(norm(nearest, p), epsilon),
                at_most((feasible - nearest) @ (z - nearest), 0.0, tol=1e-10),
            ]
    return all_of(*outcomes)


@formula(
    "adv-fgsm",
    latex=r"x_{adv} = x + \epsilon\,\mathrm{sgn}(\nabla_x \ell)",
    where="003 Adversarial robustness",
    right=lambda x, g, epsilon: x + library_ball("steepest", g, np.inf, epsilon),
    wrong=lambda x, g, epsilon: x + epsilon * g / np.linalg.norm(g),
    errata=(
        Erratum(
            "E110",
            printed=r"a gradient step with learning rate 1",
            correction=r"a step of size $\epsilon$ along the signs of the gradient",
            form=lambda x, g, epsilon: x + g,
            where="003 Adversarial",
            kind="claim",
            counterexample=r"a gradient of length $10^{-3}$ and $\epsilon = 0.1$: the step is $0.1$ in every coordinate",
        ),
    ),
    systems=("fgsm",),
    functions=("corollary.attack.balls.steepest",),
)
def fgsm(rng, claim):
    """One sign step is the best attack on a linear loss in the l_infinity ball: no corner does better."""
    d, epsilon = 8, float(rng.uniform(0.1, 1.0))
    x, w = torch.tensor(rng.normal(size=d), requires_grad=True), torch.tensor(rng.normal(size=d))
    loss = torch.nn.functional.softplus(-(w @ x))  # increases along a fixed direction
    (g,) = torch.autograd.grad(loss, x)
    x, w, attack = x.detach().numpy(), w.numpy(), claim(x.detach().numpy(), g.numpy(), epsilon)
    corners = np.logaddexp(0, -(x + vertices(d, epsilon)) @ w)
    return all_of(
        equal(np.logaddexp(0, -(w @ attack)), corners.max(), tol=1e-12),
        at_most(norm(attack - x, np.inf), epsilon),
    )


def robust_logistic(exponent):
    """The inner maximum of adversarial training, with the norm of the weights of this exponent."""

    def loss(w, x, y, epsilon, p):
        return np.logaddexp(0, -(y * (w @ x) - epsilon * norm(w, exponent(p))))

    return loss


def attacked_logistic(w, x, y, epsilon, p):
    """The loss at the input that the library's attack finds; one step suffices for a linear model."""
    from corollary.attack import fgsm

    line = built(lambda: torch.nn.Linear(len(w), 1, bias=False), weight=w)
    return float(fgsm(line, x[None], [SIGNS.index(y)], eps=epsilon, norm=named(p), bounds=None).loss[0])


@formula(
    "adv-training",
    latex=r"\min_\theta \mathbb{E}\max_{\lVert r\rVert_p \le \epsilon} \ell(f_\theta(x + r), y), \qquad "
    r"\max_{\lVert r\rVert_p \le \epsilon} \ell(y\,w^\top(x + r)) = "
    r"\ell(y\,w^\top x - \epsilon\lVert w\rVert_{p^*})",
    where="002, 003 Adversarial robustness",
    right=attacked_logistic,
    wrong=robust_logistic(lambda p: p),
    systems=("adversarial-training",),
    functions=("corollary.attack.fgsm",),
)
def adversarial_training(rng, claim):
    """For a linear logistic model the worst case takes epsilon times the dual norm off the margin."""
    outcomes = []
    for y in (-1, 1):
        w, x, epsilon = rng.normal(size=2), rng.normal(size=2), float(rng.uniform(0.3, 0.8))
        for p, perturbations in ((2.0, epsilon * circle(20000)), (np.inf, vertices(2, epsilon))):
            worst = np.logaddexp(0, -y * ((x + perturbations) @ w)).max()
            found = claim(w, x, y, epsilon, p)
            outcomes.append(equal(found, worst, tol=1e-6))
            outcomes.append(equal(found, robust_logistic(dual)(w, x, y, epsilon, p), tol=1e-10))
    return all_of(*outcomes)


def power_norm(W):
    """The largest singular value by the library's power method on the Jacobian of a linear layer."""
    from corollary.theory import jacobian_norm

    line = built(lambda: torch.nn.Linear(W.shape[1], W.shape[0], bias=False), weight=W)
    return float(jacobian_norm(line, np.zeros((1, W.shape[1])))[0])


@formula(
    "adv-operator-norm",
    latex=r"\frac{\lVert f(x + \Delta) - f(x)\rVert}{\lVert\Delta\rVert} \approx "
    r"\frac{\lVert J\Delta\rVert}{\lVert\Delta\rVert} \le \sigma(J_f(x)) \le \prod_l \sigma(W^l)",
    where="002 Adversarial robustness",
    right=lambda layers: np.prod([power_norm(W) for W in layers]),
    wrong=lambda layers: np.prod([np.linalg.norm(W) for W in layers]),
    systems=("spectral-penalty", "lipschitz"),
    functions=("corollary.theory.jacobian_norm",),
)
def operator_norm(rng, claim):
    """No input direction is amplified by more than the product of the layers' largest singular values.

    The power method finds them; a chain of scaled rotations attains the product.
    """

    def random_layer(rows, columns, top):
        W = rng.normal(size=(rows, columns))
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
        s[1:] *= 0.8 * s[0] / max(s[1], 0.8 * s[0])  # a gap, so that the power method is quick
        return top / s[0] * (U * s) @ Vt

    layers = [random_layer(6, 4, 1.5), random_layer(5, 6, 0.7), random_layer(3, 5, 2.0)]
    amplified = []
    for x in rng.normal(size=(20, 4)):
        J = np.eye(4)
        for W in layers[:-1]:
            x = np.maximum(W @ x, 0)
            J = (x > 0)[:, None] * (W @ J)
        amplified.append(np.linalg.norm(layers[-1] @ J, 2))
    rotations = [s * orthogonal(rng, 4) for s in (0.5, 3.0, 1.2)]
    chained = rotations[2] @ rotations[1] @ rotations[0]
    return all_of(
        at_most(amplified, claim(layers)),
        equal(claim(layers), 1.5 * 0.7 * 2.0, tol=1e-6),
        equal(claim(rotations), np.linalg.svd(chained)[1][0], tol=1e-6),
    )


def operator_norm_pq(J, p, q):
    """Largest |Jv|_q over |v|_p <= 1, for the pairs with a finite formula."""
    if p == 1:  # an l_1 ball has the axes as corners
        return norm(J.T, q).max()
    if q == np.inf:  # dually, the rows
        return norm(J, dual(p)).max()
    if p == np.inf and q == 1:  # dually, the corners of the output cube
        return norm(vertices(len(J), 1.0) @ J, 1).max()
    return np.linalg.svd(J)[1][0]


@formula(
    "adv-pq-operator-norm",
    latex=r"\max_{\lVert r\rVert_p \le \epsilon} \lVert f(x + r) - f(x)\rVert_q = "
    r"\epsilon \max_{\lVert v\rVert_p \le 1} \lVert J_f(x)v\rVert_q + O(\epsilon^2)",
    where="002 Adversarial robustness",
    right=operator_norm_pq,
    wrong=lambda J, p, q: operator_norm_pq(J.T, p, q),
    systems=("spectral-penalty", "adversarial-training"),
)
def pq_operator_norm(rng, claim):
    """The largest l_q change of the logits in a small l_p ball is an operator norm of the Jacobian."""
    W, V, x = rng.normal(size=(4, 2)), rng.normal(size=(3, 4)), rng.normal(size=2)
    J = V @ ((1 - np.tanh(W @ x) ** 2)[:, None] * W)
    epsilon = 1e-6
    directions = {1: np.vstack([np.eye(2), -np.eye(2)]), 2: circle(20000), np.inf: vertices(2, 1.0)}
    outcomes = []
    for p, q in ((2, 2), (np.inf, 1), (1, 2), (1, 1), (2, np.inf), (np.inf, np.inf)):
        change = np.tanh((x + epsilon * directions[p]) @ W.T) @ V.T - V @ np.tanh(W @ x)
        outcomes.append(equal(claim(J, p, q), norm(change, q).max() / epsilon, tol=1e-3))
    return all_of(*outcomes)
