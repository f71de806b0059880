"""Generative adversarial networks: the game, its optimum, and the Wasserstein variant."""

from __future__ import annotations

import numpy as np
import torch
from scipy.integrate import quad
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist, jensenshannon
from scipy.stats import wasserstein_distance

from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import simplex


def best_discriminator(p, q):
    """Maximise p log d + q log(1 - d) for every state by golden sections: no formula used."""
    low, high = np.zeros_like(p), np.ones_like(p)
    value = lambda d: p * np.log(d) + q * np.log(1 - d)
    for _ in range(90):
        left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
        better_left = value(left) > value(right)
        low, high = np.where(better_left, low, left), np.where(better_left, right, high)
    return (low + high) / 2


def game_value(p, q, d):
    """E_p log D + E_q log(1 - D)."""
    return np.sum(p * np.log(d) + q * np.log(1 - d), axis=-1)


@formula(
    "gan-joint-model",
    latex=r"\tilde p(x, y) = \tfrac12\big(y\,p(x) + (1 - y)\,p_\theta(x)\big), \qquad "
    r"\mathbb{E}_{\tilde p}[y\log q_\phi + (1 - y)\log(1 - q_\phi)] = "
    r"\tfrac12\mathbb{E}_p\log q_\phi + \tfrac12\mathbb{E}_{p_\theta}\log(1 - q_\phi)",
    where="001 §19.4; 002, 003 GANs; 004 §5.3",
    right=lambda p, q, d: 0.5 * np.sum(p * np.log(d)) + 0.5 * np.sum(q * np.log(1 - d)),
    errata=(
        Erratum(
            "E97",
            r"$\int p\log\pi + \int p_\theta\log(1 - \pi)$ for the expectation under the joint law",
            r"half of it",
            lambda p, q, d: np.sum(p * np.log(d)) + np.sum(q * np.log(1 - d)),
            where="004 §5.3",
            kind="formula",
        ),
        Erratum(
            "T17",
            r"$\log q_\phi$ without its factor $y$",
            r"$y\log q_\phi$",
            lambda p, q, d: 0.5 * np.sum((p + q) * np.log(d)) + 0.5 * np.sum(q * np.log(1 - d)),
            where="002 GAN",
            kind="typing",
        ),
    ),
    systems=("gan",),
    functions=("corollary.generative.gan.critic_loss",),
)
def joint_model(rng, claim):
    """On data and samples mixed half and half, the discriminator's likelihood is half the game's value."""
    from corollary.generative.gan import critic_loss

    p, q, d = simplex(rng, 6), simplex(rng, 6), rng.uniform(0.1, 0.9, size=6)
    data, drawn = np.array([0, 1, 1, 2, 5, 5, 5, 3]), np.array([4, 4, 2, 3])  # samples of the two laws
    scores = torch.tensor(np.log(d / (1 - d)))  # the discriminator's logits, as the library takes them
    laws = [np.bincount(x, minlength=6) / len(x) for x in (data, drawn)]
    loss = critic_loss(scores[data], scores[drawn], "non-saturating")
    total = 0.0
    for x in range(6):
        for y, source in ((1, p), (0, q)):
            prediction = d[x] if y == 1 else 1 - d[x]
            total += 0.5 * source[x] * np.log(prediction)
    return all_of(
        equal(claim(p, q, d), total, tol=1e-12),
        equal(claim(*laws, d), -0.5 * loss, tol=1e-12),
    )


@formula(
    "gan-minimax",
    latex=r"\min_G \max_D\; \mathbb{E}_{p}[\log D(x)] + \mathbb{E}_{z}[\log(1 - D(G(z)))]",
    where="001 §19.4; 002, 003 GANs; 004 §5.3",
    right=lambda table: (table.max(1).min(), np.argmin(table.max(1))),
    wrong=lambda table: (table.min(1).max(), np.argmax(table.min(1))),
    errata=(
        Erratum(
            "T15",
            r"$\arg\min_\phi \max_\phi$: nothing left to minimise over the generator",
            r"$\min_\theta \max_\phi$",
            lambda table: (table.max(1)[0], 0),
            where="004 §5.3",
            kind="typing",
        ),
    ),
    systems=("gan",),
)
def minimax(rng, claim):
    """The generator minimises what the best discriminator attains: minus log four, reached at the data.

    Played out in full on two states, with every generator and discriminator of a grid.
    """
    generators, levels = np.linspace(0.05, 0.95, 19), np.linspace(0.02, 0.98, 49)
    truth = int(rng.integers(4, 15))
    p = np.array([generators[truth], 1 - generators[truth]])
    D = np.stack(np.meshgrid(levels, levels), axis=-1).reshape(-1, 2)
    table = np.stack([game_value(p, np.array([g, 1 - g]), D) for g in generators])
    value, best = claim(table)
    return all_of(equal(value, -np.log(4), tol=1e-10), equal(best, truth, tol=0.1))


