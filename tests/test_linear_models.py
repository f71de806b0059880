"""Least squares, ridge, lasso, logistic and softmax regression against scikit-learn and optimality."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn import linear_model
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

import corollary
from corollary.linear import lasso, lasso_solver
from corollary.linear.lasso import Lasso, lasso_path
from corollary.linear.lasso_solver import Features, WorkingSet
from corollary.linear.logistic import LogisticRegression, SoftmaxRegression, loss_of_bits, loss_of_signs
from corollary.linear.logistic_kernels import curvature
from corollary.linear.regression import LinearRegression, Ridge, normal_equations, project_ball
from corollary.optim.directions import soft_threshold

X, Y = load_diabetes(return_X_y=True)
MODELS = [LinearRegression(), Ridge(), Lasso(), LogisticRegression(), SoftmaxRegression()]


@parametrize_with_checks(MODELS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- squares ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["exact", "descent"])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_least_squares_agrees_with_scikit_learn(solver, layout, fit_intercept):
    weight = np.random.default_rng(0).random(len(Y))
    A = scale(X) + 1
    ours = LinearRegression(solver=solver, fit_intercept=fit_intercept, tol=1e-12, max_iter=100_000)
    ours.fit(layout(A), Y, sample_weight=weight)
    theirs = linear_model.LinearRegression(fit_intercept=fit_intercept).fit(A, Y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-4)  # condition number 500
    np.testing.assert_allclose(ours.predict(layout(A)), theirs.predict(A), rtol=1e-4)


@pytest.mark.parametrize("solver", ["auto", "descent"])
def test_ridge_agrees_with_scikit_learn(solver):
    targets = np.column_stack([Y, -2 * Y + X[:, 0]])
    ours = Ridge(0.3, solver=solver, tol=1e-12).fit(X, targets)
    theirs = linear_model.Ridge(0.3).fit(X, targets)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-8)


def test_the_constrained_view_is_ridge_with_its_multiplier():
    penalised = Ridge(0.5).fit(X, Y)
    radius = float(np.linalg.norm(penalised.coef_))
    bounded = Ridge(radius=radius, tol=1e-12).fit(X, Y)
    np.testing.assert_allclose(bounded.coef_, penalised.coef_, rtol=1e-5)
    assert bounded.multiplier_[0] == pytest.approx(0.5, rel=1e-4)
    loose = Ridge(radius=1e9, tol=1e-13, max_iter=100_000).fit(X, Y)  # the bound does not bind
    assert loose.multiplier_[0] == pytest.approx(0.0, abs=1e-6)


def test_projection_and_normal_equations():
    w = np.array([[3.0, 0.1], [4.0, 0.2]])
    np.testing.assert_allclose(project_ball(w, 1.0), [[0.6, 0.1], [0.8, 0.2]])
    G, b, _, _ = normal_equations(X, Y[:, None], None, centre=True)
    A = X - X.mean(axis=0)
    np.testing.assert_allclose(G, A.T @ A, atol=1e-12)
    np.testing.assert_allclose(b[:, 0], A.T @ (Y - Y.mean()), atol=1e-9)


# --- lasso -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["plain sweeps first", "working set"])
def way(request, monkeypatch):
    """Both ways to solve a small table."""
    if request.param == "working set":
        monkeypatch.setattr("corollary.linear.lasso.SMALL", 0)


def wide(n=200, d=1500, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    w = np.zeros(d)
    w[::100] = rng.standard_normal(len(w[::100])) * 3
    return A, A @ w + rng.standard_normal(n)


def objective(A, y, w, level):
    return 0.5 * np.mean((y - A @ w) ** 2) + level * np.abs(w).sum()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("level", [0.5, 0.05])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_lasso_agrees_with_scikit_learn(level, fit_intercept):
    A, y = wide()
    ours = Lasso(level, fit_intercept=fit_intercept, tol=1e-8).fit(A, y)
    theirs = linear_model.Lasso(level, fit_intercept=fit_intercept, tol=1e-8, max_iter=100_000).fit(A, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-3)
    assert 0 <= ours.dual_gap_ <= 1e-8 * np.mean((y - fit_intercept * y.mean()) ** 2)


@pytest.mark.usefixtures("way")
def test_lasso_is_optimal_and_its_gap_bounds_the_excess():
    A, y = wide()
    exact = Lasso(0.1, fit_intercept=False, tol=1e-10).fit(A, y).coef_
    g = A.T @ (y - A @ exact) / len(y)
    assert np.abs(g).max() <= 0.1 * (1 + 1e-4)
    np.testing.assert_allclose(g[exact != 0], 0.1 * np.sign(exact[exact != 0]), rtol=1e-4)
    loose = Lasso(0.1, fit_intercept=False, tol=1e-2).fit(A, y)
    excess = objective(A, y, loose.coef_, 0.1) - objective(A, y, exact, 0.1)
    assert -1e-9 <= excess <= loose.dual_gap_


def test_screening_never_drops_a_weight():
    A, y = wide(500, 300)
    A = A - A.mean(axis=1, keepdims=True)
    exact = Lasso(0.5, fit_intercept=False, tol=1e-12).fit(A, y).coef_
    solver = WorkingSet(Features(A), y, 0.5, 1e-3, 100)
    w = solver.solve(0.5)
    g = np.abs(A.T @ (y - A @ w)) / len(y)
    solver._extend(torch.from_numpy(g), min(1.0, 0.5 / g.max()))
    assert len(solver.kept) < 250  # at a gap of a thousandth most of the 300 are ruled out
    assert np.isin(np.flatnonzero(exact), solver.kept.numpy()).all()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("offset", [0.0, 3.0, 1e3, 1e6])
@pytest.mark.parametrize("weighted", [False, True])
def test_lasso_in_any_layout_far_from_zero_and_weighted_reaches_the_optimum(order, offset, weighted):
    """The data are read where they lie, uncentred unless that would cost digits: the optimality conditions decide."""
    A, y = wide(300, 80)
    A = np.array(A + offset, order=order)
    w = np.random.default_rng(1).uniform(0.5, 2, len(y)) if weighted else np.ones(len(y))
    w *= len(y) / w.sum()
    model = Lasso(0.3, tol=1e-10).fit(A, y, w)
    residual = w * (y - A @ model.coef_ - model.intercept_)
    g = (A - np.average(A, axis=0, weights=w)).T @ residual / len(y)
    used = model.coef_ != 0
    assert 0 < used.sum() < 80
    # a gap of 1e-10 of the mean square leaves slopes about its root away from the level
    np.testing.assert_allclose(g[used], 0.3 * np.sign(model.coef_[used]), atol=2e-4)
    assert np.abs(g[~used]).max(initial=0) <= 0.3 + 2e-4


@pytest.mark.usefixtures("way")
def test_lasso_keeps_single_precision_data_single_and_is_right():
    A, y = wide(300, 80)
    single = Lasso(0.3).fit(A.astype(np.float32) + 2, y.astype(np.float32))
    double = Lasso(0.3, tol=1e-8).fit(A + 2, y)
    assert single.coef_.dtype == np.float32
    ours = objective(A - A.mean(0), y - y.mean(), single.coef_, 0.3)
    best = objective(A - A.mean(0), y - y.mean(), double.coef_, 0.3)
    assert ours <= best + 1e-4 * np.mean((y - y.mean()) ** 2)


@pytest.mark.parametrize(("small", "tol"), [(lasso.WHOLE, 1e-6), (lasso.WHOLE, 1e-10), (0, 1e-6), (0, 1e-8)])
@pytest.mark.parametrize("shape", [(150, 300), (300, 150)])
def test_lasso_path_agrees_with_scikit_learn(shape, small, tol, monkeypatch):
    monkeypatch.setattr(lasso, "WHOLE", small)  # the way of small tables, and those of large ones
    A, y = wide(*shape)
    A[:, 7] = 0.0
    alphas, coefs, gaps = lasso_path(A, y, n_alphas=20, eps=1e-2, tol=tol)
    assert (coefs[:, 0] == 0).all() and (np.diff(alphas) < 0).all() and (gaps <= tol * np.mean(y**2)).all()
    theirs = linear_model.lasso_path(A, y, alphas=alphas, tol=1e-6, max_iter=100_000)[1]
    for i, level in enumerate(alphas):
        ours = objective(A, y, coefs[:, i], level)
        assert ours <= objective(A, y, theirs[:, i], level) + 1e-6 * np.mean(y**2)


def collinear(n=60, d=800, seed=0):
    """Columns that are sums of five, nearly: weights cancel, and sweeps over one coordinate after the other creep."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, 5)) @ rng.standard_normal((5, d)) + 1e-3 * rng.standard_normal((n, d))
    return A, rng.standard_normal(n)


