"""Regularisation: shrinkage, constraints, early stopping, ensembles, dropout, soft targets and noise."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from scipy import optimize
from scipy.special import softmax

from corollary.formulas._library_tools import built, tensor
from corollary.formulas._optimisation_tools import library_path
from corollary.formulas.record import Erratum, all_of, at_most, equal, formula
from corollary.formulas.tools import orthogonal, simplex, spd


@formula(
    "reg-weight-decay",
    latex=r"\mathcal R + \tfrac12\sum_l\mu^l\lVert\theta^l\rVert_F^2: \qquad "
    r"\theta^l \leftarrow (1 - \eta\mu^l)\,\theta^l - \eta\,\nabla_{\theta^l}\mathcal R",
    where="000 §6.6; 002, 003 Regularisation",
    right=lambda theta, g, eta, mu: (1 - eta * mu) * theta - eta * g,
    wrong=lambda theta, g, eta, mu: (1 - 2 * eta * mu) * theta - eta * g,
    systems=("weight-decay",),
    functions=("corollary.optim.create",),
)
def weight_decay(rng, claim):
    """Descent on a risk with half the squared norm added shrinks the weights before every plain step."""
    layers = [rng.normal(size=(4, 3)), rng.normal(size=(2, 4))]
    x, y, eta, decay = rng.normal(size=3), rng.normal(size=2), 0.1, (0.3, 0.7)
    weights = [torch.tensor(W, requires_grad=True) for W in layers]
    risk = ((weights[1] @ torch.tanh(weights[0] @ torch.tensor(x)) - torch.tensor(y)) ** 2).sum()
    penalty = sum(mu / 2 * (W**2).sum() for mu, W in zip(decay, weights))
    plain = torch.autograd.grad(risk, weights, retain_graph=True)
    penalised = torch.autograd.grad(risk + penalty, weights)
    return all_of(
        *(
            equal(claim(W, g.numpy(), eta, mu), truth, tol=1e-12)
            for W, g, full, mu in zip(layers, plain, penalised, decay)
            for truth in (
                W - eta * full.numpy(),
                library_path("sgd", lambda _, g=g: g.numpy(), W, 1, lr=eta, weight_decay=mu)[0],
            )
        )
    )


def _shrink(H, best, mu):
    values, Q = np.linalg.eigh(H)
    return Q @ (values / (values + mu) * (Q.T @ best))


@formula(
    "reg-spectral-shrinkage",
    latex=r"\theta = (H + \mu I)^{-1}H\theta^*"
    r" = Q\,\mathrm{diag}\Big(\frac{\lambda_i}{\lambda_i + \mu}\Big)Q^\top\theta^*",
    where="002, 003 Regularisation",
    right=_shrink,
    wrong=lambda H, best, mu: best - _shrink(H, best, mu),
    systems=("weight-decay", "ridge"),
    functions=("corollary.linear.Ridge",),
)
def spectral_shrinkage(rng, claim):
    """On a quadratic, weight decay shrinks each eigendirection by its curvature's share of the total."""
    from corollary.linear import Ridge

    H, best, mu = spd(rng, 4, 0.2, 3.0), rng.normal(size=4), rng.uniform(0.2, 1)
    root = np.linalg.cholesky(H).T  # |root (theta - best)|^2 + mu |theta|^2 as one least-squares problem
    stacked = np.vstack([root, np.sqrt(mu) * np.eye(4)])
    solution = np.linalg.lstsq(stacked, np.concatenate([root @ best, np.zeros(4)]), rcond=None)[0]
    ridge = Ridge(mu, fit_intercept=False).fit(root, root @ best).coef_
    return all_of(equal(claim(H, best, mu), solution, tol=1e-10), equal(claim(H, best, mu), ridge, tol=1e-9))


def _project(v, radius):
    from corollary.linear.regression import project_ball

    return project_ball(v, radius)