@formula(
    "gan-optimal-discriminator",
    latex=r"D^*(x) = \frac{p(x)}{p(x) + p_\theta(x)}",
    where="001 §19.4; 002, 003 GANs; 004 §5.3",
    right=lambda p, q: p / (p + q),
    wrong=lambda p, q: q / (p + q),
    errata=(
        Erratum(
            "T19",
            "a numerator with a stray exponential and the generator's density",
            r"$\frac{p}{p + p_\theta}$",
            lambda p, q: (np.exp(np.log(p) / p) + q) / (p + q),
            where="001 §19.4",
            kind="typing",
        ),
    ),
    systems=("gan",),
)
def optimal_discriminator(rng, claim):
    """The best discriminator reports the share of the data in the density at a point."""
    p, q = rng.uniform(0.1, 2.0, size=(2, 50))
    # A maximum is located by values only to the root of the rounding error.
    return equal(claim(p, q), best_discriminator(p, q), tol=1e-6)


@formula(
    "gan-jsd-value",
    latex=r"V(D^*, G) = 2\,JS(p, p_\theta) - \log 4 \ge -\log 4, \qquad V(D, G) \le V(D^*, G)",
    where="001 §19.4; 002, 003 GANs; 004 §5.3",
    right=lambda p, q: 2 * jensenshannon(p, q, axis=-1) ** 2 - np.log(4),
    wrong=lambda p, q: jensenshannon(p, q, axis=-1) ** 2 - np.log(4),
    systems=("gan",),
)
def jsd_value(rng, claim):
    """Against the best discriminator the generator minimises the Jensen-Shannon divergence.

    Any other discriminator gives less, and equal laws give minus log four.
    """
    p, q = simplex(rng, 2, 40, 6)
    others = rng.uniform(0.01, 0.99, size=(30, 40, 6))
    return all_of(
        equal(claim(p, q), game_value(p, q, best_discriminator(p, q)), tol=1e-10),
        at_most(game_value(p, q, others), claim(p, q)),
        equal(claim(p, p), -np.log(4), tol=1e-10),
    )


@formula(
    "gan-nonsaturating",
    latex=r"\Big|\frac{d}{dl}\log(1 - \sigma(l))\Big| = \sigma(l), \qquad "
    r"\Big|\frac{d}{dl}\log\sigma(l)\Big| = 1 - \sigma(l)",
    where="001 §19.4",
    right=lambda l: (1 / (1 + np.exp(-l)), 1 / (1 + np.exp(l))),
    wrong=lambda l: (1 / (1 + np.exp(l)), 1 / (1 + np.exp(-l))),
    systems=("gan",),
    functions=("corollary.generative.gan.generator_loss",),
)
def nonsaturating(rng, claim):
    """When fakes are spotted the minimax gradient vanishes with the logit, that of log D tends to one."""
    from corollary.generative.gan import generator_loss

    logits = torch.tensor(rng.uniform(-8.0, 2.0, size=20), requires_grad=True)
    both = [generator_loss(logits, loss) for loss in ("minimax", "non-saturating")]  # means of twenty
    slopes = [20 * torch.autograd.grad(loss, logits)[0].abs() for loss in both]
    saturating, other = claim(logits.detach().numpy())
    far = claim(np.array(-30.0))
    return all_of(
        equal(saturating, slopes[0], tol=1e-10),
        equal(other, slopes[1], tol=1e-10),
        equal(far, [0.0, 1.0], tol=1e-10),
    )


def alternating_step(theta, phi, eta, down, up, fresh=True):
    """Descend in theta, then ascend in phi at the new theta (or, if not fresh, at the old one)."""
    new = theta - eta * down(theta, phi)
    return new, phi + eta * up(new if fresh else theta, phi)


def extragradient_size(start, eta, steps):
    """How far the library's extragradient is from the saddle of the product of two players, as a share of the start."""
    from corollary.optim import ExtraGradient

    point = torch.tensor(start)
    players = ExtraGradient([point], lr=eta)

    def differentiate():
        point.grad = torch.stack([point[1], -point[0]])  # one descends, the other ascends

    for _ in range(steps):
        players.step(differentiate)
    return float(point.norm()) / np.hypot(*start)


