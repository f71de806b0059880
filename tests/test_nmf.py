import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import NMF as Reference
from sklearn.exceptions import ConvergenceWarning

import corollary
from corollary.completion import nmf_learners
from corollary.completion.nmf import NMF

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
KL = {"solver": "mu", "beta_loss": "kullback-leibler"}


def parts(n=40, m=30, k=4, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    return rng.gamma(0.5, 1, (n, k)) @ rng.gamma(0.5, 1, (k, m)) + noise * rng.random((n, m))


def counts(n=60, m=80, seed=0):
    return sparse.csr_matrix(np.random.default_rng(seed).poisson(0.3, (n, m)).astype(float))


def kl(X, Y):
    return float((np.where(X > 0, X * np.log(np.where(X > 0, X, 1) / Y), 0) - X + Y).sum())


@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, {"alpha_W": 0.01, "l1_ratio": 0.3}])
@pytest.mark.parametrize("made", [lambda X: X, sparse.csr_matrix, sparse.csc_matrix])
def test_coordinate_descent_takes_the_steps_of_scikit_learn(settings, made):
    X = made(np.maximum(parts(noise=0.2) - 0.3, 0))
    ours = NMF(4, max_iter=30, tol=0, random_state=0, **settings)
    theirs = Reference(4, max_iter=30, tol=0, random_state=0, **settings)
    W, V = ours.fit_transform(X), theirs.fit_transform(X)
    # the same updates in another order of summation, thirty sweeps of them
    np.testing.assert_allclose(W, V, atol=1e-8)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-8)
    assert ours.reconstruction_err_ == pytest.approx(theirs.reconstruction_err_, rel=1e-8)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "order"), [({}, "F"), ({"shuffle": True}, "C"), ({"alpha_W": 0.01, "l1_ratio": 0.3}, "C")]
)
def test_a_pass_over_large_dense_data_takes_the_same_steps(settings, order, monkeypatch):
    monkeypatch.setattr(nmf_learners, "LARGE", 0)
    X = np.asarray(parts(321, 250, 7, noise=0.2), order=order)
    ours = NMF(7, max_iter=20, tol=0, random_state=0, **settings)
    theirs = Reference(7, max_iter=20, tol=0, random_state=0, **settings)
    np.testing.assert_allclose(ours.fit_transform(X), theirs.fit_transform(X), atol=1e-8)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-8)
    assert ours.history_[-1]["violation"] < ours.history_[0]["violation"]
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-8)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_restored_factorisation_goes_on_exactly_though_products_are_kept_between_sweeps(order, monkeypatch):
    monkeypatch.setattr(nmf_learners, "LARGE", 0)
    X, rng = np.asarray(parts(321, 250, 7, noise=0.2), order=order), np.random.default_rng(1)
    start = rng.random((321, 7)), rng.random((7, 250))
    one, other = (nmf_learners.CoordinateDescent(NMF(7), X, *start, False, False) for _ in range(2))
    for _ in range(3):
        one.step()
    other.step()  # leaves a product, which belongs to the factors of its own sweep
    other.restore(one.state())
    one.step(), other.step()
    np.testing.assert_array_equal(one.W, other.W)
    np.testing.assert_array_equal(one.Ht, other.Ht)


@pytest.mark.parametrize("settings", [{}, {"alpha_W": 0.01, "l1_ratio": 0.3}])
def test_sparse_multiplicative_updates_are_those_of_scikit_learn(settings):
    X = counts()
    ours = NMF(4, **KL, max_iter=40, random_state=0, init="random", **settings)
    theirs = Reference(4, **KL, max_iter=40, random_state=0, init="random", **settings)
    np.testing.assert_allclose(ours.fit_transform(X), theirs.fit_transform(X), rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(ours.components_, theirs.components_, rtol=1e-6, atol=1e-10)
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.reconstruction_err_ == pytest.approx(theirs.reconstruction_err_, rel=1e-6)


def test_the_divergence_of_sparse_counts_is_eq_1():
    X = counts()
    model = NMF(3, **KL, max_iter=20, random_state=0, init="random")
    W = model.fit_transform(X)
    direct = kl(X.toarray(), W @ model.components_)
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * direct), rel=1e-6)


@pytest.mark.parametrize("settings", [{}, KL, {"solver": "mu"}])
def test_missing_entries_are_recovered(settings):
    X = parts()
    holes = np.random.default_rng(1).random(X.shape) < 0.2
    model = NMF(4, max_iter=2000, tol=1e-9, random_state=0, **settings)
    W = model.fit_transform(np.where(holes, np.nan, X))
    full = W @ model.components_
    filled = np.where(holes, np.where(holes, np.nan, X)[~holes].mean(), X)
    assert np.abs(full - X)[holes].mean() < 0.1 * np.abs(filled - X)[holes].mean()
    known = np.where(holes, 0, X - full)
    if "beta_loss" not in settings:
        assert model.reconstruction_err_ == pytest.approx(np.linalg.norm(known), rel=1e-6)


