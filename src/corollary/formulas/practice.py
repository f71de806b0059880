"""Training in practice: what the notes say about it in words, as demonstrations that can fail."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from corollary.formulas import _optimisation_tools as tools
from corollary.formulas._library_tools import fitted
from corollary.formulas.record import all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gauss_hermite, orthogonal, simplex


@formula(
    "opt-zigzag",
    latex=r"f(\theta_{t+1}) = \Bigl(\frac{\kappa - 1}{\kappa + 1}\Bigr)^2 f(\theta_t), \qquad "
    r"\nabla f(\theta_{t+1}) \perp \nabla f(\theta_t)",
    where="001 §2",
    right=lambda kappa: ((kappa - 1) / (kappa + 1)) ** 2,
    wrong=lambda kappa: (kappa - 1) / (kappa + 1),
    systems=("gd", "rates"),
)
def zigzag(rng, claim):
    """Steepest descent zigzags in a long valley: each step turns by a right angle and gains little.

    The claim is the share of the value that is left after a step with exact line search, from the worst start.
    """
    kappa = rng.uniform(5, 50)
    A, x = np.diag([1.0, kappa]), np.array([kappa, 1.0])
    shares, turns = [], []
    for _ in range(6):
        g, before = A @ x, x @ A @ x
        search = minimize_scalar(
            lambda step, x=x, g=g: (x - step * g) @ A @ (x - step * g), options={"xtol": 1e-12}
        )
        x = x - search.x * g
        shares.append(x @ A @ x / before)
        turns.append(g @ A @ x / np.linalg.norm(g) / np.linalg.norm(A @ x))
    return all_of(equal(shares, claim(kappa), tol=1e-5), equal(turns, 0.0, tol=1e-4))  # the search knows 1e-8


ROTATED = ("gd", "heavy-ball", "nesterov", "adagrad", "rmsprop", "adam", "amsgrad")


@formula(
    "opt-basis-dependence",
    latex=r"f_Q(x) = f(Q^\top x): \qquad x_t(f_Q) = Q\,x_t(f) \ \text{ for gradient descent and momentum, "
    r"not for coordinate-wise scalings}",
    where="002 Adaptivity",
    right=lambda name: name in ("gd", "heavy-ball", "nesterov"),
    wrong=lambda name: True,
    systems=("adagrad", "adam", "rmsprop"),
    functions=("corollary.optim.create",),
)
def basis_dependence(rng, claim):
    """AdaGrad, RMSprop and Adam depend on the basis: they scale coordinates, which a rotation mixes."""
    A, Q, x = np.diag([0.2, 1.0, 5.0]), orthogonal(rng, 3), rng.normal(size=3)
    verdicts = []
    for name in ROTATED:
        options = {"lr": 0.05} | ({"momentum": 0.8} if name in ("heavy-ball", "nesterov") else {})
        plain = tools.library_path(name, lambda z: A @ z, x, 15, **options)
        turned = tools.library_path(name, lambda z: Q @ A @ Q.T @ z, Q @ x, 15, **options)
        verdicts.append(np.abs(turned - plain @ Q.T).max() < 1e-9)
    return equal([claim(name) for name in ROTATED], verdicts, tol=0.1)


@formula(
    "norm-batch-smoothing",
    latex=r"\hat y = \gamma\,\frac{y - \mu}{\sigma}: \qquad \lVert\nabla_y \ell\rVert^2 = \frac{\gamma^2}{\sigma^2}\Bigl("
    r"\lVert g\rVert^2 - \tfrac1m (\mathbf 1^\top g)^2 - \tfrac1m (g^\top z)^2\Bigr), \quad "
    r"g = \nabla_{\hat y}\ell,\ z = \tfrac{y - \mu}{\sigma}",
    where="000 §13",
    right=lambda g, z, gamma, sigma: (
        (gamma / sigma) ** 2 * (g @ g - g.sum() ** 2 / len(g) - (g @ z) ** 2 / len(g))
    ),
    wrong=lambda g, z, gamma, sigma: (gamma / sigma) ** 2 * (g @ g),
    systems=("normalisation",),
)
def batch_smoothing(rng, claim):
    """Batch normalisation smooths the loss: the gradient loses its mean and its part along the activations.

    The claim is the squared length of what is left; automatic differentiation through the normalisation gives the truth.
    """
    y = torch.tensor(2 + 3 * rng.normal(size=8), requires_grad=True)
    weights, gamma = torch.tensor(rng.normal(size=8)), rng.uniform(0.5, 2)
    sigma = y.std(correction=0)
    normalised = gamma * (y - y.mean()) / sigma
    normalised.retain_grad()
    (torch.sin(normalised) * weights).sum().backward()
    z = (normalised / gamma).detach().numpy()
    left = claim(normalised.grad.numpy(), z, gamma, float(sigma.detach()))
    plain = gamma**2 / float(sigma.detach()) ** 2 * (normalised.grad**2).sum()
    return all_of(equal(left, (y.grad**2).sum(), tol=1e-10), at_most(left, plain))


@formula(
    "opt-continuation",
    latex=r"f_\sigma(x) = \mathbb E_{\epsilon \sim \mathcal N(0, 1)} f(x + \sigma\epsilon): \qquad "
    r"f = \tfrac a2 x^2 + \cos\omega x \ \Rightarrow\ f_\sigma = \tfrac a2(x^2 + \sigma^2) + e^{-\omega^2\sigma^2/2}\cos\omega x",
    where="000 §13",
    right=lambda a, omega, x, sigma: (
        a / 2 * (x**2 + sigma**2) + np.exp(-((omega * sigma) ** 2) / 2) * np.cos(omega * x)
    ),
    wrong=lambda a, omega, x, sigma: a / 2 * x**2 + np.exp(-omega * sigma) * np.cos(omega * x),
    systems=("curriculum",),
)
def continuation(rng, claim):
    """Continuation starts with a blurred loss, which has one minimum, and follows it as the blur is taken away.

    Blur damps the waves. Followed from far out, the minimum ends at a global one; plain descent stops in the first trough.
    """
    a, omega = 0.1, rng.uniform(2.5, 3.5)
    x, sigma = rng.normal(), rng.uniform(0.2, 0.6)
    nodes, weights = gauss_hermite(x, sigma**2, 40)
    blurred = weights @ (a / 2 * nodes[:, 0] ** 2 + np.cos(omega * nodes[:, 0]))

    def follow(blurs):
        at = 8.0
        for blur in blurs:
            for _ in range(200):  # descend on the claim by central differences
                slope = (claim(a, omega, at + 1e-5, blur) - claim(a, omega, at - 1e-5, blur)) / 2e-5
                at -= 0.05 * slope
        return claim(a, omega, at, 0.0)

    grid = np.linspace(-10, 10, 20001)
    lowest = (a / 2 * grid**2 + np.cos(omega * grid)).min()
    return all_of(
        equal(claim(a, omega, x, sigma), blurred, tol=1e-10),
        equal(follow(np.append(np.linspace(2, 0.1, 15), 0.0)), lowest, tol=1e-3),
        at_least(follow([0.0]), lowest + 0.5),
    )


@formula(
    "opt-nonuniform-sampling",
    latex=r"i \sim p: \qquad \mathbb E\Bigl[\frac{g_i}{n p_i}\Bigr] = \frac1n\sum_i g_i, \qquad "
    r"\text{least variance for } p_i \propto \lVert g_i\rVert",
    where="000 §13",
    right=lambda gradients, p: gradients / (len(p) * p[:, None]),
    wrong=lambda gradients, p: gradients,
    systems=("curriculum", "sgd"),
)
def nonuniform_sampling(rng, claim):
    """Samples may be drawn as often as they are useful if each gradient is divided by its chance.

    The estimate stays unbiased, and its variance is least when long gradients are drawn more often.
    """
    g = rng.normal(size=(6, 3)) * rng.exponential(size=(6, 1))
    lengths = np.linalg.norm(g, axis=1)

    def variance(p):
        estimates = claim(g, p)
        return p @ ((estimates - g.mean(0)) ** 2).sum(1)

    laws = [np.full(6, 1 / 6), *simplex(rng, 30, 6)]
    biases = [p @ claim(g, p) - g.mean(0) for p in laws]
    best = lengths / lengths.sum()
    floor = lengths.mean() ** 2 - g.mean(0) @ g.mean(0)
    return all_of(
        equal(biases, 0.0, tol=1e-12),
        equal(variance(best), floor, tol=1e-10),
        at_least([variance(p) for p in laws], floor, tol=1e-10),
    )


def fine_tuned(rng, X, y):
    """Weights and intercept of the library's linear network, trained on other data and then on these."""
    from corollary.engine.training import Training
    from corollary.networks import MLPRegressor

    plan, other = Training(epochs=2, optimizer="lbfgs"), rng.normal(size=(20, X.shape[1] + 1))
    before = fitted(MLPRegressor((), training=plan, random_state=0), other[:, 1:], other[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = before.fine_tune(X, y, training=Training(epochs=25, optimizer="lbfgs"))
    return [np.append(model.coefs_[0], model.intercepts_[0]) for model in (before, after)]


@formula(
    "transfer-nearest-solution",
    latex=r"\theta_\infty = \theta_0 + X^+(y - X\theta_0): \quad \text{of all perfect fits the one nearest to the start}",
    where="000 §13; 002 Regularization",
    right=lambda X, y, start: start + np.linalg.pinv(X) @ (y - X @ start),
    wrong=lambda X, y, start: np.linalg.pinv(X) @ y,
    systems=("transfer",),
    functions=("corollary.tuning.Tunable",),
)
def nearest_solution(rng, claim):
    """Initialisation matters where data do not decide: descent from pre-trained weights keeps what they knew."""
    Z, y = rng.normal(size=(3, 5)), rng.normal(size=3)
    # as the library's regressors standardise
    X, y = (
        np.column_stack([Z, np.ones(3)]),
        (y - y.mean()) / y.std(),
    )
    start, theta = fine_tuned(rng, Z, y)
    free = np.eye(6) - np.linalg.pinv(X) @ X
    others = claim(X, y, start) + rng.normal(size=(50, 6)) @ free
    return all_of(
        equal(X @ claim(X, y, start), y, tol=1e-10),
        equal(theta, claim(X, y, start), tol=1e-3),  # after 25 steps
        at_most(np.linalg.norm(claim(X, y, start) - start), np.linalg.norm(others - start, axis=1)),
    )


def _reduced_rank(X, Y, k):
    fit = np.linalg.lstsq(X, Y)[0]
    V = np.linalg.svd(X @ fit)[2][:k].T
    return fit @ V @ V.T


@formula(
    "multitask-shared-representation",
    latex=r"\min_{\mathrm{rank}\,W \le k}\lVert Y - XW\rVert_F^2: \qquad W = \hat W V_k V_k^\top, \quad "
    r"X\hat W = U\Sigma V^\top",
    where="002 Regularization",
    right=_reduced_rank,
    wrong=lambda X, Y, k: np.linalg.lstsq(X, Y)[0],
    systems=("transfer",),
)
def shared_representation(rng, claim):
    """Tasks that share a representation are learned better together: fewer parameters are left to estimate.

    Linear tasks with k common features are a regression of rank k, the least squares projected on the leading
    directions of the fit.
    """
    n, d, tasks, k = 30, 10, 12, 2
    truth = rng.normal(size=(d, k)) @ rng.normal(size=(k, tasks))
    X = rng.normal(size=(n, d))
    Y = X @ truth + rng.normal(size=(n, tasks))
    joint, apart = claim(X, Y, k), np.linalg.lstsq(X, Y)[0]
    loss = ((Y - X @ joint) ** 2).sum()
    inner = np.linalg.svd(X @ apart, compute_uv=False)
    ratio = ((joint - truth) ** 2).sum() / ((apart - truth) ** 2).sum()
    # (10 + 12 - 2) 2 of 120 parameters, a third, with room for the estimate of the subspace
    return all_of(
        equal(loss, ((Y - X @ apart) ** 2).sum() + (inner[k:] ** 2).sum(), tol=1e-8),
        equal(np.linalg.svd(joint, compute_uv=False)[k:], 0.0, tol=1e-9),
        at_most(ratio, 0.75),
    )


@formula(
    "semisupervised-likelihood",
    latex=r"\ell(\theta) = \sum_{i \in L}\log p(x_i, y_i) + \sum_{i \in U}\log\sum_y p(x_i, y)",
    where="002 Regularization",
    right=lambda labelled, y, unlabelled: (
        labelled[np.arange(len(y)), y].sum() + logsumexp(unlabelled, axis=1).sum()
    ),
    wrong=lambda labelled, y, unlabelled: labelled[np.arange(len(y)), y].sum() + unlabelled.max(axis=1).sum(),
    systems=("em-mixture", "transfer"),
)
def semisupervised_likelihood(rng, claim):
    """A generative model learns from unlabelled data too: their likelihood sums over the labels they may have.

    The arguments are tables of log-probabilities, samples by labels; all labellings of the unlabelled ones are enumerated.
    """
    labelled, unlabelled = np.log(rng.uniform(0.1, 1, size=(4, 3))), np.log(rng.uniform(0.1, 1, size=(5, 3)))
    y = rng.integers(3, size=4)
    total = 0.0
    for guess in product(range(3), repeat=5):
        both = [*(labelled[i, y[i]] for i in range(4)), *(unlabelled[i, guess[i]] for i in range(5))]
        total += np.exp(sum(both))
    return equal(claim(labelled, y, unlabelled), np.log(total), tol=1e-10)


@formula(
    "gan-mode-collapse",
    latex=r"\arg\max_q \sum_x q(x) D(x) = \delta_{x^*}, \quad x^* = \arg\max_x D(x)",
    where="002 GAN",
    right=lambda D: (np.arange(len(D)) == D.argmax()).astype(float),
    wrong=lambda D: np.exp(D) / np.exp(D).sum(),
    systems=("gan",),
)
def mode_collapse(rng, claim):
    """A generator trained alone against a fixed discriminator collapses onto the point it likes best.

    And where it does, the discriminator's answer moves the point: alternating best responses never settle.
    """
    D = rng.uniform(0.1, 0.9, size=6)
    q = claim(D)
    rivals = simplex(rng, 200, 6)
    entropy = -(q[q > 0] * np.log(q[q > 0])).sum()
    p, visited = simplex(rng, 6), []
    for _ in range(12):  # the optimal discriminator, then the generator's answer to it
        visited.append(int(claim(p / (p + q)).argmax()))
        q = claim(p / (p + q))
    changes = sum(a != b for a, b in zip(visited[:-1], visited[1:]))
    return all_of(
        at_least(claim(D) @ D, (rivals @ D).max()),
        equal(entropy, 0.0, tol=1e-12),
        at_least(changes, 11),
    )


@formula(
    "gan-vanishing-generator-gradient",
    latex=r"\Bigl\lvert\frac{\partial}{\partial s}\log(1 - \sigma(s))\Bigr\rvert = \sigma(s) \to 0, \qquad "
    r"\Bigl\lvert\frac{\partial}{\partial s}\log\sigma(s)\Bigr\rvert = 1 - \sigma(s) \to 1 \qquad (s \to -\infty)",
    where="002 GAN",
    right=lambda s: (1 / (1 + np.exp(-s)), 1 / (1 + np.exp(s))),
    wrong=lambda s: (1 / (1 + np.exp(s)), 1 / (1 + np.exp(-s))),
    systems=("gan",),
)
def vanishing_generator_gradient(rng, claim):
    """If the discriminator is sure that samples are false, the minimax loss teaches the generator nothing.

    The claim is how steep that loss and the non-saturating one are in the discriminator's logit.
    """
    s = torch.tensor(np.append(rng.normal(size=5), -30.0), requires_grad=True)
    (minimax,) = torch.autograd.grad(torch.nn.functional.softplus(s).neg().sum(), s)
    (other,) = torch.autograd.grad(torch.nn.functional.logsigmoid(s).sum(), s)
    saturating, lively = claim(s.detach().numpy())
    return all_of(
        equal(saturating, minimax.abs(), tol=1e-12),
        equal(lively, other.abs(), tol=1e-12),
        at_most(saturating[-1], 1e-12),
        at_least(lively[-1], 1 - 1e-12),
    )


@formula(
    "res-no-more-power",
    latex=r"x + W_2 (W_1 x)_+ = \begin{pmatrix} I & -I & W_2 \end{pmatrix}"
    r"\Bigl(\begin{pmatrix} I \\ -I \\ W_1 \end{pmatrix} x\Bigr)_+",
    where="002 Residual layers",
    right=lambda W1, W2: (
        np.vstack([np.eye(W1.shape[1]), -np.eye(W1.shape[1]), W1]),
        np.hstack([np.eye(len(W2)), -np.eye(len(W2)), W2]),
    ),
    wrong=lambda W1, W2: (np.vstack([np.eye(W1.shape[1]), W1]), np.hstack([np.eye(len(W2)), W2])),
    systems=("shortcuts", "resnet"),
)
def no_more_power(rng, claim):
    """Residual connections add no representational power: a plain layer, two units wider a coordinate, does the same.

    They help to train: at zero weights the residual block is the identity, the plain one nothing.
    """
    W1, W2, X = rng.normal(size=(5, 3)), rng.normal(size=(3, 5)), rng.normal(size=(40, 3))
    first, second = claim(W1, W2)
    plain = np.maximum(0, X @ first.T) @ second.T
    return equal(plain, X + np.maximum(0, X @ W1.T) @ W2.T, tol=1e-12)