@formula(
    "gan-alternating-sgd",
    latex=r"\theta^{t+1} = \theta^t - \eta\nabla_\theta\ell(\theta^t, \phi^t), \qquad "
    r"\phi^{t+1} = \phi^t + \eta\nabla_\phi\ell(\theta^{t+1}, \phi^t)",
    where="002 GANs; 004 §5.3",
    right=alternating_step,
    wrong=lambda theta, phi, eta, down, up: alternating_step(theta, phi, eta, down, up, fresh=False),
    systems=("gan", "extragradient"),
    functions=("corollary.optim.ExtraGradient",),
)
def alternating_sgd(rng, claim):
    """The players move in turn, the second answering the first; on a bilinear game they circle for ever.

    Simultaneous moves would spiral out, an extragradient step spirals in.
    """
    eta, start = 0.1, rng.normal(size=2)
    x, y = start
    for _ in range(3000):
        x, y = claim(x, y, eta, lambda a, b: b, lambda a, b: a)
    size = np.hypot(x, y) / np.hypot(*start)
    ahead = extragradient_size(start, 0.5, 40)
    # One step of a curved game, by automatic differentiation of the current state.
    a, b = (torch.tensor(float(z), dtype=torch.float64, requires_grad=True) for z in rng.normal(size=2))
    loss = lambda: torch.sin(a * b) + a**2 * b
    before = a.item(), b.item()
    for player, direction in ((a, -1), (b, 1)):
        (slope,) = torch.autograd.grad(loss(), player)
        player.data += direction * eta * slope
    down = lambda s, t: t * np.cos(s * t) + 2 * s * t
    up = lambda s, t: s * np.cos(s * t) + s**2
    return all_of(
        equal(claim(*before, eta, down, up), [a.item(), b.item()], tol=1e-10),
        at_most(size, 1.1),  # the conserved ellipse has axes within eta of each other
        at_least(size, 0.9),
        equal(ahead, (1 - 0.5**2 + 0.5**4) ** 20, tol=1e-10),  # every step multiplies by |1 - eta^2 + i eta|
    )


@formula(
    "gan-jsd-saturation",
    latex=r"p = \delta_0, \; q = \delta_\Delta, \; \Delta \ne 0: \qquad "
    r"JS(p, q) = \log 2, \qquad W_1(p, q) = |\Delta|",
    where="001 §19.4; 002, 003 GANs",
    right=lambda shift: (np.log(2), abs(shift)),
    wrong=lambda shift: (0.5 * np.log(2), abs(shift)),
    systems=("gan", "metrics"),
    functions=("corollary.metrics.jensen_shannon", "corollary.metrics.wasserstein"),
)
def jsd_saturation(rng, claim):
    """Between separate laws the Jensen-Shannon divergence is flat; the transport distance has a slope."""
    from corollary.metrics import jensen_shannon, wasserstein

    outcomes = []
    for shift in rng.choice([-1.0, 1.0], size=6) * rng.uniform(0.1, 5.0, size=6):
        flat, distance = claim(shift)
        outcomes += [
            equal(flat, jensen_shannon(*np.eye(2)), tol=1e-12),
            equal(distance, wasserstein([0.0], [shift]), tol=1e-12),
        ]
    return all_of(*outcomes)


def transport_cost(cost, p, q):
    """Least expected cost over couplings, a linear programme."""
    n, m = cost.shape
    marginals = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    return linprog(cost.ravel(), A_eq=marginals, b_eq=np.concatenate([p, q])).fun


@formula(
    "wgan-primal",
    latex=r"W(p, q) = \inf_{\gamma \in \Pi(p, q)} \mathbb{E}_{(x, y) \sim \gamma}\lVert x - y\rVert",
    where="003 Wasserstein GAN",
    right=transport_cost,
    wrong=lambda cost, p, q: p @ cost @ q,
    systems=("gan", "metrics"),
    functions=("corollary.metrics.wasserstein",),
)
def wgan_primal(rng, claim):
    """The distance of two laws is the least mean way that carries one to the other, over all couplings.

    On the line it is the area between the distribution functions; for equal samples, the best matching.
    """
    from corollary.metrics import wasserstein

    x, y, p, q = rng.normal(size=5), rng.normal(size=6), simplex(rng, 5), simplex(rng, 6)
    line = claim(np.abs(x[:, None] - y), p, q)
    cost = cdist(rng.normal(size=(5, 2)), rng.normal(size=(5, 2)))
    matched = cost[linear_sum_assignment(cost)].mean()
    left, right = rng.normal(size=(5, 2)), rng.normal(size=(7, 2))
    planned = wasserstein(left, right)  # by the library's own programme
    return all_of(
        equal(line, wasserstein_distance(x, y, p, q), tol=1e-8),
        equal(claim(cost, np.full(5, 0.2), np.full(5, 0.2)), matched, tol=1e-8),
        equal(claim(cdist(left, right), np.full(5, 1 / 5), np.full(7, 1 / 7)), planned, tol=1e-8),
    )


