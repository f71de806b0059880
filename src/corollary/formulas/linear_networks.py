"""Linear units and networks, and the regressions they solve: losses, gradients, closed forms, flows.

Gradients are compared with finite differences, closed forms with other ways to the same minimum.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import torch
from scipy.special import expit, log_softmax, softmax
from scipy.stats import multivariate_normal
from sklearn.metrics import log_loss, zero_one_loss

from corollary.formulas._library_tools import fitted, tensor
from corollary.formulas.record import Erratum, all_of, equal, formula
from corollary.formulas.tools import gradient, jacobian, orthogonal, simplex


def _library(name, *args):
    """Call a function of the library's logistic regression on one sample."""
    from corollary.linear import logistic

    theta, x, y = args
    value, slope = getattr(logistic, name)(theta, x[None], np.array([y]))
    return value[0], slope[0]


@formula(
    "lin-unit",
    latex=r"u(x; \theta, b) = x \cdot \theta + b, \qquad u(x + \Delta) = u(x) \iff \Delta \perp \theta,"
    r"\qquad \nabla u = \theta",
    where="002 Linear; 003 level sets",
    right=lambda x, theta, b: x @ theta + b,
    wrong=lambda x, theta, b: x @ theta / np.linalg.norm(theta) + b,
    systems=("linear-unit",),
    functions=("corollary.connectionism.Adaline",),
)
def lin_unit(rng, claim):
    """A linear unit is constant across its weights and grows along them, at the rate of their length."""
    from corollary.connectionism import Adaline

    x, theta, b = rng.normal(size=4), 3 * rng.normal(size=4), rng.normal()
    rate = np.linalg.norm(theta)
    across = rng.normal(size=4)
    across -= theta * (across @ theta) / rate**2
    here = claim(x, theta, b)
    X = rng.normal(size=(20, 4))
    unit = fitted(Adaline(max_iter=3, random_state=0), X, X @ theta + b)
    return all_of(
        equal([claim(row, unit.coef_, unit.intercept_) for row in X], unit.predict(X), tol=1e-11),
        equal(claim(x + across, theta, b), here, tol=1e-11),
        equal(claim(x + 2 * theta / rate, theta, b) - here, 2 * rate, tol=1e-11),
        equal(claim(np.zeros(4), theta, b), b, tol=1e-12),
    )


@formula(
    "lin-lms",
    latex=r"\Delta\theta = \eta\, (y - x \cdot \theta)\, x",
    where="002 Linear",
    right=lambda theta, x, y, eta: eta * (y - x @ theta) * x,
    wrong=lambda theta, x, y, eta: eta * (x @ theta - y) * x,
    systems=("linear-unit",),
    functions=("corollary.connectionism.Adaline",),
)
def lin_lms(rng, claim):
    """The delta rule moves the weights along the input by the error: a gradient step on half its square."""
    from corollary.connectionism import Adaline

    theta, x, y, eta = rng.normal(size=4), rng.normal(size=4), rng.normal(), rng.uniform(0.1, 1)
    slope = gradient(lambda w: (y - x @ w) ** 2 / 2, theta)
    # the library's unit learns from one sample, three times; its bias is one more weight
    options = {"learning_rate": eta / 5, "decay": 0, "normalised": False, "max_iter": 3}
    unit, w, sample = fitted(Adaline(**options), x[None], [y]), np.zeros(5), np.append(x, 1)
    for _ in range(3):
        w = w + claim(w, sample, y, eta / 5)
    return all_of(
        equal(claim(theta, x, y, eta), -eta * slope, tol=1e-8),
        equal(w, [*unit.coef_, unit.intercept_], tol=1e-10),
    )


def _least_squares(X, y):
    from corollary.linear import LinearRegression

    return LinearRegression(fit_intercept=False).fit(X, y).coef_