@formula(
    "reg-projected-gd",
    latex=r"\theta \leftarrow \Pi_r[\theta - \eta\nabla\mathcal R(\theta)], \qquad "
    r"\Pi_r(v) = \min\Big\{1, \frac{r}{\lVert v\rVert}\Big\}\,v",
    where="002, 003 Regularisation",
    right=lambda v, r: _project(v, r),
    wrong=lambda v, r: r * v / np.linalg.norm(v),
    systems=("norm-ball", "projected", "ridge"),
    functions=("corollary.linear.regression.project_ball",),
)
def projected_gd(rng, claim):
    """Projecting every step back onto a ball solves the problem constrained to it."""
    H = spd(rng, 3, 0.5, 2.0)
    outcomes, r = [], rng.uniform(1.5, 2)
    for size in (0.4 * r, 3 * r):  # the free minimiser inside the ball, then outside
        best = rng.normal(size=3)
        best *= size / np.linalg.norm(best)
        theta = rng.normal(size=3)
        for _ in range(300):
            theta = claim(theta - 0.5 * H @ (theta - best), r)

        def reach(mu, best=best):
            return np.linalg.norm(np.linalg.solve(H + mu * np.eye(3), H @ best)) - r

        mu = optimize.brentq(reach, 0, 100) if reach(0) > 0 else 0.0  # the multiplier of the constraint
        outcomes.append(equal(theta, np.linalg.solve(H + mu * np.eye(3), H @ best), tol=1e-8))
    points = rng.normal(size=(200, 3))
    points *= r / np.maximum(1, np.linalg.norm(points, axis=1, keepdims=True))
    for v in (0.3 * points[0], 4 * points[1]):  # no point of the ball is nearer
        nearest = np.linalg.norm(claim(v, r) - v)
        outcomes.append(at_most(nearest, np.linalg.norm(points - v, axis=1)))
    return all_of(*outcomes)


def _stopped(Q, values, start, best, eta, t):
    decay = (1 - eta * values) ** t
    return Q @ (decay * (Q.T @ start)) + Q @ ((1 - decay) * (Q.T @ best))


def _stopped_printed(Q, values, start, best, eta, t):
    decay = (1 - eta * values) ** t
    return decay * (Q.T @ start) + Q @ ((1 - decay) * (Q.T @ best))


@formula(
    "reg-early-stopping-dynamics",
    latex=r"\theta_t = Q(I - \eta\Lambda)^t Q^\top\theta_0 + Q[I - (I - \eta\Lambda)^t]Q^\top\theta^*",
    where="003 Early stopping",
    right=_stopped,
    errata=(
        Erratum(
            "E69",
            printed=r"$\theta_t = (I - \eta\Lambda)^t Q^\top\theta_0 + \dots$",
            correction=r"$\theta_t = Q(I - \eta\Lambda)^t Q^\top\theta_0 + \dots$",
            form=_stopped_printed,
            where="003 Early stopping",
            kind="dimensions",
        ),
    ),
    systems=("early-stopping",),
    functions=("corollary.optim.create",),
)
def early_stopping_dynamics(rng, claim):
    """On a quadratic, each eigendirection forgets the start and nears the optimum at its own rate."""
    Q, values, eta, t = orthogonal(rng, 4), rng.uniform(0.2, 2, size=4), 0.3, 7
    start, best = 2 * rng.normal(size=4), rng.normal(size=4)
    stopped = library_path("gd", lambda theta: (Q * values) @ Q.T @ (theta - best), start, t, lr=eta)[-1]
    return equal(claim(Q, values, start, best, eta, t), stopped, tol=1e-12)


@formula(
    "reg-early-stopping-equivalence",
    latex=r"(I - \eta\Lambda)^t \approx \mu(\Lambda + \mu I)^{-1}"
    r"\ \Rightarrow\ t \approx \frac{1}{\eta\mu} \qquad (\eta\lambda \ll 1,\ \lambda \ll \mu)",
    where="002, 003 Early stopping",
    right=lambda eta, mu: (1 / (eta * mu), lambda curvature, t: curvature / (curvature + mu)),
    wrong=lambda eta, mu: (1 / (2 * eta * mu), lambda curvature, t: curvature / (curvature + mu)),
    errata=(
        Erratum(
            "E109",
            printed=r"weight decay keeps $\mathrm{diag}(\frac{\lambda_i}{\lambda_i + \mu})^t$",
            correction=r"$\frac{\lambda_i}{\lambda_i + \mu}$, against $1 - (1 - \eta\lambda_i)^t$ for early stopping",
            form=lambda eta, mu: (1 / (eta * mu), lambda curvature, t: (curvature / (curvature + mu)) ** t),
            where="003 Early stopping",
            kind="formula",
        ),
    ),
    systems=("early-stopping", "weight-decay"),
)
def early_stopping_equivalence(rng, claim):
    """Stopping descent after 1/(eta mu) steps shrinks like weight decay mu, where curvatures are small.

    The claim is that time, and the share of the solution that weight decay keeps along a curvature.
    """
    mu = rng.uniform(0.5, 2)
    eta = 0.002 / mu
    time, share_kept = claim(eta, mu)
    t = round(time)
    outcomes = []
    for share, tol in ((0.1, 0.055), (0.01, 0.006)):  # the filters part by half the share
        curvature = share * mu
        kept = 1.0
        for _ in range(t):
            kept -= eta * curvature * kept
        # the minimum of the loss with decay, where the loss alone has its minimum at one
        decayed = optimize.minimize_scalar(lambda w, c=curvature: c * (w - 1) ** 2 + mu * w**2).x
        outcomes += [
            equal(share_kept(curvature, t), decayed, tol=1e-6),
            equal((1 - kept) / decayed, 1.0, tol=tol),
        ]
    return all_of(*outcomes)