@pytest.mark.parametrize("small", [lasso.WHOLE, 0])
@pytest.mark.parametrize("steps", [False, True])
def test_lasso_path_of_nearly_collinear_columns_has_the_gaps_it_says(small, steps, monkeypatch):
    monkeypatch.setattr(lasso, "WHOLE", small)
    A, y = collinear()
    A = A.cumsum(axis=0) if steps else A
    alphas, coefs, gaps = lasso_path(A, y, n_alphas=100, eps=1e-4, tol=1e-7)
    R = y[:, None] - A @ coefs
    s = np.minimum(1, alphas / np.abs(A.T @ R / len(y)).max(axis=0))
    dual = s * (y @ R) / len(y) - s**2 / 2 * np.mean(R**2, axis=0)
    true = np.mean(R**2, axis=0) / 2 + alphas * np.abs(coefs).sum(axis=0) - dual
    assert (true <= 1.001e-7 * np.mean(y**2)).all() and (gaps <= 1e-7 * np.mean(y**2)).all()
    assert np.count_nonzero(coefs[:, -1]) > 10


@pytest.mark.parametrize("small", [lasso.WHOLE, 0])
def test_lasso_path_warns_of_penalties_that_do_not_converge(small, monkeypatch):
    monkeypatch.setattr(lasso, "WHOLE", small)
    monkeypatch.setattr(lasso_solver, "JUMPS", 0)
    A, y = collinear()
    with pytest.warns(ConvergenceWarning, match="Raise tol or max_iter") as caught:
        _, _, gaps = lasso_path(A, y, n_alphas=5, eps=1e-4, tol=1e-8)
    target = 1e-8 * np.mean(y**2)
    count = (gaps > target).sum()
    said = f"{count} of 5 penalties did not converge to a gap of {target:.3g}; got {gaps.max():.3g}."
    assert len(caught) == 1 and said in str(caught[0].message) and caught[0].filename == __file__