def dual_value(distances, p, q, K):
    """Largest difference of means of a K-Lipschitz function, a linear programme; not divided by K."""
    n = len(p)
    i, j = np.nonzero(~np.eye(n, dtype=bool))
    slopes = np.eye(n)[i] - np.eye(n)[j]
    bounds = [(0, 0)] + [(None, None)] * (n - 1)  # the level of f is free
    return -linprog(q - p, A_ub=slopes, b_ub=K * distances[i, j], bounds=bounds).fun


@formula(
    "wgan-dual",
    latex=r"W(p, q) = \frac1K \sup_{\lVert f\rVert_L \le K} \mathbb{E}_p f - \mathbb{E}_q f",
    where="003 Wasserstein GAN",
    right=lambda distances, p, q, K: dual_value(distances, p, q, K) / K,
    wrong=dual_value,
    systems=("gan", "metrics"),
)
def wgan_dual(rng, claim):
    """The same distance is the most that the mean of a function of bounded slope can differ."""
    points, p, q = rng.normal(size=(6, 2)), simplex(rng, 6), simplex(rng, 6)
    distances, K = cdist(points, points), float(rng.uniform(2.0, 4.0))
    line = rng.normal(size=6)
    return all_of(
        equal(claim(distances, p, q, K), transport_cost(distances, p, q), tol=1e-8),
        equal(claim(np.abs(line[:, None] - line), p, q, K), wasserstein_distance(line, line, p, q), tol=1e-8),
    )


def between_penalty(critic, real, fake, t):
    """The library's (|grad f| - 1)^2 at the points that divide the segment from fake to real in the ratios t."""
    from corollary.generative.gan import slope_penalty

    return slope_penalty(critic, t[:, None] * real + (1 - t)[:, None] * fake).detach()


def squared_penalty(critic, real, fake, t):
    """The same with the squared length of the gradient."""
    between = (t[:, None] * real + (1 - t)[:, None] * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(between).sum(), between)
    return (slope.square().sum(1) - 1) ** 2


def clipped_lipschitz(sizes, c):
    """Lipschitz bound of a ReLU network with these layer sizes and all weights in [-c, c]."""
    return np.prod([c * np.sqrt(a * b) for a, b in zip(sizes[:-1], sizes[1:])])


@formula(
    "wgan-constraint",
    latex=r"\mathbb{E}_{\hat x}\big[(\lVert\nabla f(\hat x)\rVert_2 - 1)^2\big], \quad "
    r"\hat x = tx + (1 - t)\tilde x, \; t \sim U[0, 1]; \qquad "
    r"|w| \le c \;\Rightarrow\; \lVert f\rVert_L \le \prod_l c\sqrt{n_{l-1}n_l}",
    where="003 Wasserstein GAN",
    right=lambda critic, real, fake, t, sizes, c: (
        between_penalty(critic, real, fake, t),
        clipped_lipschitz(sizes, c),
    ),
    wrong=lambda critic, real, fake, t, sizes, c: (
        squared_penalty(critic, real, fake, t),
        clipped_lipschitz(sizes, c),
    ),
    systems=("gan",),
    functions=("corollary.generative.gan.slope_penalty",),
)
def wgan_constraint(rng, claim):
    """Slopes are bounded by clipping weights, or by a penalty on gradients off length one between samples.

    A linear critic of unit slope pays nothing; equal weights at the clipping bound attain its slope.
    """
    real, fake, u = torch.tensor(rng.normal(size=(3, 3)) + [[3.0], [3.0], [0.0]])  # slopes far from zero
    u = u / torch.linalg.norm(u)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    t, weights = torch.tensor((nodes + 1) / 2), weights / 2
    sizes, c = (3, 4, 5, 1), float(rng.uniform(0.1, 0.5))
    bowl = lambda x: 0.7 * x.square().sum(1) + x @ u
    penalty, bound = claim(bowl, real, fake, t, sizes, c)

    def integrand(s):
        point = s * real.numpy() + (1 - s) * fake.numpy()
        return (np.linalg.norm(1.4 * point + u.numpy()) - 1) ** 2

    free, _ = claim(lambda x: x @ u, real, fake, t, sizes, c)

    def slope(layers):  # along the diagonal, from the origin
        x = np.ones(3) / np.sqrt(3)
        for W in layers[:-1]:
            x = np.maximum(W @ x, 0)
        return abs((layers[-1] @ x)[0])

    shapes = list(zip(sizes[1:], sizes[:-1]))
    slopes = [slope([rng.uniform(-c, c, size=shape) for shape in shapes]) for _ in range(50)]
    return all_of(
        equal(weights @ penalty.numpy(), quad(integrand, 0, 1)[0], tol=1e-6),
        equal(free, 0.0, tol=1e-12),
        at_most(slopes, bound),
        equal(slope([np.full(shape, c) for shape in shapes]), bound, tol=1e-10),
    )