@formula(
    "reg-bagging",
    latex=r"p(y \mid x) = \frac1K\sum_k p(y \mid x; \theta^k); \qquad "
    r"\text{share of the data in a bootstrap sample: } 1 - \Big(1 - \frac1n\Big)^n \to 1 - \frac1e",
    where="002 Regularisation",
    right=lambda n: 1 - (1 - 1 / n) ** n,
    wrong=lambda n: 2 / 3,
    systems=("bagging",),
    functions=("corollary.regularisation.bagging.draw",),
)
def bagging(rng, claim):
    """A bootstrap sample holds about 63 % of the data; averaging the fits cannot raise the log-loss."""
    from corollary.regularisation.bagging import draw

    exact = [np.mean([len(set(bag)) / n for bag in product(range(n), repeat=n)]) for n in (2, 3, 4)]
    seeds = rng.integers(2**31, size=40)
    how = {"rows": 2000, "features": 0, "bootstrap": True, "bootstrap_features": False}
    distinct = np.array([len(np.unique(draw(int(seed), (2000, 0), **how).rows)) for seed in seeds])
    members = simplex(rng, 10, 30, 4)[..., 0]  # ten members' probabilities of the true class
    return all_of(
        equal([claim(n) for n in (2, 3, 4)], exact, tol=1e-12),
        equal(claim(2000), distinct.mean() / 2000, tol=6e-3),  # standard error 1.1e-3
        equal(claim(10**6), 1 - np.exp(-1), tol=1e-6),
        at_most(-np.log(members.mean(0)), -np.log(members).mean(0)),
    )


@formula(
    "reg-dropout",
    latex=r"p(y \mid x) = \sum_Z p(Z)\,p(y \mid x, Z) \approx p(y \mid x; \tilde\theta),"
    r"\qquad \tilde\theta_{ij}^l = \pi_j^{l-1}\,\theta_{ij}^l",
    where="002, 003 Dropout",
    right=lambda theta, keep: theta * keep,
    wrong=lambda theta, keep: theta / keep,
    systems=("dropout",),
    functions=("corollary.engine.dropout.monte_carlo_dropout",),
)
def dropout(rng, claim):
    """Scaling each weight by its input's keep probability matches the mean net input over all masks.

    For a softmax of linear scores this is the renormalised geometric mean of the ensemble.
    """
    from corollary.engine.dropout import monte_carlo_dropout

    theta, x, keep = rng.normal(size=(3, 5)), rng.normal(size=5), rng.uniform(0.3, 0.9, size=5)
    masks = np.array(list(product([0.0, 1.0], repeat=5)))
    weights = np.prod(np.where(masks == 1, keep, 1 - keep), axis=1)
    inputs = (masks * x) @ theta.T
    geometric = np.exp(weights @ np.log(softmax(inputs, axis=1)))
    rescaled = claim(theta, keep) @ x
    share = float(rng.uniform(0.6, 0.8))  # the library's masks keep all units alike, and divide by the share
    line = built(lambda: torch.nn.Linear(5, 3, bias=False), weight=theta)
    net, seed = torch.nn.Sequential(torch.nn.Dropout(1 - share), line), int(rng.integers(2**31))
    drawn = monte_carlo_dropout(net, tensor(np.tile(x, (20_000, 1))), n_samples=5, random_state=seed)
    return all_of(
        equal(claim(theta, np.full(5, share)) @ x, share * drawn.mean.mean(0), tol=0.04),  # error about 5e-3
        equal(rescaled, weights @ inputs, tol=1e-12),
        equal(softmax(rescaled), geometric / geometric.sum(), tol=1e-12),
    )


@formula(
    "reg-distillation",
    latex=r"\ell = -\sum_i p_T(i)\log q_T(i), \quad q_T \propto e^{z/T}: \qquad "
    r"\nabla_z\ell = \frac1T(q_T - p_T)",
    where="002, 003 Distillation",
    right=lambda student, teacher, T: (softmax(student / T) - softmax(teacher / T)) / T,
    wrong=lambda student, teacher, T: softmax(student / T) - softmax(teacher / T),
    systems=("distillation",),
    functions=(
        "corollary.regularisation.distillation.Tempered",
        "corollary.regularisation.distillation.tempered",
    ),
)
def distillation(rng, claim):
    """The student's gradient is the gap of the softmaxes at temperature T, over T.

    At a high temperature that is the gap of the centred logits, over T squared times their number.
    """
    from corollary.losses import CrossEntropy
    from corollary.regularisation.distillation import Tempered, tempered

    student, teacher, T = rng.normal(size=5), rng.normal(size=5), rng.uniform(2, 5)
    z = torch.tensor(student[None], requires_grad=True)
    soft = torch.tensor(tempered(softmax(teacher)[None], T))
    both = torch.cat([soft, torch.zeros_like(soft)], 1)  # tempered targets, and labels, which count nothing
    loss = Tempered(CrossEntropy(5), T, hard_weight=0.0)(z, both) / T**2
    truth = torch.autograd.grad(loss.sum(), z)[0][0]
    hot, gap = 1e5, (student - student.mean()) - (teacher - teacher.mean())
    return all_of(
        equal(claim(student, teacher, T), truth, tol=1e-12),
        equal(hot**2 * claim(student, teacher, hot), gap / 5, tol=1e-4),
    )


