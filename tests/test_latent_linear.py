"""Probabilistic PCA, factor analysis and truncated SVD against closed forms and scikit-learn."""

import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn import decomposition
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import corollary
from corollary.completion.truncated_svd import TruncatedSVD
from corollary.linear.factor_analysis import FactorAnalysis
from corollary.linear.ppca import ProbabilisticPCA, closed_form

IRIS = load_iris().data


@parametrize_with_checks([ProbabilisticPCA(), FactorAnalysis(), TruncatedSVD()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- probabilistic PCA -----------------------------------------------------------------------------------


def normal(model, X):
    law = torch.distributions.MultivariateNormal(
        torch.from_numpy(model.mean_), torch.from_numpy(model.get_covariance())
    )
    return law.log_prob(torch.from_numpy(X)).numpy()


def test_closed_form_is_stationary_and_beats_its_neighbours():
    W, mu, sigma2 = closed_form(IRIS, 2)
    S = torch.from_numpy(np.cov(IRIS.T, bias=True))
    C = W @ W.T + sigma2 * torch.eye(4).double()
    torch.testing.assert_close(S @ torch.linalg.solve(C, W), W, atol=1e-10, rtol=0)
    model = ProbabilisticPCA(2).fit(IRIS)
    best = model.score(IRIS)
    rng = np.random.default_rng(0)
    for _ in range(20):
        near = ProbabilisticPCA(2).fit(IRIS)
        near.components_ = near.components_ + 0.05 * rng.standard_normal(near.components_.shape)
        assert near.score(IRIS) < best


def test_density_agrees_with_torch_and_with_scikit_learn_pca():
    model = ProbabilisticPCA(2).fit(IRIS)
    np.testing.assert_allclose(model.score_samples(IRIS), normal(model, IRIS), rtol=1e-9)
    # scikit-learn divides by n - 1 instead of n: a scale of 1 / 150 in the covariance.
    theirs = decomposition.PCA(2).fit(IRIS)
    np.testing.assert_allclose(model.get_covariance() * 150 / 149, theirs.get_covariance(), rtol=1e-9)
    assert model.score(IRIS) > theirs.score(IRIS)


def test_em_reaches_the_closed_form():
    exact = ProbabilisticPCA(2).fit(IRIS)
    em = ProbabilisticPCA(2, method="em", tol=1e-12, random_state=0).fit(IRIS)
    np.testing.assert_allclose(em.get_covariance(), exact.get_covariance(), atol=1e-6)
    np.testing.assert_allclose(em.components_, exact.components_, atol=1e-5)


def test_posterior_is_gaussian_conditioning_also_with_holes():
    X = IRIS.copy()
    X[3, 1] = X[3, 2] = X[5, 0] = np.nan
    model = ProbabilisticPCA(2, tol=1e-9, random_state=0).fit(X)
    mean, covariance = model.posterior(X)
    W, C = model.components_.T, model.get_covariance()
    for t in (3, 5, 7):
        seen = ~np.isnan(X[t])
        gain = W[seen].T @ np.linalg.inv(C[np.ix_(seen, seen)])
        np.testing.assert_allclose(mean[t], gain @ (X[t, seen] - model.mean_[seen]), rtol=1e-8)
        np.testing.assert_allclose(covariance[t], np.eye(2) - gain @ W[seen], atol=1e-9)


def test_wide_data_and_many_features():
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((40, 3)) * [9, 6, 4]) @ rng.standard_normal((3, 1200)) + rng.standard_normal(
        (40, 1200)
    )
    model = ProbabilisticPCA(3).fit(X)
    e, V = np.linalg.eigh(np.cov(X.T, bias=True))
    assert model.noise_variance_ == pytest.approx(e[:-3].mean(), rel=1e-9)
    np.testing.assert_allclose(
        np.linalg.norm(model.components_, axis=1) ** 2 + model.noise_variance_, e[:-4:-1], rtol=1e-9
    )


@pytest.mark.parametrize("model", [ProbabilisticPCA(2, random_state=0), FactorAnalysis(2)])
def test_samples_have_the_covariance(model):
    X = model.fit(IRIS).sample(200_000)
    np.testing.assert_allclose(np.cov(X.T), model.get_covariance(), atol=0.05)  # 1 / sqrt(200000) of 3
    np.testing.assert_allclose(X.mean(axis=0), model.mean_, atol=0.02)


def test_ppca_errors():
    with pytest.raises(ValueError, match="at most min\\(n_samples, n_features\\)=4; got 9"):
        ProbabilisticPCA(9).fit(IRIS)
    holes = np.where(np.arange(4) == 2, np.nan, IRIS)
    with pytest.raises(ValueError, match="every column must have at least one value"):
        ProbabilisticPCA(2).fit(holes)
    holes[0, 2] = 1.0
    with pytest.raises(ValueError, match='method="closed" needs data without NaN'):
        ProbabilisticPCA(2, method="closed").fit(holes)


# --- factor analysis -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotation", [None, "varimax", "quartimax"])
def test_factor_analysis_agrees_with_scikit_learn(rotation):
    # Both stop by the same rule on the same likelihood; only the eigensolver's rounding differs.
    X = load_digits().data[:, 10:40]
    ours = FactorAnalysis(4, rotation=rotation).fit(X)
    theirs = decomposition.FactorAnalysis(4, rotation=rotation, svd_method="lapack").fit(X)
    assert ours.n_iter_ == theirs.n_iter_
    np.testing.assert_allclose(ours.loglike_, theirs.loglike_, rtol=1e-9)
    np.testing.assert_allclose(ours.noise_variance_, theirs.noise_variance_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(np.abs(ours.components_), np.abs(theirs.components_), atol=1e-4)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-6)
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), atol=1e-3)