def test_jumps_end_at_the_minimum_for_their_signs():
    """From weights of the right signs one jump is enough; from others none raises the objective."""
    A, y = wide(60, 30)
    G, c = A.T @ A / 60, A.T @ y / 60
    best = Lasso(0.01, fit_intercept=False, tol=1e-14).fit(A, y).coef_
    w = best * 1.5
    assert not lasso_solver._jump(G, c, w, 0.01)
    np.testing.assert_allclose(w, best, atol=1e-5)
    w = np.random.default_rng(1).standard_normal(30)
    before = objective(A, y, w, 0.01)
    lasso_solver._jump(G, c, w, 0.01)
    assert objective(A, y, w, 0.01) < before


@pytest.mark.usefixtures("way")
def test_lasso_special_cases():
    A, y = wide(100, 50)
    zero = Lasso(1e6).fit(A, y)
    assert (zero.coef_ == 0).all() and zero.intercept_ == pytest.approx(y.mean())
    Q = np.linalg.qr(A)[0] * 10  # orthogonal columns with Gram matrix I: eq. 2 in one sweep
    w = Lasso(0.1, fit_intercept=False, tol=1e-12).fit(Q, y).coef_
    np.testing.assert_allclose(w, soft_threshold(torch.from_numpy(Q.T @ y / 100), 0.1), atol=1e-8)
    flat = Lasso(0.1).fit(np.column_stack([A, np.ones(100)]), y)
    assert flat.coef_[-1] == 0
    long = sparse.csr_matrix(A)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    dense, thin = Lasso(0.1, tol=1e-8).fit(A, y), Lasso(0.1, tol=1e-8).fit(long, y)
    np.testing.assert_allclose(dense.coef_, thin.coef_, atol=1e-4)
    with pytest.raises(ValueError, match=r"X must be \(n, d\) and y \(n,\); got \(100, 50\) and \(3,\)"):
        lasso_path(A, y[:3])