@formula(
    "linreg-normal-equations",
    latex=r"w^* = (X^\top X)^{-1} X^\top y",
    where="000 §5",
    right=lambda X, y: _least_squares(X, y),
    wrong=lambda X, y: np.linalg.solve(X.T @ X / len(X), X.T @ y),
    systems=("linear-regression",),
    functions=("corollary.linear.LinearRegression",),
)
def linreg_normal_equations(rng, claim):
    """Least-squares weights leave a residual orthogonal to every column; a bias is a column of ones."""
    X = np.column_stack([rng.normal(size=(30, 4)), np.ones(30)])
    y = rng.normal(size=30)
    w = claim(X, y)
    return all_of(
        equal(w, np.linalg.lstsq(X, y)[0], tol=1e-8),
        equal(X.T @ (y - X @ w), 0, tol=1e-8),
    )


def _ridge_loss(X, y, penalty):
    return lambda w: ((y - X @ w) ** 2).sum() / 2 + penalty / 2 * (w**2).sum()


def _ridge_weights(X, y, penalty):
    from corollary.linear import Ridge

    return Ridge(penalty, fit_intercept=False).fit(X, y).coef_


@formula(
    "ridge-regression",
    latex=r"\arg\min_w \tfrac{1}{2} \lVert y - Xw \rVert^2 + \tfrac{\lambda}{2} \lVert w \rVert^2"
    r"= (X^\top X + \lambda I)^{-1} X^\top y",
    where="000 §5; 002, 003 Regularization",
    right=lambda X, y, penalty: (_ridge_loss(X, y, penalty), _ridge_weights(X, y, penalty)),
    wrong=lambda X, y, penalty: (_ridge_loss(X, y, penalty), _ridge_weights(X, y, len(X) * penalty)),
    errata=(
        Erratum(
            "E26",
            printed=r"the same solution for $\frac{1}{2n}\lVert y - Xw\rVert^2 + \lambda\lVert w\rVert^2$",
            correction=r"that loss is minimised with $2n\lambda$ in place of $\lambda$",
            form=lambda X, y, penalty: (
                lambda w: ((y - X @ w) ** 2).sum() / (2 * len(y)) + penalty * (w**2).sum(),
                _ridge_weights(X, y, penalty),
            ),
            where="000 §5",
            kind="formula",
        ),
    ),
    systems=("ridge",),
    functions=("corollary.linear.Ridge",),
)
def ridge_regression(rng, claim):
    """Ridge weights: the penalty joins the diagonal of the Gram matrix, for just this pair of weights.

    The claim is a loss together with its minimiser.
    """
    X, penalty = rng.normal(size=(30, 4)), rng.uniform(1, 3)
    y = X @ rng.normal(size=4) + rng.normal(size=30)
    loss, w = claim(X, y, penalty)
    # The same minimum as plain least squares with the penalty as extra rows.
    rows, zeros = np.sqrt(penalty) * np.eye(4), np.zeros(4)
    stacked = np.linalg.lstsq(np.vstack([X, rows]), np.append(y, zeros))[0]
    return all_of(equal(gradient(loss, w), 0, tol=1e-6), equal(w, stacked, tol=1e-9))


@formula(
    "lasso-regression",
    latex=r"\min_w \tfrac{1}{2n} \lVert y - Xw \rVert^2 + \lambda \lVert w \rVert_1",
    where="000 §5",
    right=lambda X, y, w, penalty: ((y - X @ w) ** 2).sum() / (2 * len(y)) + penalty * np.abs(w).sum(),
    wrong=lambda X, y, w, penalty: ((y - X @ w) ** 2).sum() / 2 + penalty * np.abs(w).sum(),
    systems=("lasso", "l1"),
    functions=("corollary.linear.Lasso",),
)
def lasso_regression(rng, claim):
    """The lasso's objective, whose minimum has no slope in the weights kept and a kink in those set to zero.

    The minimum is the library's.
    """
    from corollary.linear import Lasso

    X, penalty = rng.normal(size=(50, 6)), 0.3
    y = X @ np.array([2.0, -1.5, 1.0, 0, 0, 0]) + 0.1 * rng.normal(size=50)
    w = Lasso(alpha=penalty, fit_intercept=False, tol=1e-12, max_iter=100000).fit(X, y).coef_
    here, step = claim(X, y, w, penalty), 1e-6
    up = np.array([claim(X, y, w + step * e, penalty) - here for e in np.eye(6)]) / step
    down = np.array([claim(X, y, w - step * e, penalty) - here for e in np.eye(6)]) / step
    kept = w != 0
    falls = np.minimum(0, np.minimum(up, down))[~kept]
    dual = (y @ y - (X @ w) @ (X @ w)) / (2 * len(y))  # at the minimum the dual has the same value
    return all_of(
        equal(here, dual, tol=1e-8), equal((up - down)[kept] / 2, 0, tol=1e-5), equal(falls, 0, tol=1e-5)
    )