@pytest.mark.parametrize("settings", [{}, KL])
def test_with_no_hole_the_masked_updates_are_the_plain_ones(settings):
    X = parts(noise=0.2)
    plain = NMF(3, max_iter=20, tol=0, random_state=0, init="random", **settings)
    W = plain.fit_transform(X)
    more = np.vstack([X, np.full((1, X.shape[1]), np.nan)])  # a row of which nothing is known
    masked = NMF(3, max_iter=20, tol=0, random_state=0, init="custom", **settings)
    from sklearn.decomposition._nmf import _initialize_nmf

    W0, H0 = _initialize_nmf(X, 3, init="random", random_state=0)
    V = masked.fit_transform(more, W=np.vstack([W0, np.ones((1, 3))]), H=H0)
    np.testing.assert_allclose(V[:-1], W, atol=1e-7)
    np.testing.assert_allclose(masked.components_, plain.components_, atol=1e-7)
    assert not masked.transform(more)[-1].any() or settings == KL


@pytest.mark.parametrize("settings", [{}, KL])
def test_the_loss_over_known_entries_never_rises(settings):
    X = np.where(np.random.default_rng(1).random((40, 30)) < 0.3, np.nan, parts(noise=0.3))
    errs = [
        NMF(4, max_iter=n, tol=0, random_state=0, **settings).fit(X).reconstruction_err_
        for n in (1, 2, 4, 8, 16)
    ]
    assert (np.diff(errs) <= 1e-9).all()


def test_projected_als_fits_exact_data():
    X = parts()
    model = NMF(4, solver="als", max_iter=300, tol=0, random_state=0)
    W = model.fit_transform(X)
    assert W.min() >= 0 and model.components_.min() >= 0
    assert np.linalg.norm(X - W @ model.components_) / np.linalg.norm(X) < 1e-3
    assert (model.inverse_transform(W) == W @ model.components_).all()


@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, KL, {"solver": "als"}])
def test_resume_is_exact(settings, tmp_path):
    X = counts()
    whole = NMF(3, max_iter=25, tol=1e-12, random_state=0, init="random", **settings).fit(X)
    part = NMF(3, max_iter=11, tol=1e-12, random_state=0, init="random", **settings)
    with corollary.Run(tmp_path):
        part.fit(X)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(max_iter=25).fit(X)
    np.testing.assert_array_equal(part.components_, whole.components_)
    again = corollary.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.transform(X), whole.transform(X))


def test_single_precision_stays_and_the_global_state_too():
    X = parts().astype(np.float32)
    before = np.random.get_state()[1].copy()
    model = NMF(3).fit(X)
    assert model.components_.dtype == np.float32
    assert model.transform(X).dtype == np.float32
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_bad_input_is_named():
    X = parts()
    with pytest.raises(ValueError, match="Negative values in data passed to NMF"):
        NMF(2).fit(-X)
    holes = X.copy()
    holes[:, 3] = np.nan
    with pytest.raises(ValueError, match="every column must have a known entry; got only NaN in column 3"):
        NMF(2).fit(holes)
    holes[0, 3] = 1
    with pytest.raises(ValueError, match='solver="als" needs complete data; got NaN'):
        NMF(2, solver="als").fit(holes)
    with pytest.raises(
        ValueError, match='missing entries need beta_loss "frobenius" or "kullback-leibler"; got 0.5'
    ):
        NMF(2, solver="mu", beta_loss=0.5).fit(holes)
    with pytest.raises(ValueError, match="stored entries of a sparse X must be known; got NaN"):
        NMF(2).fit(sparse.csr_matrix(holes))
    with pytest.raises(ValueError, match="solver 'cd' does not handle beta_loss = 'kullback-leibler'"):
        NMF(2, beta_loss="kullback-leibler").fit(X)
    with pytest.raises(ValueError, match="When beta_loss <= 0 and X contains zeros"):
        NMF(2, solver="mu", beta_loss=0, init="random").fit(np.eye(3))
    with pytest.raises(TypeError, match="H and W should have the same dtype as X"):
        NMF(2, init="custom").fit(X, W=np.ones((40, 2), np.float32), H=np.ones((2, 30), np.float32))
    with pytest.warns(RuntimeWarning, match="provided W or H are ignored"):
        NMF(2, random_state=0).fit(X, W=np.ones((40, 2)))
    with pytest.warns(ConvergenceWarning, match="Maximum number of iterations 2 reached"):
        NMF(2, max_iter=2, tol=1e-9).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="cannot update zeros"):
            NMF(2, solver="mu", init="nndsvd").fit(X)


def test_a_data_frame_is_taken_without_a_warning():
    X = parts()
    X.flags.writeable = False  # as pandas hands out its memory
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = NMF(3, max_iter=5, tol=0, random_state=0).fit(X)
    np.testing.assert_array_equal(
        model.components_, NMF(3, max_iter=5, tol=0, random_state=0).fit(parts()).components_
    )
