import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import Perceptron as Reference

import corollary
from corollary.connectionism.perceptron import Perceptron


def separable(n=60, d=4, gap=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X, u = rng.standard_normal((4 * n, d)), rng.standard_normal(d)
    u /= np.linalg.norm(u)
    far = np.abs(X @ u) > gap
    X = X[far][:n]
    return X, np.where(X @ u > 0, 1, -1), u


def direct(X, y, epochs):
    w, mistakes, path = np.zeros(X.shape[1] + 1), 0, []
    Z = np.column_stack([X, np.ones(len(X))])
    for _ in range(epochs):
        for z, t in zip(Z, y):
            if t * (z @ w) <= 0:
                w = w + t * z
                mistakes += 1
            path.append(w)
    return w, mistakes, np.array(path)


def test_the_updates_are_eq_1_and_those_of_scikit_learn():
    X, y, _ = separable()
    model = Perceptron(max_iter=3, tol=None, shuffle=False).fit(X, y)
    w, mistakes, path = direct(X, y, 3)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), w, rtol=1e-12)
    assert model.mistakes_.tolist() == [mistakes]
    theirs = Reference(max_iter=3, tol=None, shuffle=False).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-12)
    np.testing.assert_allclose(model.intercept_, theirs.intercept_, rtol=1e-12)
    averaged = Perceptron(max_iter=3, tol=None, shuffle=False, average=True).fit(X, y)
    mean = np.vstack([np.zeros(5), path]).mean(0)  # the weights before the first sample count too
    np.testing.assert_allclose(np.append(averaged.coef_, averaged.intercept_), mean, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_novikov_bound_is_never_broken(seed, fit_intercept):
    X, y, u = separable(gap=0.05, seed=seed)
    model = Perceptron(max_iter=5000, tol=None, fit_intercept=fit_intercept, random_state=seed).fit(X, y)
    assert model.score(X, y) == 1
    assert model.margin_[0] > 0
    assert model.mistakes_[0] <= model.novikov_bound_[0]
    gamma = (y * (X @ u)).min()
    radius = (X**2).sum(1).max() + fit_intercept
    assert model.mistakes_[0] <= radius / gamma**2  # the planted direction separates too
    Z = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    w = np.append(model.coef_, model.intercept_) if fit_intercept else model.coef_[0]
    assert model.margin_[0] == pytest.approx((y * (Z @ w)).min() / np.linalg.norm(w))


def test_classes_that_overlap_have_no_bound():
    X, y, _ = separable()
    model = Perceptron(max_iter=20).fit(np.vstack([X, X]), np.append(y, -y))
    assert model.margin_[0] <= 0
    assert np.isinf(model.novikov_bound_[0])


def test_several_classes_score_like_scikit_learn():
    X, y = load_digits(return_X_y=True)
    ours, theirs = Perceptron().fit(X[:1200], y[:1200]), Reference().fit(X[:1200], y[:1200])
    assert ours.coef_.shape == (10, 64)
    # two orders of the samples: the scores of neither are steady to better than a few percent
    assert ours.score(X[1200:], y[1200:]) > theirs.score(X[1200:], y[1200:]) - 0.04
    averaged = Perceptron(average=True).fit(X[:1200], y[:1200])
    assert averaged.score(X[1200:], y[1200:]) > ours.score(X[1200:], y[1200:]) - 0.01


def test_sparse_equals_dense_and_penalties_shrink():
    X, y = load_iris(return_X_y=True)
    a, b = Perceptron().fit(X, y), Perceptron().fit(sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(a.coef_, b.coef_)
    scores = b.decision_function(sparse.csr_matrix(X))  # another order of summation
    np.testing.assert_allclose(a.decision_function(X), scores, rtol=1e-9)
    small = Perceptron(penalty="l2", alpha=0.1).fit(X, y)
    assert np.linalg.norm(small.coef_) < np.linalg.norm(a.coef_)
    thin = Perceptron(penalty="l1", alpha=0.2).fit(X, y)
    assert (thin.coef_ == 0).any()


def test_early_stopping_partial_fit_and_warm_start():
    X, y = load_iris(return_X_y=True)
    stopped = Perceptron(early_stopping=True, n_iter_no_change=2).fit(X, y)
    assert stopped.n_iter_ < 1000
    online = Perceptron(shuffle=False)
    for _ in range(3):
        online.partial_fit(X, y, classes=[0, 1, 2])
    whole = Perceptron(max_iter=3, tol=None, shuffle=False).fit(X, y)
    np.testing.assert_allclose(online.coef_, whole.coef_, rtol=1e-12)
    np.testing.assert_array_equal(online.mistakes_, whole.mistakes_)
    warm = Perceptron(max_iter=1, tol=None, shuffle=False, warm_start=True)
    for _ in range(3):
        warm.fit(X, y)
    np.testing.assert_allclose(warm.coef_, whole.coef_, rtol=1e-12)


def test_class_weights_scale_the_updates():
    X, y, _ = separable(n=20)
    plain = Perceptron(max_iter=1, tol=None, shuffle=False, class_weight={-1: 2.0, 1: 2.0}).fit(X, y)
    twice = Perceptron(max_iter=1, tol=None, shuffle=False, eta0=2.0).fit(X, y)
    np.testing.assert_allclose(plain.coef_, twice.coef_)


def test_resume_is_exact_and_files_keep_it(tmp_path):
    X, y = load_iris(return_X_y=True)
    whole = Perceptron(max_iter=20, tol=None, average=True).fit(X, y)
    part = Perceptron(max_iter=7, tol=None, average=True)
    with corollary.Run(tmp_path):
        part.fit(X, y)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(max_iter=20).fit(X, y)
    np.testing.assert_array_equal(part.coef_, whole.coef_)
    again = corollary.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))


def test_bad_input_is_named():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"coef_init must have shape \(3, 4\); got shape \(1, 4\)"):
        Perceptron().fit(X, y, coef_init=np.zeros(4))
    with pytest.raises(ValueError, match=r"intercept_init must have shape \(3,\); got shape \(2,\)"):
        Perceptron().fit(X, y, intercept_init=np.zeros(2))
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        Perceptron().partial_fit(X, y)
    model = Perceptron().partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(
        ValueError, match=r"classes must be those of the first call \(\[0, 1, 2\]\); got \[0, 1\]"
    ):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="y must hold known classes only; got 7"):
        model.partial_fit(X, y + 7)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.partial_fit(X, y[:5])
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X, y, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="[Nn]egative"):
        model.partial_fit(X, y, sample_weight=-np.ones(150))