@formula(
    "logistic-regression-pm",
    latex=r"\ell = -\log \sigma(y\, x \cdot \theta), \qquad "
    r"\nabla_\theta \ell = -\sigma(-y\, x \cdot \theta)\, y\, x, \qquad y \in \{\pm1\}",
    where="002, 003 Logistic regression",
    right=lambda theta, x, y: _library("loss_of_signs", theta, x, y),
    wrong=lambda theta, x, y: (-np.log(expit(y * (x @ theta))), -expit(y * (x @ theta)) * y * x),
    systems=("logistic",),
    functions=("corollary.linear.logistic.loss_of_signs",),
)
def logistic_regression_pm(rng, claim):
    """With labels of either sign the logistic loss is minus the log-probability of the signed score."""
    outcomes = []
    for y in (-1, 1):
        theta, x = rng.normal(size=3) + 0.5, rng.uniform(0.3, 1, size=3)
        value, slope = claim(theta, x, y)
        outcomes += [
            equal(value, np.logaddexp(0, -y * (x @ theta)), tol=1e-12),
            equal(slope, gradient(lambda w, x=x, y=y: np.logaddexp(0, -y * (x @ w)), theta), tol=1e-7),
        ]
    return all_of(*outcomes)


def _cross_entropy(theta, x, y):
    p = expit(x @ theta)
    return -y * np.log(p) - (1 - y) * np.log(1 - p)


@formula(
    "logistic-regression-01",
    latex=r"\ell = -y \log \sigma(x \cdot \theta) - (1 - y) \log(1 - \sigma(x \cdot \theta)), \qquad "
    r"\nabla_\theta \ell = (\sigma(x \cdot \theta) - y)\, x, \qquad y \in \{0, 1\}",
    where="000 §5; 002, 003 Logistic regression",
    right=lambda theta, x, y: _library("loss_of_bits", theta, x, y),
    wrong=lambda theta, x, y: (_cross_entropy(theta, x, y), (y - expit(x @ theta)) * x),
    systems=("logistic",),
    functions=("corollary.linear.logistic.loss_of_bits",),
)
def logistic_regression_01(rng, claim):
    """With labels 0 and 1 the loss is the cross-entropy: the same numbers as with signs."""
    outcomes = []
    for y in (0, 1):
        theta, x, sign = rng.normal(size=3), rng.normal(size=3), 2 * y - 1
        value, slope = claim(theta, x, y)
        outcomes += [
            equal(value, np.logaddexp(0, -sign * (x @ theta)), tol=1e-10),
            equal(slope, gradient(lambda w, x=x, s=sign: np.logaddexp(0, -s * (x @ w)), theta), tol=1e-7),
        ]
    return all_of(*outcomes)


def _log_partition(theta, x):
    return np.log(np.exp(theta @ x).sum())


def _softmax_slope(theta, x, y):
    return np.outer(softmax(theta @ x) - y, x)