def test_the_last_likelihood_is_the_score_and_none_falls():
    model = FactorAnalysis(2, tol=1e-4, max_iter=5000).fit(IRIS)
    assert model.score(IRIS) * 150 == pytest.approx(model.loglike_[-1], rel=1e-9)
    assert (np.diff(model.loglike_) > -1e-9).all()
    np.testing.assert_allclose(model.score_samples(IRIS), normal(model, IRIS), rtol=1e-8)
    mean, covariance = model.posterior(IRIS)
    W, C = model.components_.T, model.get_covariance()
    np.testing.assert_allclose(covariance, np.eye(2) - W.T @ np.linalg.solve(C, W), atol=1e-9)
    np.testing.assert_allclose(mean, (IRIS - model.mean_) @ np.linalg.solve(C, W), atol=1e-9)


def test_wide_factor_analysis_uses_krylov():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 400)) * 3 + rng.standard_normal((50, 400))
    krylov = FactorAnalysis(3, max_iter=20, tol=0.1, iterated_power=6).fit(X)
    lapack = FactorAnalysis(3, max_iter=20, tol=0.1, svd_method="lapack").fit(X)
    np.testing.assert_allclose(krylov.loglike_, lapack.loglike_, rtol=1e-8)


def test_factor_analysis_errors_and_warning():
    with pytest.raises(ValueError, match="noise_variance_init must have n_features=4 entries; got 2"):
        FactorAnalysis(1, noise_variance_init=[1, 1]).fit(IRIS)
    with pytest.raises(ValueError, match="n_components must be at most n_features=4; got 5"):
        FactorAnalysis(5).fit(IRIS)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        FactorAnalysis(2, max_iter=1).fit(IRIS)


# --- truncated SVD ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts():
    X = sparse.random(300, 80, 0.1, format="csr", random_state=0)
    X.data *= np.exp(-np.arange(80) / 5)[X.indices]
    return X


@pytest.mark.parametrize("algorithm", ["randomized", "arpack", "exact", "power"])
@pytest.mark.parametrize("layout", ["dense", "csr", "csc"])
def test_every_algorithm_is_eckart_young(counts, algorithm, layout):
    X = counts.toarray() if layout == "dense" else counts.asformat(layout)
    if algorithm == "exact" and layout != "dense":
        with pytest.raises(TypeError, match="takes dense data"):
            TruncatedSVD(4, algorithm=algorithm).fit(X)
        return
    model = TruncatedSVD(4, algorithm=algorithm, n_iter=10, random_state=0).fit(X)
    dense = counts.toarray()
    s = np.linalg.svd(dense, compute_uv=False)
    np.testing.assert_allclose(model.singular_values_, s[:4], rtol=1e-6)
    rebuilt = model.inverse_transform(model.transform(X))
    assert np.sum((dense - rebuilt) ** 2) == pytest.approx((s[4:] ** 2).sum(), rel=1e-6)


def test_no_less_is_captured_than_by_scikit_learn(counts):
    for seed in range(3):
        ours = TruncatedSVD(10, random_state=seed).fit(counts)
        theirs = decomposition.TruncatedSVD(10, random_state=seed).fit(counts)
        captured = lambda m: np.sum((counts @ m.components_.T) ** 2)
        assert captured(ours) >= captured(theirs) * (1 - 1e-6)
        np.testing.assert_allclose(
            ours.explained_variance_ratio_[:5], theirs.explained_variance_ratio_[:5], rtol=1e-3
        )


@pytest.mark.parametrize("model", [ProbabilisticPCA(2), FactorAnalysis(2), TruncatedSVD(2, random_state=0)])
def test_save_and_load(model, tmp_path):
    model.fit(IRIS)
    again = corollary.load(model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.transform(IRIS), model.transform(IRIS))


def test_truncated_svd_errors(counts):
    with pytest.raises(ValueError, match="must be <= n_features"):
        TruncatedSVD(81).fit(counts)
    with pytest.raises(ValueError, match="must be less than min\\(n_samples, n_features\\)=80; got 80"):
        TruncatedSVD(80, algorithm="arpack").fit(counts)
    with pytest.raises(ValueError, match="must be at most min\\(n_samples, n_features\\)=50; got 60"):
        TruncatedSVD(60).fit(counts[:50])


@pytest.mark.parametrize(
    "make", [lambda: FactorAnalysis(2, tol=1e-2), lambda: TruncatedSVD(3, algorithm="power", random_state=0)]
)
def test_a_resumed_fit_equals_an_uninterrupted_one(make, tmp_path):
    whole = make().fit(IRIS)
    with corollary.Run(
        tmp_path, callbacks=[lambda event: event.step == 2], checkpoint_every=0, progress=False
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            make().fit(IRIS)
    for file in tmp_path.glob("checkpoints/*/checkpoint.safetensors"):
        state = corollary.io.read(file, "checkpoint")
        state["journal"]["stopped"] = ""
        corollary.io.write(file, state, "checkpoint")
    with corollary.Run(tmp_path, resume=True, progress=False):
        resumed = make().fit(IRIS)
    np.testing.assert_array_equal(resumed.components_, whole.components_)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_iter", [1, 4, 5])
def test_a_flat_spectrum_is_captured_as_well_as_by_power_iterations(n_iter, seed):
    X = sparse.random(
        900, 500, 0.01, "csr", random_state=np.random.RandomState(seed)
    )  # noise: no gap to help
    ours, peer = (
        kind(20, n_iter=n_iter, random_state=seed).fit(X)
        for kind in (TruncatedSVD, decomposition.TruncatedSVD)
    )
    captured = [np.sum((X @ model.components_.T) ** 2) for model in (ours, peer)]
    assert captured[0] >= captured[1]
