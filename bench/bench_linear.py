"""The lasso against scikit-learn and celer; softmax regression against scikit-learn."""

import warnings

import numpy as np
from celer import Lasso as CelerLasso
from celer import celer_path
from sklearn import linear_model

from bench.harness import Draw, Pair, claim
from corollary.linear.lasso import Lasso, lasso_path
from corollary.linear.logistic import SoftmaxRegression

TOL = 1e-6  # of the duality gap, relative to the mean square of the targets


def data(draw: Draw, n: tuple[int, int], d: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated features with a sparse signal, not centred, as users have them."""
    rng, n, d = draw.rng, draw.size("rows", *n), draw.size("columns", *d)
    X = 0.1 * rng.standard_normal((n, 50)) @ rng.standard_normal((50, d)) + rng.standard_normal((n, d))
    X = X / X.std(axis=0) + rng.standard_normal(d)
    w = np.zeros(d)
    w[rng.choice(d, d // 20, replace=False)] = rng.standard_normal(d // 20)
    return draw.array(X), X @ w + rng.standard_normal(n) + 3


def one(draw: Draw, peer) -> Pair:
    X, y = data(draw, (500, 8000), (200, 4000))
    y = y.astype(X.dtype)
    intercept = draw.choice("intercept", (True, True, False))
    Z, t = (X - X.mean(axis=0), y - y.mean()) if intercept else (X, y)
    level = draw.real("penalty", 0.01, 0.2) * float(np.abs(Z.T @ t).max()) / len(y)

    def objective(model):
        residual = y - X.astype(float) @ model.coef_ - model.intercept_
        return 0.5 * np.mean(residual**2) + level * np.abs(model.coef_.astype(float)).sum()

    def quality(ours, theirs):
        assert objective(ours) <= objective(theirs) + 2 * TOL * np.mean(y**2)
        return {"objective": objective(ours), "peer": objective(theirs)}

    def fit(kind, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return kind(level, fit_intercept=intercept, tol=TOL, **options).fit(X, y)

    return Pair(lambda: fit(Lasso), lambda: peer(fit), quality)


def path(draw: Draw, peer) -> Pair:
    X, y = data(draw, (500, 6000), (200, 3000))
    X = X - X.mean(axis=0)
    y = (y - y.mean()).astype(X.dtype)
    alphas = np.geomspace(1, 0.01, draw.size("penalties", 20, 80)) * float(np.abs(X.T @ y).max()) / len(y)

    def objectives(coefs):
        residual = y[:, None] - X.astype(float) @ coefs
        return 0.5 * np.mean(residual**2, axis=0) + alphas * np.abs(coefs).sum(axis=0)

    def quality(ours, theirs):
        excess = float(np.max(objectives(ours) - objectives(theirs)))
        assert excess <= 2 * TOL * np.mean(y.astype(float) ** 2)
        return {"largest_excess": excess}

    def theirs():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return peer(X, y, alphas)

    return Pair(lambda: lasso_path(X, y, alphas=alphas, tol=TOL)[1], theirs, quality)


@claim("lasso-scikit-learn", peer="scikit-learn", aim=1.5)
def lasso_sklearn(draw):
    """Lasso, one penalty

    Tables of up to two million entries take some milliseconds on both sides: the same plain sweeps, and on ours the
    contract around them.
    """
    return one(draw, lambda fit: fit(linear_model.Lasso, max_iter=10_000))


@claim("lasso-celer", peer="celer", aim=1.5)
def lasso_celer(draw):
    """Lasso, one penalty

    Small tables take two or three milliseconds on both sides, and on ours the contract around them.
    """
    return one(draw, lambda fit: fit(CelerLasso))


@claim("lasso-path-scikit-learn", peer="scikit-learn", aim=2.0)
def path_sklearn(draw):
    """Lasso path

    Tables of one to three million entries take some ten milliseconds on both sides. Ours multiplies the features that join the
    working set with all others, a dozen joins to a path; the peer multiplies all features once, or sweeps over them as they are.
    """
    return path(draw, lambda X, y, a: linear_model.lasso_path(X, y, alphas=a, tol=TOL, max_iter=10_000)[1])


@claim("lasso-path-celer", peer="celer", aim=2.0)
def path_celer(draw):
    """Lasso path

    Tables of one to three million entries take some ten milliseconds on both sides. Ours multiplies the features that join the
    working set with all others, a dozen joins to a path; the peer multiplies all features once, or sweeps over them as they are.
    """
    return path(draw, lambda X, y, a: celer_path(X, y, "lasso", alphas=a.astype(X.dtype), tol=TOL)[1])


@claim("softmax-regression", peer="scikit-learn", aim=1.2)
def softmax(draw):
    """Softmax regression

    Tables of some hundred thousand entries take a few milliseconds on both sides: six Newton steps, each of a dozen short
    calls, against ten steps of L-BFGS, which end at a slightly larger loss.
    """
    rng, n, d = draw.rng, draw.size("rows", 2000, 40000), draw.size("columns", 10, 200)
    k = draw.size("classes", 3, 20)
    X = draw.array(rng.standard_normal((n, d)))
    y = (X @ rng.standard_normal((d, k)) / np.sqrt(d) * 2 + rng.gumbel(size=(n, k))).argmax(axis=1)

    def objective(model):
        Z = X.astype(float) @ model.coef_.T.astype(float) + model.intercept_
        losses = np.logaddexp.reduce(Z, axis=1) - Z[np.arange(n), y]
        return float(losses.sum() + 0.5 * (model.coef_.astype(float) ** 2).sum())

    def quality(ours, peer):
        assert objective(ours) <= objective(peer) * (1 + 1e-6)
        return {"objective": objective(ours), "peer": objective(peer)}

    def peer():
        return linear_model.LogisticRegression(max_iter=300).fit(X, y)

    return Pair(lambda: SoftmaxRegression().fit(X, y), peer, quality)