@formula(
    "softmax-regression",
    latex=r"\ell = -\sum_i y_i\, x \cdot \theta_i + \log \sum_j e^{x \cdot \theta_j}, \qquad "
    r"\nabla_{\theta_i} \ell = (\sigma_i - y_i)\, x",
    where="002 Softmax",
    right=lambda theta, x, y: (-y @ (theta @ x) + _log_partition(theta, x), _softmax_slope(theta, x, y)),
    wrong=lambda theta, x, y: (-y @ (theta @ x) + _log_partition(theta, x), -_softmax_slope(theta, x, y)),
    errata=(
        Erratum(
            "E30",
            printed=r"$-\sum_i[y_i\,x\cdot\theta_i + \log\sum_j e^{x\cdot\theta_j}]$",
            correction=r"the log-partition enters once, with a plus sign",
            form=lambda theta, x, y: (
                -(y * (theta @ x) + _log_partition(theta, x)).sum(),
                _softmax_slope(theta, x, y),
            ),
            where="002 Softmax",
            kind="formula",
        ),
    ),
    systems=("softmax-regression", "mlp"),
    functions=("corollary.linear.SoftmaxRegression", "corollary.networks.mlp.softmax_error"),
)
def softmax_regression(rng, claim):
    """Multi-class log-loss: score of the true class against the log of the summed exponentials."""
    from corollary.linear import SoftmaxRegression
    from corollary.networks.mlp import softmax_error

    theta, x, y = rng.normal(size=(4, 3)), rng.normal(size=3), np.eye(4)[rng.integers(4)]
    value, slope = claim(theta, x, y)
    loss, error = softmax_error(tensor(theta @ x)[None], torch.tensor([y.argmax()]), None)
    # at the library's fit the slopes of all samples and of the penalty add up to nothing
    X, labels, C = rng.normal(size=(30, 3)), np.arange(30) % 4, 2.0
    model = SoftmaxRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=200).fit(X, labels)
    slopes = sum(claim(model.coef_, row, np.eye(4)[label])[1] for row, label in zip(X, labels))
    return all_of(
        equal(value, loss, tol=1e-10),
        equal(slope, np.outer(error[0], x), tol=1e-10),
        equal(slopes + model.coef_ / C, 0, tol=1e-6),
        equal(value, -log_softmax(theta @ x)[y == 1], tol=1e-10),
        equal(slope, gradient(lambda t: -log_softmax(t @ x)[y == 1][0], theta), tol=1e-7),
    )


@formula(
    "loss-functions",
    latex=r"\tfrac{1}{2} \lVert y - v \rVert^2, \qquad \mathbf{1}[y \ne \arg\max_i v_i], \qquad -\log v_y, "
    r"\qquad -\log p(y; v)",
    where="000 §5; 002 Losses",
    right=lambda y, v, label, p: (((y - v) ** 2).sum() / 2, label != p.argmax(), -np.log(p[label])),
    wrong=lambda y, v, label, p: (((y - v) ** 2).sum(), label != p.argmax(), -np.log(p[label])),
    systems=("learning-from-loss", "mlp", "mlp-regressor"),
    functions=("corollary.networks.mlp.softmax_error", "corollary.networks.mlp.squared_error"),
)
def loss_functions(rng, claim):
    """Squared, zero-one and log loss; the first is a Gaussian's negative log-likelihood less a constant."""
    from corollary.networks.mlp import softmax_error, squared_error

    outcomes = []
    for _ in range(5):
        y, v, label, p = rng.normal(size=3), rng.normal(size=3), int(rng.integers(4)), simplex(rng, 4)
        squared, zero_one, logarithmic = claim(y, v, label, p)
        gaussian = -multivariate_normal(v).logpdf(y) - 1.5 * np.log(2 * np.pi)
        outcomes += [
            equal(squared, gaussian, tol=1e-10),
            equal(squared, squared_error(tensor([v]), tensor([y]), None)[0], tol=1e-10),
            equal(logarithmic, softmax_error(tensor([np.log(p)]), torch.tensor([label]), None)[0], tol=1e-10),
            equal(zero_one, zero_one_loss([label], [p.argmax()]), tol=0),
            equal(logarithmic, log_loss([label], [p], labels=range(4)), tol=1e-10),
        ]
    return all_of(*outcomes)