def _info_nce(scores):
    """The bound at every sample of the batches (..., n, n); the true one of its candidates lies on the diagonal."""
    from corollary.regularisation.contrastive import info_nce

    return np.log(scores.shape[-1]) - info_nce(tensor(np.log(scores))).numpy()


def _info_nce_negatives(scores):
    true = np.diagonal(scores, axis1=-2, axis2=-1)
    return np.log(scores.shape[-1]) + np.log(true / (scores.sum(-1) - true))


@formula(
    "ssl-contrastive-predictive-coding",
    latex=r"\ell = -\mathbb E\log\frac{f(x^+, c)}{\sum_{j=1}^N f(x_j, c)}, \quad "
    r"f \propto \frac{p(x \mid c)}{p(x)}: \qquad \log N - \ell \le I(x; c)",
    where="003 Self-supervised learning",
    right=_info_nce,
    wrong=_info_nce_negatives,
    systems=("self-supervised",),
    functions=("corollary.regularisation.contrastive.info_nce",),
)
def contrastive_predictive_coding(rng, claim):
    """Telling the true future from N - 1 others bounds mutual information from below, tightly for large N."""
    joint = 0.6 * np.eye(3) / 3 + 0.4 * simplex(rng, 9).reshape(3, 3)  # rows x, columns c
    px, pc = joint.sum(1), joint.sum(0)
    ratio = joint / np.outer(px, pc)
    information = (joint * np.log(ratio)).sum()
    cases = list(product(range(3), repeat=3))  # c, the positive and one negative: exact for N = 2
    chance = [joint[x, c] * px[other] for c, x, other in cases]
    pairs = np.array([[[ratio[x, c], ratio[other, c]], [1.0, 1.0]] for c, x, other in cases])
    two = np.array(chance) @ claim(pairs)[:, 0]
    x, c = np.divmod(rng.choice(9, p=joint.ravel(), size=(8, 200)), 3)
    scores = ratio[x[:, None, :], c[:, :, None]]  # the others of a batch are the wrong candidates
    # the sampled log-ratio is a control variate: what is left is a bias of order 1/n and noise below 5e-3
    control = np.log(ratio[x, c]).mean() - information
    return all_of(
        at_most(two, information),
        equal(claim(scores).mean() - control, information, tol=0.02),
    )


@formula(
    "reg-augmentation",
    latex=r"(x, y) \mapsto (\tau(x), y); \qquad "
    r"\tau(x) = x + \epsilon,\ \epsilon \sim \mathcal N(0, \sigma^2 I) \text{ in least squares}"
    r" = \text{ridge with } \lambda = n\sigma^2",
    where="002, 003 Data augmentation",
    right=lambda n, sigma: n * sigma**2,
    wrong=lambda n, sigma: sigma**2,
    systems=("augmentation", "noise"),
    functions=("corollary.data.augment.noise", "corollary.linear.Ridge"),
)
def augmentation(rng, claim):
    """Copies of the data with noisy inputs act as a penalty: for least squares, as ridge regression."""
    from corollary.data.augment import noise as noisy
    from corollary.linear import Ridge

    n, d, sigma = 12, 3, rng.uniform(0.3, 0.8)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    # noise with exactly the mean and covariance of the Gaussian; least squares sees no more than those
    noise = sigma * np.sqrt(d) * np.vstack([np.eye(d), -np.eye(d)])
    virtual = (X[:, None] + noise).reshape(-1, d)
    fitted = np.linalg.lstsq(virtual, np.repeat(y, 2 * d), rcond=None)[0]
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    copies = np.repeat(X[:, None], 4000, axis=1)  # twelve pictures of three columns, to the library
    many = noisy(copies, sigma, generator=generator).reshape(-1, d)
    sampled = np.linalg.solve(many.T @ many, many.T @ np.repeat(y, 4000))
    ridge = Ridge(claim(n, sigma), fit_intercept=False).fit(X, y).coef_
    return all_of(equal(ridge, fitted, tol=1e-10), equal(ridge, sampled, tol=0.02))