# --- logistic --------------------------------------------------------------------------------------------


def test_both_forms_of_the_logistic_loss_are_one():
    rng = np.random.default_rng(0)
    A, theta, y = rng.normal(size=(50, 3)), rng.normal(size=3), rng.choice([-1.0, 1.0], 50)
    (a, da), (b, db) = loss_of_signs(theta, A, y), loss_of_bits(theta, A, (y + 1) / 2)
    np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_allclose(da, db, rtol=1e-10)
    step = 1e-6 * np.array([1.0, 0, 0])
    slope = (
        loss_of_bits(theta + step, A, (y + 1) / 2)[0] - loss_of_bits(theta - step, A, (y + 1) / 2)[0]
    ) / 2e-6
    np.testing.assert_allclose(slope, db[:, 0], atol=1e-8)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cholesky"])
def test_logistic_agrees_with_scikit_learn(solver):
    A, y = load_breast_cancer(return_X_y=True)
    A = scale(A)
    ours = LogisticRegression(solver=solver, class_weight="balanced").fit(A, y)
    theirs = linear_model.LogisticRegression(class_weight="balanced", tol=1e-8, max_iter=1000).fit(A, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
    np.testing.assert_allclose(ours.predict_proba(A), theirs.predict_proba(A), atol=1e-3)
    assert ours.decision_function(A).shape == (len(y),)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_softmax_agrees_with_scikit_learn(layout, fit_intercept):
    A, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(0).random(150)
    ours = SoftmaxRegression(2.0, tol=1e-8, fit_intercept=fit_intercept).fit(layout(A), y, weight)
    theirs = linear_model.LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000, fit_intercept=fit_intercept)
    theirs.fit(A, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(layout(A)), theirs.predict_proba(A), atol=1e-4)
    np.testing.assert_allclose(ours.coef_.sum(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("classes", [3, 60])  # one panel of registers, and several
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_curvature_of_softmax_regression_is_eq_2(classes, order):
    rng = np.random.default_rng(0)
    A, w = np.asarray(rng.standard_normal((301, 7)), order=order), rng.random(301)
    P, V = rng.dirichlet(np.ones(classes), 301), rng.standard_normal((8, classes))
    wide = np.column_stack([A, np.ones(301)])
    U = P * (wide @ V)
    expected = wide.T @ (w[:, None] * (U - P * U.sum(1, keepdims=True)))
    np.testing.assert_allclose(curvature(A, P, w, V), expected, atol=1e-11)  # sums of 301 terms of size 1


def test_softmax_losses_fall_and_float32_stays():
    A, y = load_iris(return_X_y=True)
    model = SoftmaxRegression().fit(A.astype(np.float32), y)
    losses = [row["loss"] for row in model.history_]
    assert (np.diff(losses) <= 1e-9).all()
    assert model.coef_.dtype == np.float32 and model.predict_proba(A.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("model", [LinearRegression(), Ridge(radius=5.0), Lasso(0.1), SoftmaxRegression()])
def test_save_and_load(model, tmp_path):
    y = (Y > 140).astype(int) if isinstance(model, SoftmaxRegression) else Y
    model.fit(X, y)
    again = corollary.load(model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("model", [Ridge(radius=500.0), Lasso(0.05, tol=1e-9), SoftmaxRegression(tol=1e-9)])
def test_a_resumed_fit_equals_an_uninterrupted_one(model, tmp_path, monkeypatch):
    from sklearn.base import clone

    monkeypatch.setattr("corollary.linear.lasso.SMALL", 0)
    A, y = wide(100, 400) if isinstance(model, Lasso) else (X, (Y // 100).astype(int))
    whole = clone(model).fit(A, y)
    assert whole.n_iter_ > 2
    with corollary.Run(
        tmp_path, callbacks=[lambda event: event.step == 2], checkpoint_every=0, progress=False
    ):
        clone(model).fit(A, y)
    for file in tmp_path.glob("checkpoints/*/checkpoint.safetensors"):
        state = corollary.io.read(file, "checkpoint")
        state["journal"]["stopped"] = ""
        corollary.io.write(file, state, "checkpoint")
    with corollary.Run(tmp_path, resume=True, progress=False):
        resumed = clone(model).fit(A, y)
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