def _white(rng, n, s):
    """A centred sample whose second moment is the identity to rounding."""
    X = rng.normal(size=(n, s))
    X -= X.mean(axis=1, keepdims=True)
    values, U = np.linalg.eigh(X @ X.T / s)
    return U.T @ X / np.sqrt(values)[:, None]


@formula(
    "lin-risk-trace-form",
    latex=r"\mathcal R(A) = \mathrm{const} + \mathrm{Tr}(A A^\top) - 2\, \mathrm{Tr}(A \Gamma^\top), \qquad "
    r"\nabla \mathcal R = 2 (A - \Gamma), \qquad \Gamma = \mathbb E[y x^\top]",
    where="000 §13",
    right=lambda A, G: (np.trace(A @ A.T) - 2 * np.trace(A @ G.T), 2 * (A - G)),
    wrong=lambda A, G: (np.trace(A @ A.T) - np.trace(A @ G.T), 2 * A - G),
    errata=(
        Erratum(
            "T18",
            printed=r"$\mathrm{Tr}(AA^\top) - 2\,\mathrm{Tr}(A)$, with $\Gamma$ read as $I$",
            correction=r"$\Gamma$ is the cross-moment $\mathbb E[yx^\top]$",
            form=lambda A, G: (np.trace(A @ A.T) - 2 * np.trace(A), 2 * (A - np.eye(len(A)))),
            where="000 §13",
            kind="typing",
        ),
    ),
    systems=("deep-linear",),
)
def lin_risk_trace_form(rng, claim):
    """On whitened inputs the squared risk of a linear map is a paraboloid around the cross-moment."""
    X, Y, A = _white(rng, 4, 50), rng.normal(size=(4, 50)), rng.normal(size=(4, 4))

    def risk(B):
        return ((Y - B @ X) ** 2).sum(axis=0).mean()

    value, slope = claim(A, Y @ X.T / 50)
    return all_of(
        equal(value, risk(A) - risk(np.zeros((4, 4))), tol=1e-10),
        equal(slope, gradient(risk, A), tol=1e-7),
    )


@formula(
    "lin-gradient-flow",
    latex=r"\dot A = 2\eta(\Gamma - A): \qquad A(t) = \Gamma + (A_0 - \Gamma) e^{-2\eta t}, \qquad "
    r"A = \Gamma - \frac{\dot A}{2\eta}",
    where="000 §13",
    right=lambda G, start, speed, eta, t: (
        G + (start - G) * np.exp(-2 * eta * t),
        G - speed / (2 * eta),
    ),
    wrong=lambda G, start, speed, eta, t: (G + (start - G) * np.exp(-eta * t), G - speed / (2 * eta)),
    errata=(
        Erratum(
            "E31",
            printed=r"$A = \Gamma - \frac{1}{2}\eta\dot A$",
            correction=r"$\eta$ belongs in the denominator",
            form=lambda G, start, speed, eta, t: (
                G + (start - G) * np.exp(-2 * eta * t),
                G - eta * speed / 2,
            ),
            where="000 §13",
            kind="formula",
        ),
    ),
    systems=("deep-linear",),
    functions=("corollary.linear.mode_trajectory",),
)
def lin_gradient_flow(rng, claim):
    """Gradient flow of the whitened risk forgets its start exponentially and ends at the cross-moment.

    The claim gives the position at a time, once from the start and once from the speed there.
    """
    from corollary.linear import mode_trajectory

    G, start = rng.normal(size=(2, 3, 3))
    eta, t = rng.uniform([0.2, 0.4], [0.6, 0.8])
    A, steps = start, 100
    h = t / steps
    for _ in range(steps):  # Runge and Kutta, error of order h^4
        k1 = 2 * eta * (G - A)
        k2 = 2 * eta * (G - A - h / 2 * k1)
        k3 = 2 * eta * (G - A - h / 2 * k2)
        k4 = 2 * eta * (G - A - h * k3)
        A = A + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    position, from_speed = claim(G, start, 2 * eta * (G - A), eta, t)
    theirs = mode_trajectory(G, start, 2 * eta * t, depth=1)  # the library's flow has rate one
    return all_of(
        equal(position, A, tol=1e-8), equal(from_speed, A, tol=1e-8), equal(position, theirs, tol=1e-10)
    )


