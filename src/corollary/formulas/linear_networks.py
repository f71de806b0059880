"""Linear units and the regressions they solve: losses, gradients and closed forms.

Gradients are compared with finite differences, closed forms with other ways to the same minimum.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import expit, log_softmax, softmax
from scipy.stats import multivariate_normal
from sklearn.metrics import log_loss, zero_one_loss

from corollary.formulas._library_tools import fitted, tensor
from corollary.formulas.record import Erratum, all_of, equal, formula
from corollary.formulas.tools import gradient, simplex


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
    options = {"learning_rate": eta / 5, "decay": 0, "normalize": False, "max_iter": 3}
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
