"""The lasso against scikit-learn and celer; softmax regression against scikit-learn."""

import warnings

import numpy as np
from celer import Lasso as CelerLasso
from celer import celer_path
from sklearn import linear_model

from bench.harness import Pair, claim
from corollary.linear.lasso import Lasso, lasso_path
from corollary.linear.logistic import SoftmaxRegression

TOL = 1e-6


def data(n=5000, d=2000):
    rng = np.random.default_rng(0)
    X = 0.1 * rng.standard_normal((n, 50)) @ rng.standard_normal((50, d)) + rng.standard_normal((n, d))
    X = np.asfortranarray(X / np.linalg.norm(X, axis=0) * np.sqrt(n))
    w = np.zeros(d)
    w[rng.choice(d, 100, replace=False)] = rng.standard_normal(100)
    return X, X @ w + rng.standard_normal(n)


def one(peer):
    X, y = data()
    level = 0.02 * np.abs(X.T @ y).max() / len(y)

    def objective(model):
        return 0.5 * np.mean((y - X @ model.coef_) ** 2) + level * np.abs(model.coef_).sum()

    def quality(ours, theirs):
        assert objective(ours) <= objective(theirs) + TOL * np.mean(y**2)
        return {"objective": objective(ours), "peer": objective(theirs)}

    return Pair(
        lambda: Lasso(level, fit_intercept=False, tol=TOL).fit(X, y), lambda: peer(level).fit(X, y), quality
    )


def path(peer):
    X, y = data()
    alphas = np.geomspace(1, 0.01, 50) * np.abs(X.T @ y).max() / len(y)

    def objectives(coefs):
        return 0.5 * np.mean((y[:, None] - X @ coefs) ** 2, axis=0) + alphas * np.abs(coefs).sum(axis=0)

    def quality(ours, theirs):
        excess = float(np.max(objectives(ours) - objectives(theirs)))
        assert excess <= TOL * np.mean(y**2)
        return {"largest_excess": excess}

    return Pair(
        lambda: lasso_path(X, y, alphas=alphas, tol=TOL)[1], lambda: peer(X, y, alphas), quality, repeats=3
    )


def quiet(call):
    def run(*args):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(*args)

    return run


@claim("lasso-scikit-learn", peer="scikit-learn", floor=3.0)
def lasso_sklearn():
    """Lasso, 5000 x 2000, one penalty"""
    return one(lambda level: linear_model.Lasso(level, fit_intercept=False, tol=TOL, max_iter=10_000))


@claim("lasso-celer", peer="celer", floor=3.0)
def lasso_celer():
    """Lasso, 5000 x 2000, one penalty"""
    return one(lambda level: CelerLasso(level, fit_intercept=False, tol=TOL))


@claim("lasso-path-scikit-learn", peer="scikit-learn", floor=3.0)
def path_sklearn():
    """Lasso path, 5000 x 2000, 50 penalties"""
    return path(quiet(lambda X, y, a: linear_model.lasso_path(X, y, alphas=a, tol=TOL, max_iter=10_000)[1]))


@claim("lasso-path-celer", peer="celer", floor=3.0)
def path_celer():
    """Lasso path, 5000 x 2000, 50 penalties"""
    return path(quiet(lambda X, y, a: celer_path(X, y, "lasso", alphas=a, tol=TOL)[1]))


@claim("softmax-regression", peer="scikit-learn", floor=1.5)
def softmax():
    """Softmax regression, 20000 x 100 float32, 10 classes"""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20000, 100)).astype(np.float32)
    y = (0.3 * X @ rng.standard_normal((100, 10)) + rng.gumbel(size=(20000, 10))).argmax(axis=1)

    def objective(model):
        Z = (X @ model.coef_.T + model.intercept_).astype(np.float64)
        losses = np.logaddexp.reduce(Z, axis=1) - Z[np.arange(len(y)), y]
        return float(losses.sum() + 0.5 * (model.coef_.astype(np.float64) ** 2).sum())

    def quality(ours, peer):
        assert objective(ours) <= objective(peer) * (1 + 1e-6)
        return {"objective": objective(ours), "peer": objective(peer)}

    peer = lambda: linear_model.LogisticRegression(max_iter=300).fit(X, y)
    return Pair(lambda: SoftmaxRegression().fit(X, y), peer, quality)