def _whiten_and_fit(X, Y):
    s = X.shape[1]
    values, U = np.linalg.eigh(X @ X.T / s)
    white = U.T @ X / np.sqrt(values)[:, None]
    return white, Y @ white.T / s


def _printed_002(X, Y):
    white, target = _whiten_and_fit(X, Y)
    return white, target.T / 2


def _printed_003(X, Y):
    white, _ = _whiten_and_fit(X, Y)
    white = white / np.sqrt(X.shape[1])  # now X X^T = I without the mean
    return white, Y @ white.T / X.shape[1]


@formula(
    "lin-whitened-target",
    latex=r"\tfrac{1}{s} X X^\top = I: "
    r"\qquad \arg\min_W \lVert Y - WX \rVert_F^2 = \Gamma = \tfrac{1}{s} Y X^\top,"
    r"\qquad \tfrac{1}{s} \lVert Y - WX \rVert_F^2 = \lVert W - \Gamma \rVert_F^2 + \mathrm{const}",
    where="002, 003 Deep linear networks",
    right=_whiten_and_fit,
    errata=(
        Erratum(
            "E27",
            printed=r"$\Gamma = \frac{1}{2s} X Y^\top$",
            correction=r"$\Gamma = \frac{1}{s} Y X^\top$: not transposed, no half",
            form=_printed_002,
            where="002 Deep linear",
            kind="formula",
        ),
        Erratum(
            "E28",
            printed=r"$X X^\top = I$ together with $\Gamma = \frac{1}{s} Y X^\top$",
            correction=r"either $\frac{1}{s} X X^\top = I$, or $\Gamma = Y X^\top$",
            form=_printed_003,
            where="003 Deep linear",
            kind="formula",
        ),
    ),
    systems=("deep-linear",),
)
def lin_whitened_target(rng, claim):
    """After whitening, the best linear map is the cross-moment of targets and inputs.

    Any other map pays its squared distance to it. The claim gives the whitened inputs and the map.
    """
    X = rng.normal(size=(3, 3)) @ rng.normal(size=(3, 40)) + rng.normal(size=(3, 1))
    Y = rng.normal(size=(3, 3)) @ X + rng.normal(size=(3, 40))
    white, target = claim(X, Y)
    best = np.linalg.lstsq(white.T, Y.T)[0].T
    W = rng.normal(size=(2, 3, 3))
    risk = ((Y - W @ white) ** 2).sum(axis=(1, 2)) / 40
    distance = ((W - target) ** 2).sum(axis=(1, 2))
    return all_of(
        equal(white, np.linalg.lstsq(X.T, white.T)[0].T @ X, tol=1e-9),  # a linear map of the inputs
        equal(target, best, tol=1e-9),
        equal(np.diff(risk), np.diff(distance), tol=1e-8),
    )


def _library_slopes(layers, target):
    """The library's gradients of half the squared distance of the product, the first layer first."""
    from corollary.linear.deep_linear import layer_gradients

    return layer_gradients(layers, target)


@formula(
    "lin-two-layer-gradients",
    latex=r"\ell = \tfrac{1}{2} \lVert DC - \Gamma \rVert_F^2: \qquad \partial_C \ell = D^\top (DC - \Gamma),"
    r"\qquad \partial_D \ell = (DC - \Gamma) C^\top",
    where="000 §13.7; 002 Deep linear networks",
    right=lambda D, C, G: _library_slopes([C, D], G),
    wrong=lambda D, C, G: (D @ (D @ C - G), (D @ C - G) @ C),
    systems=("deep-linear",),
    functions=("corollary.linear.deep_linear.layer_gradients",),
)
def lin_two_layer_gradients(rng, claim):
    """Each layer's slope is the error of the product, carried through the other layer transposed."""
    D, C, G = rng.normal(size=(3, 3, 3))
    by_C, by_D = claim(D, C, G)
    return all_of(
        equal(by_C, gradient(lambda B: ((D @ B - G) ** 2).sum() / 2, C), tol=1e-7),
        equal(by_D, gradient(lambda B: ((B @ C - G) ** 2).sum() / 2, D), tol=1e-7),
    )


@formula(
    "lin-two-layer-rotated",
    latex=r"\Gamma = U \Sigma V^\top,\ \tilde D = U^\top D,\ \tilde C = C V: \qquad "
    r"\partial_{\tilde C} = \tilde D^\top (\tilde D \tilde C - \Sigma), \qquad "
    r"\partial_{\tilde D} = (\tilde D \tilde C - \Sigma) \tilde C^\top",
    where="002 Deep linear networks",
    right=lambda D, C, S: _library_slopes([C, D], S),
    errata=(
        Erratum(
            "E29",
            printed=r"$(\tilde D\tilde C - \Sigma)^\top\tilde D$, $\tilde C(\tilde D\tilde C-\Sigma)C^\top$",
            correction=r"$\tilde D^\top(\tilde D\tilde C-\Sigma)$, $(\tilde D\tilde C-\Sigma)\tilde C^\top$",
            form=lambda D, C, S: ((D @ C - S).T @ D, C @ (D @ C - S) @ C.T),
            where="002 Deep linear",
            kind="dimensions",
        ),
    ),
    systems=("deep-linear",),
    functions=("corollary.linear.deep_linear.layer_gradients",),
)
def lin_two_layer_rotated(rng, claim):
    """In the singular bases of the target the two-layer slopes keep their form with a diagonal target.

    All layers are square here, so that the misprint, undefined in general, can be evaluated.
    """
    G, D, C = rng.normal(size=(3, 3, 3))
    U, sigma, Vt = np.linalg.svd(G)

    def loss(D_rotated, C_rotated):  # through the layers as they were before the rotation
        return (((U @ D_rotated) @ (C_rotated @ Vt) - G) ** 2).sum() / 2

    by_C, by_D = claim(D, C, np.diag(sigma))
    return all_of(
        equal(by_C, gradient(lambda B: loss(D, B), C), tol=1e-7),
        equal(by_D, gradient(lambda B: loss(B, C), D), tol=1e-7),
    )


def _modes(D, C, sigma, competition):
    products = D @ C
    own = np.diag(products)
    return ((own - sigma) ** 2).sum() / 2 + competition * ((products**2).sum() - (own**2).sum())


@formula(
    "lin-cooperation-competition",
    latex=r"\tilde\ell = \tfrac{1}{2} \sum_r (d_r \cdot c_r - \sigma_r)^2 +"
    r"\tfrac{1}{2} \sum_{r \ne q} (d_r \cdot c_q)^2",
    where="002 Deep linear networks",
    right=lambda D, C, sigma: _modes(D, C, sigma, 1 / 2),
    wrong=lambda D, C, sigma: _modes(D, C, sigma, 1 / 4),
    systems=("deep-linear",),
)
def lin_cooperation_competition(rng, claim):
    """The loss of two linear layers splits into modes that cooperate inside and compete between them.

    Rows of the upper and columns of the lower layer are taken in the singular bases of the target.
    """
    G, D, C = rng.normal(size=(4, 4)), rng.normal(size=(4, 2)), rng.normal(size=(2, 4))
    U, sigma, Vt = np.linalg.svd(G)
    return equal(claim(U.T @ D, C @ Vt.T, sigma), ((D @ C - G) ** 2).sum() / 2, tol=1e-10)


@formula(
    "lin-critical-points",
    latex=r"DC = \sum_{r \in S} \sigma_r u_r v_r^\top,\quad |S| = k, \qquad "
    r"\binom{\mathrm{rank}\,\Gamma}{k} \text{ choices}; \qquad \text{minimum} \iff S = \{1, \dots, k\}",
    where="003 Deep linear networks",
    right=lambda rank, k: [(S, S == tuple(range(k))) for S in combinations(range(rank), k)],
    wrong=lambda rank, k: [(S, True) for S in combinations(range(rank), k)],
    systems=("deep-linear",),
    functions=("corollary.linear.critical_points",),
)
def lin_critical_points(rng, claim):
    """A two-layer linear net of full rank rests at any choice of singular pairs of the target.

    Only the leading choice is a minimum, and that a global one; at all others the Hessian has a
    direction of descent. The claim lists the choices, each with its verdict.
    """
    from corollary.linear import critical_points

    n, k, sigma = 3, 2, np.array([3.0, 2.0, 1.0]) + rng.uniform(-0.2, 0.2, size=3)
    U, V = orthogonal(rng, n), orthogonal(rng, n)
    G = (U * sigma) @ V.T

    def slope(parameters):
        D, C = parameters[: n * k].reshape(n, k), parameters[n * k :].reshape(k, n)
        error = D @ C - G
        return np.concatenate([(error @ C.T).ravel(), (D.T @ error).ravel()])

    points = claim(n, k)
    theirs = sorted((point.pairs, point.minimum) for point in critical_points(G, k))
    outcomes = [equal(len(points), comb(n, k), tol=0), equal(sorted(points) == theirs, True, tol=0)]
    for chosen, minimum in points:
        scale, index = np.sqrt(sigma[list(chosen)]), list(chosen)
        rest = np.concatenate([(U[:, index] * scale).ravel(), (scale[:, None] * V[:, index].T).ravel()])
        least = np.linalg.eigvalsh(jacobian(slope, rest)).min()  # the gap of the singular values, or zero
        outcomes += [equal(slope(rest), 0, tol=1e-10), equal(least > -1e-3, minimum, tol=0)]
    return all_of(*outcomes)


def _product(matrices, n):
    """The network of these layers, the first applied first."""
    P = np.eye(n)
    for W in matrices:
        P = W @ P
    return P


def _layer_slope(layers, x, y, l):
    n = len(x)
    error = _product(layers, n) @ x - y
    above, below = _product(layers[l + 1 :], n), _product(layers[:l], n)
    return above.T @ np.outer(error, x) @ below.T


@formula(
    "lin-deep-gradient",
    latex=r"\partial_{W^l} \tfrac{1}{2} \lVert W^L \cdots W^1 x - y \rVert^2 ="
    r"(W^L \cdots W^{l+1})^\top (W^L \cdots W^1 x - y)\, x^\top (W^{l-1} \cdots W^1)^\top",
    where="003 Deep linear networks",
    right=_layer_slope,
    wrong=lambda layers, x, y, l: _layer_slope(layers[: l + 1] + layers[:l:-1], x, y, l),
    systems=("deep-linear",),
    functions=("corollary.linear.deep_linear.layer_gradients",),
)
def lin_deep_gradient(rng, claim):
    """A layer's slope in a deep linear net: the error pulled back from above times the input from below."""
    layers, (x, y) = list(rng.normal(size=(4, 3, 3))), rng.normal(size=(2, 3))
    outcomes = []
    for l in range(4):

        def loss(W, l=l):
            h = x
            for k, layer in enumerate(layers):
                h = (W if k == l else layer) @ h
            return ((h - y) ** 2).sum() / 2

        outcomes.append(equal(claim(layers, x, y, l), gradient(loss, layers[l]), tol=1e-6))
    target, I = rng.normal(size=(3, 3)), np.eye(3)  # on whitened inputs the slopes of all samples add up
    for l, theirs in enumerate(_library_slopes(layers, target)):
        summed = sum(claim(layers, I[i], target[:, i], l) for i in range(3))
        outcomes.append(equal(summed, theirs, tol=1e-9))
    return all_of(*outcomes)
